"""The states of a slave's replicator, as tables: how each try of a master ends, and what follows from it.

`TRANSITIONS` says where an event leads; a pair that it does not list changes nothing. Beside the state the replicator
counts tries in a row that brought nothing: `COUNTED` events add one, `FORGIVING` events begin anew. Before the next try
it waits longer with each of them.
"""

from __future__ import annotations

import enum


class State(enum.Enum):
    """The state of a slave's replicator."""

    SEARCHING = "looks for a master, and for a way to follow it"
    FOLLOWING = "takes the log of a master"
    HALTED = "waits for another master: the log of this one does not fit"
    REOPENING = "has asked for a cut of its log, and ends: the store is opened again"


class Event(enum.Enum):
    """An event that changes the state, or counts for the next wait."""

    NO_MASTER = "the orders of a member name no master any more"
    OTHER_MASTER = "another master is named than before"
    MISFIT_NAMED = "the master that this slave has halted for is named again"
    STREAM_BEGUN = "both sides have agreed on where the stream begins"
    STREAM_ENDED = "the stream has ended after it had brought a part of the log"
    NOTHING_CAME = "the stream has ended before it had brought anything"
    TOLD_TO_LEAVE = "the broker was told to stop, or to follow another master"
    FAILED = "the master cannot be followed now; another try may succeed"
    MISFIT = "the log of this slave does not fit the master's, and no other try would change that"
    NEEDS_CUT = "the guardian has to cut the log of this member before it can follow"
    CUT_ASKED = "the log will be cut when the store is opened next"


COUNTED = frozenset({Event.NOTHING_CAME, Event.FAILED})
FORGIVING = frozenset({Event.OTHER_MASTER, Event.MISFIT_NAMED, Event.STREAM_ENDED, Event.TOLD_TO_LEAVE, Event.MISFIT})
STREAM_OVER = frozenset({Event.STREAM_ENDED, Event.NOTHING_CAME, Event.TOLD_TO_LEAVE, Event.FAILED})

TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.SEARCHING, Event.STREAM_BEGUN): State.FOLLOWING,
    **{(State.FOLLOWING, event): State.SEARCHING for event in STREAM_OVER},
    (State.SEARCHING, Event.MISFIT): State.HALTED,
    (State.FOLLOWING, Event.MISFIT): State.HALTED,
    (State.SEARCHING, Event.MISFIT_NAMED): State.HALTED,
    (State.SEARCHING, Event.NEEDS_CUT): State.HALTED,
    (State.SEARCHING, Event.CUT_ASKED): State.REOPENING,
    (State.HALTED, Event.OTHER_MASTER): State.SEARCHING,
    (State.HALTED, Event.NO_MASTER): State.SEARCHING,
}


def next_state(state: State, event: Event) -> State:
    """Return the state after `event`; `state` itself if the event means nothing there."""
    return TRANSITIONS.get((state, event), state)


def next_failures(failures: int, event: Event) -> int:
    """Return the number of tries in a row that brought nothing, after `event`."""
    return 0 if event in FORGIVING else failures + (event in COUNTED)
