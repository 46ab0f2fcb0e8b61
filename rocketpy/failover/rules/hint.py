"""A peer's report of a newer epoch: a hint to ask etcd, where each epoch is before anybody can name it."""

from __future__ import annotations

import attrs

from .records import GroupState

HINT_S = 0.5
"""The time for which a master that hears of a newer epoch asks etcd; after it the peer's word counts."""


@attrs.define
class Hint:
    """The hint of a peer that names an epoch above `state`'s. The coordinator refutes an epoch that etcd does not
    have."""

    _since_s: float | None = None

    @property
    def is_open(self) -> bool:
        """Return True if etcd is to be asked."""
        return self._since_s is not None

    def update(self, now_s: float, newest_seen: int, known: GroupState | None) -> None:
        is_newer = known is not None and newest_seen > known.epoch
        self._since_s = (now_s if self._since_s is None else self._since_s) if is_newer else None

    def is_old(self, now_s: float) -> bool:
        """Return True if etcd had its time. A master without etcd would go on as brokerId 0 beside its successor."""
        return self._since_s is not None and now_s >= self._since_s + HINT_S
