"""Every order of events of two members, to a small depth: nothing is left to the dice."""

from __future__ import annotations

from functools import cache

import pytest

from rocketpy.failover.rules.records import GroupState
from tests.support.failover.checker import Violation
from tests.support.failover.orders import BEGINNINGS, Explored, explore

DEPTH = 3
STATES_MIN = {"joining": 150, "in sync": 300, "lease ended": 300, "elected": 300}


@cache
def explored(beginning: str) -> Explored:
    return explore(beginning, DEPTH)


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_every_order_of_events(beginning: str) -> None:
    assert explored(beginning).states > STATES_MIN[beginning], explored(beginning)


def test_acknowledgements_and_promotions_are_among_them() -> None:
    assert explore("in sync", 2).acknowledgements > 10
    assert explored("elected").promotions > 100


def test_a_missing_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without incarnations, a member that lost its disk becomes master by the election that it asked for before."""
    monkeypatch.setattr(GroupState, "names", lambda self, member, _: member in self.in_sync)
    with pytest.raises(Violation, match="lacks"):
        explore("lease ended", DEPTH)
