"""Every pair of state and event: the table is compared with one written down by itself."""

from __future__ import annotations

import itertools

from rocketpy.failover.rules.states import DUTIES, EXPLANATIONS, TRANSITIONS, Event, State, next_state
from tests.support.cases import cases

# One row per event. One letter per state, in the order of the head; "." where the event changes nothing.
LETTERS = dict(zip("JFICPMDOH", State, strict=True))  # D: fenced, O: switching over
EXPECTED = """
                    J F I C P M D O H
MISCONFIGURED       H H H H H H H H .
HIGHER_EPOCH        . . . . J J J J .
APPOINTED           P P P P . . . . .
MASTER_KNOWN        F . . . . . . . .
MAY_BOOTSTRAP       C . . . . . . . .
MAY_CAMPAIGN        C C C . . . . . .
MASTER_BACK         . . . J . . . . .
ELECTION_LOST       . . . J . . . . .
ENTERED_SET         . I . . . . . . .
LEFT_SET            . . F . . . . . .
DIVERGED            . H H . . . . . .
READY               . . . . M . . . .
LEASE_OVER          . . . . . D . D .
LEASE_BACK          . . . . . . M . .
SWITCH_OVER_WANTED  . . . . . O . . .
SWITCHED_OVER       . . . . . . . J .
SWITCH_OVER_FAILED  . . . . . . . M .
OPERATOR_ORDER      . . . . . . . . J
HAS_FAULT           . . . . . O . . .
GAVE_UP             . . . . J J . J .
"""


def expected() -> dict[tuple[State, Event], State]:
    head, *rows = EXPECTED.strip().splitlines()
    return {
        (LETTERS[column], Event[row.split()[0]]): LETTERS.get(letter, LETTERS[column])
        for row in rows
        for column, letter in zip(head.split(), row.split()[1:], strict=True)
    }


@cases("state, event", itertools.product(State, Event))
def test_pair(state: State, event: Event) -> None:
    assert next_state(state, event) is expected()[state, event]


def test_the_log_explains_each_event_without_words_of_a_page() -> None:
    assert set(EXPLANATIONS) == set(Event)
    assert not [text for text in EXPLANATIONS.values() if "`" in text or "§" in text]


def test_no_row_leads_nowhere() -> None:
    assert all(before is not after for (before, _), after in TRANSITIONS.items())


def test_every_state_can_be_entered_and_left() -> None:
    assert set(TRANSITIONS.values()) == set(State)
    assert {before for before, _ in TRANSITIONS} == set(State) == set(DUTIES)


def test_duties() -> None:
    """Who takes a stream serves nobody; who takes sends answers them and is broker 0."""
    for state, duties in DUTIES.items():
        assert not (duties.takes_stream and duties.sends_stream), state
        assert duties.answers_waits or not duties.takes_sends, state
        assert duties.is_broker_0 == duties.answers_waits, state
    assert [state for state in State if DUTIES[state].takes_sends] == [State.MASTER]
