"""Until when a master may answer."""

from __future__ import annotations

import pytest

from rocketpy.failover.rules.fences import FOR_EVER_S, NEVER_S, Fence, Lease
from rocketpy.failover.rules.records import GroupState

LEASE = Lease(number=7, renewed_s=100.0, granted_s=6.0)
ALONE = GroupState(epoch=1, master="a", in_sync={"a": "i"})
PAIR = GroupState(epoch=1, master="a", in_sync={"a": "i", "b": "k"})


def test_the_deadline_counts_from_when_the_renewal_was_sent() -> None:
    assert LEASE.deadline_s == 105.0


@pytest.mark.parametrize("is_sync", [True, False])
@pytest.mark.parametrize("state", [ALONE, PAIR])
def test_a_lease_opens_until_its_deadline(is_sync: bool, state: GroupState) -> None:
    fence = Fence(is_sync=is_sync)
    assert fence.open_until(LEASE, state, frozenset()) == 105.0
    assert fence.open_until(None, state, frozenset()) == NEVER_S


@pytest.mark.parametrize(
    ("fence", "state", "acknowledging", "until"),
    [
        (Fence(is_sync=True), PAIR, {"b"}, FOR_EVER_S),
        (Fence(is_sync=True), PAIR, {"a"}, 105.0),  # the other one has not come to this epoch
        (Fence(is_sync=True), ALONE, {"a"}, 105.0),
        (Fence(is_sync=True, without_lease=False), PAIR, {"b"}, 105.0),
        (Fence(is_sync=False), PAIR, {"b"}, 105.0),
    ],
)
def test_a_pair_needs_no_lease(fence: Fence, state: GroupState, acknowledging: set[str], until: float) -> None:
    assert fence.open_until(LEASE, state, frozenset(acknowledging)) == until
