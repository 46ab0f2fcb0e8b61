"""The time until which a master may acknowledge.

The **lease fence** compares a clock: it is for groups that acknowledge without their slaves, and for a master that is
alone. The **replication fence** has no clock: a candidate stops the old master's stream before it campaigns. A master
whose acknowledgements need every in-sync member gets no more of them then. Member and in_sync.py keep it.

Short: on this rule alone rests what an asynchronous master may acknowledge; it is read and tested apart.
"""

from __future__ import annotations

import attrs

from .records import GroupState

MARGIN_S = 1.0  # covers clock rates 5 % apart (at a lease of 6 s), and half a second between check and answer
FOR_EVER_S, NEVER_S = float("inf"), float("-inf")


@attrs.frozen
class Lease:
    """A lease in etcd, as its owner knows it.

    `renewed_s` is CLOCK_BOOTTIME when the last answered keepalive (or the grant) was *sent*; `granted_s` its time to
    live as etcd granted it.
    """

    number: int
    renewed_s: float
    granted_s: float

    @property
    def deadline_s(self) -> float:
        """CLOCK_BOOTTIME until which answers that rest on this lease may leave."""
        return self.renewed_s + self.granted_s - MARGIN_S


@attrs.frozen(kw_only=True)
class Fence:
    """The fence of a group's master. `without_lease` is haServeWithoutLease: a synchronous group with slaves needs no
    lease."""

    is_sync: bool
    without_lease: bool = True

    def open_until(self, lease: Lease | None, state: GroupState, acknowledging: frozenset[str]) -> float:
        """Return the time until which the master may answer sends: CLOCK_BOOTTIME, FOR_EVER_S or NEVER_S.

        Args:
            lease: the lease of `master` in etcd, as far as this member knows; None if it has none.
            acknowledging: members that have acknowledged something in the master's epoch.
        """
        others = state.in_sync.keys() - {state.master}
        if self.is_sync and self.without_lease and others and others <= acknowledging:
            return FOR_EVER_S
        return NEVER_S if lease is None else lease.deadline_s
