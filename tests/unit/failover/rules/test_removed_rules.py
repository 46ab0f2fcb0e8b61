"""Each rule is needed: without it, some simulated history breaks a promise."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from rocketpy.failover.rules import elections, epochs, fences, in_sync, mastership, records
from rocketpy.failover.rules.states import DUTIES, State
from tests.support.failover.checker import Violation
from tests.support.failover.histories import play

TRIES_MAX = 2500
LIKELY = {"no_replication_fence": 98, "no_lease_fence": 386}  # a seed that has found it comes first, then the others


def no_replication_fence(patch: pytest.MonkeyPatch) -> None:
    for state in (State.CANDIDATE, State.PROMOTING, State.MASTER):
        patch.setitem(DUTIES, state, attrs.evolve(DUTIES[state], takes_stream=True))
    patch.setattr(epochs, "may_take", lambda epoch, own, newest_epoch_seen: True)


def no_lease_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fences.Fence, "open_until", lambda *_: fences.FOR_EVER_S)


def no_incarnations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(records.GroupState, "names", lambda self, member, _: member in self.in_sync)
    patch.setattr(elections, "may_campaign", lambda candidate, config, state, **_: candidate.member in state.in_sync)


def shrink_counts_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(in_sync, "counting_stores", lambda state, asked: frozenset(([*asked] or [state])[-1].in_sync.items()))


def set_does_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(mastership.Mastership, "confirmable", lambda _self, report, _counting: report.end)


@pytest.mark.parametrize(
    ("remove", "mode"),
    [
        (no_replication_fence, "sync"),
        (no_lease_fence, "async"),
        (no_incarnations, "sync"),
        (shrink_counts_at_once, "sync"),
        (set_does_not_count, "sync"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_rule_that_is_removed_is_missed(
    remove: Callable[[pytest.MonkeyPatch], None], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(monkeypatch)
    first = LIKELY.get(remove.__name__, 0)
    for seed in (*range(first, TRIES_MAX), *range(first)):
        try:
            play(seed, mode)
        except Violation as found:
            print(f"seed {seed}: {found}")
            assert "no master" not in str(found) and "nothing was acknowledged" not in str(found)
            return
    pytest.fail(f"{TRIES_MAX} histories hold without it")
