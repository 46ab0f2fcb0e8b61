"""Every pair of state and event of a slave's replicator: the table is compared with one written down by itself."""

from __future__ import annotations

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.replication.slave import SHOWN
from rocketpy.replication.slave_states import TRANSITIONS, Event, State, next_failures, next_state

# One row per event. One letter per state, in the order of the head; "." where the event changes nothing. The last
# column: the tries in a row that brought nothing, after two of them.
LETTERS = dict(zip("SFHR", State, strict=True))  # R: reopening
EXPECTED = """
               S F H R  2
NO_MASTER      . . S .  2
OTHER_MASTER   . . S .  0
MISFIT_NAMED   H . . .  0
STREAM_BEGUN   F . . .  2
STREAM_ENDED   . S . .  0
NOTHING_CAME   . S . .  3
TOLD_TO_LEAVE  . S . .  0
FAILED         . S . .  3
MISFIT         H H . .  0
NEEDS_CUT      H . . .  2
CUT_ASKED      R . . .  2
"""
ROWS = [row.split() for row in EXPECTED.strip().splitlines()[1:]]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_where_an_event_leads(row: list[str]) -> None:
    event = Event[row[0]]
    for letter, after in zip(LETTERS, row[1:-1], strict=True):
        assert next_state(LETTERS[letter], event) is LETTERS.get(after, LETTERS[letter]), letter
    assert next_failures(2, event) == int(row[-1])


def test_the_table_has_every_event_and_state() -> None:
    assert [row[0] for row in ROWS] == [event.name for event in Event]
    assert {*TRANSITIONS.values()} == set(State) == SHOWN.keys()
