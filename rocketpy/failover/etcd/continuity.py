"""Notices an etcd that was replaced, or restored from a snapshot: its answers do not continue what was read before.

A restored cluster may have the same number, and a revision that is higher again by the time somebody reads it. The
`state` in it may name members in sync that are not. So nothing that it says is used any more, and nothing is asked of
it: a broker that starts anew begins with what is there, and people see to that (docs/run/automatic-failover.md).
"""

from __future__ import annotations

import attrs

from rocketpy.errors import RocketError


class EtcdReplaced(RocketError):
    """Another etcd cluster answers than before, or one that was restored: its answers cannot be compared."""


@attrs.frozen
class Seen:
    """One answer: the revision of the whole, and revision, value and epoch of the key `state`."""

    cluster_id: str
    revision: int
    state_revision: int = 0  # 0: there is no `state`
    state: bytes = b""
    epoch: int = -1


@attrs.define
class Continuity:
    """The continuity of one member's reads of etcd. Once an answer does not fit, every later check fails."""

    last: Seen | None = None
    _fault: str = ""

    def check(self) -> None:
        """Refuse to go on once etcd was found replaced. Raises: EtcdReplaced."""
        if self._fault:
            raise EtcdReplaced(
                f"{self._fault}: etcd was replaced, or restored from a snapshot; it is not used until this broker is "
                "restarted (docs/run/automatic-failover.md, etcd)"
            )

    def take(self, seen: Seen, asked_at: int) -> None:
        """Take an answer.

        Args:
            asked_at: the revision that was known when the request was sent: a linearizable answer is not older.
        Raises:
            EtcdReplaced: it does not continue what was seen before.
        """
        self._fault = self._fault or self._fault_of(seen, asked_at)
        self.check()
        if self.last is None or seen.revision >= self.last.revision:
            self.last = seen

    @property
    def revision(self) -> int:
        """The newest one that was seen."""
        return self.last.revision if self.last else 0

    def state_at(self, revision: int) -> bytes | None:
        """Return the value that `state` had at this revision; None: it is not known."""
        return self.last.state if self.last and revision and self.last.state_revision == revision else None

    def _fault_of(self, seen: Seen, asked_at: int) -> str:
        last = self.last
        if last is None:
            return ""
        if seen.cluster_id != last.cluster_id:
            return f"etcd cluster {seen.cluster_id} answers, before it was {last.cluster_id}"
        if seen.revision < asked_at:
            return f"etcd is at revision {seen.revision}, before it was at {asked_at}"
        before, after = sorted((last, seen), key=lambda one: one.revision)
        if 0 < after.state_revision <= before.revision and (after.state_revision, after.state) != (
            before.state_revision,
            before.state,
        ):
            return f"`state` of revision {after.state_revision} was not there at revision {before.revision}"
        if 0 <= after.epoch < before.epoch:
            return f"`state` has epoch {after.epoch}, before it had {before.epoch}"
        return ""
