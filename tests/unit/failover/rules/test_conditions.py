"""A slave prepares to be the next master for as long as the master tries to hand over."""

from __future__ import annotations

import attrs
import pytest

from rocketpy.failover.rules.conditions import SWITCH_OVER_S, NextMaster
from rocketpy.failover.rules.epochs import EpochList
from rocketpy.failover.rules.records import GroupState, SwitchRequest
from rocketpy.failover.rules.requests import Report, View

REPORT = Report(incarnation="k", epochs=EpochList(), end=0, confirmed=0, done=True, wall_ms=10**14)
STATE = GroupState(epoch=3, master="a", in_sync={"a": "i", "b": "k"})
VIEW = View(revision=9, state=STATE, state_revision=8, switch=SwitchRequest(from_epoch=3, to="b", until_ms=10**15))


def test_it_is_wanted_for_the_time_of_a_switch_over() -> None:
    rule = NextMaster()
    assert rule.is_wanted(VIEW, REPORT, "b", 100.0)
    assert rule.is_wanted(VIEW, REPORT, "b", 100.0 + SWITCH_OVER_S - 0.1)
    assert not rule.is_wanted(VIEW, REPORT, "b", 100.0 + SWITCH_OVER_S)
    again = attrs.evolve(VIEW, switch=SwitchRequest(from_epoch=3, to="b", until_ms=10**15 + 1))
    assert rule.is_wanted(again, REPORT, "b", 200.0), "another request has its own time"


def test_a_request_whose_time_is_over_means_nothing() -> None:
    """It stays in etcd, and each coordinator that starts sees it for the first time."""
    late = attrs.evolve(REPORT, wall_ms=10**15)
    assert not NextMaster().is_wanted(VIEW, late, "b", 100.0)


@pytest.mark.parametrize(
    "view",
    [
        None,
        attrs.evolve(VIEW, switch=None),
        attrs.evolve(VIEW, state=None),
        attrs.evolve(VIEW, switch=SwitchRequest(from_epoch=3, to="a", until_ms=10**15)),
        attrs.evolve(VIEW, state=attrs.evolve(STATE, epoch=4)),
        attrs.evolve(VIEW, state=attrs.evolve(STATE, master="b")),
    ],
    ids=["nothing read", "no request", "no state", "another member", "another epoch", "it is the master"],
)
def test_otherwise_it_is_not(view: View | None) -> None:
    assert not NextMaster().is_wanted(view, REPORT, "b", 100.0)
