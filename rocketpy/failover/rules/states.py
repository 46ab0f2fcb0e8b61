"""The state machine of a member of a group with automatic failover, as tables.

`TRANSITIONS` says where an event leads; a pair that it does not list changes nothing. `DUTIES` says what a member does
in each state. docs/run/failover-reference.md is printed from both, and a test holds every pair of state and event.
"""

from __future__ import annotations

import enum

import attrs


class State(enum.Enum):
    """The state of a member in its group."""

    JOINING = "JOINING"
    FOLLOWER = "FOLLOWER"
    IN_SYNC = "IN_SYNC"
    CANDIDATE = "CANDIDATE"
    PROMOTING = "PROMOTING"
    MASTER = "MASTER"
    FENCED = "FENCED"
    SWITCHING_OVER = "SWITCHING_OVER"
    HALTED = "HALTED"


class Event(enum.Enum):
    """An event that a member learns of; its value is the explanation in the documents."""

    MISCONFIGURED = "the group in etcd has another format, mode, file size or member list, or the epoch file is damaged"
    HIGHER_EPOCH = (
        "`state` names an epoch above this member's own, or is gone; or a peer names one, and etcd does not answer "
        "for half a second"
    )
    APPOINTED = "`state` names this member and its incarnation as master of an epoch that it has not opened yet"
    MASTER_KNOWN = "`state` names another member as master"
    MAY_BOOTSTRAP = (
        "there is no `state`; all members are registered; this one's store is the only one with messages, or all are "
        "empty and it is the first of the list"
    )
    MAY_CAMPAIGN = "`master` is absent, and the rules of elections let this member campaign"
    MASTER_BACK = "`master` is there again, and no election of this member can succeed any more"
    ELECTION_LOST = "`state` has changed since this member became a candidate"
    ENTERED_SET = "the in-sync set names this member with its incarnation"
    LEFT_SET = "the in-sync set does not name this member with its incarnation"
    DIVERGED = "this log differs from the master's below what consumers were shown, or has nothing in common with it"
    READY = "the epoch file is on the disk and the next offsets of all queues are known"
    LEASE_OVER = "the lease fence is closed"
    LEASE_BACK = "the lease fence is open again, `state` has not changed, and no switch-over can succeed any more"
    SWITCH_OVER_WANTED = "`switch` names a member of the in-sync set that is registered, and its time is not over"
    SWITCHED_OVER = "`state` names the target as master of the next epoch"
    SWITCH_OVER_FAILED = "3 s are over, and the switch-over can't succeed any more"
    OPERATOR_ORDER = "`haElect --unclean` names this member"
    HAS_FAULT = "this member has had a fault for haUnhealthySeconds, and a member of the in-sync set has none"
    GAVE_UP = (
        "HAS_FAULT holds and the member is PROMOTING or its store is not open; or a switch-over did not succeed in "
        "3 s, the member has had a fault for 2 s, and a member of the in-sync set has none"
    )


EXPLANATIONS: dict[Event, str] = {  # in the log: what happened, and what an operator has to do, if anything
    Event.MISCONFIGURED: "its settings do not fit the group in etcd, or its epoch file is damaged",
    Event.HIGHER_EPOCH: "another member has become master in a newer epoch, or etcd has lost the state of the group",
    Event.APPOINTED: "it was elected",
    Event.MASTER_KNOWN: "another member is master",
    Event.MAY_BOOTSTRAP: "the group is new, and this member may become its first master",
    Event.MAY_CAMPAIGN: "the group has no master, and this member may become it",
    Event.MASTER_BACK: "the master is registered again",
    Event.ELECTION_LOST: "another member was elected, or the in-sync set has changed",
    Event.ENTERED_SET: "it has entered the in-sync set, and may become master",
    Event.LEFT_SET: "it has left the in-sync set, because it was too far behind or not connected",
    Event.DIVERGED: "its log differs from the master's; what it has alone cannot be merged: replace its store",
    Event.READY: "its log and its queues are complete, and it takes messages",
    Event.LEASE_OVER: "it could not renew its lease in time and refuses messages; see whether etcd can be reached",
    Event.LEASE_BACK: "it has its lease again and takes messages",
    Event.SWITCH_OVER_WANTED: "an operator asked for another master; messages wait until that is done",
    Event.SWITCHED_OVER: "the other member is master now",
    Event.SWITCH_OVER_FAILED: "the other member did not become master in time; it goes on itself",
    Event.OPERATOR_ORDER: "an operator has ordered it",
    Event.HAS_FAULT: "it cannot serve as master, and hands over to a member in sync that can",
    Event.GAVE_UP: "it cannot serve as master, and gives its lease up so that another member in sync is elected",
}


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.JOINING, Event.APPOINTED): State.PROMOTING,
    (State.JOINING, Event.MAY_BOOTSTRAP): State.CANDIDATE,
    (State.JOINING, Event.MAY_CAMPAIGN): State.CANDIDATE,
    (State.JOINING, Event.MASTER_KNOWN): State.FOLLOWER,
    (State.FOLLOWER, Event.DIVERGED): State.HALTED,
    (State.FOLLOWER, Event.APPOINTED): State.PROMOTING,
    (State.FOLLOWER, Event.ENTERED_SET): State.IN_SYNC,
    (State.FOLLOWER, Event.MAY_CAMPAIGN): State.CANDIDATE,
    (State.IN_SYNC, Event.DIVERGED): State.HALTED,
    (State.IN_SYNC, Event.APPOINTED): State.PROMOTING,
    (State.IN_SYNC, Event.LEFT_SET): State.FOLLOWER,
    (State.IN_SYNC, Event.MAY_CAMPAIGN): State.CANDIDATE,
    (State.CANDIDATE, Event.APPOINTED): State.PROMOTING,
    (State.CANDIDATE, Event.ELECTION_LOST): State.JOINING,
    (State.CANDIDATE, Event.MASTER_BACK): State.JOINING,
    (State.PROMOTING, Event.HIGHER_EPOCH): State.JOINING,
    (State.PROMOTING, Event.READY): State.MASTER,
    (State.PROMOTING, Event.GAVE_UP): State.JOINING,
    (State.MASTER, Event.HIGHER_EPOCH): State.JOINING,
    (State.MASTER, Event.LEASE_OVER): State.FENCED,
    (State.MASTER, Event.SWITCH_OVER_WANTED): State.SWITCHING_OVER,
    (State.MASTER, Event.HAS_FAULT): State.SWITCHING_OVER,
    (State.MASTER, Event.GAVE_UP): State.JOINING,
    (State.FENCED, Event.HIGHER_EPOCH): State.JOINING,
    (State.FENCED, Event.LEASE_BACK): State.MASTER,
    (State.SWITCHING_OVER, Event.SWITCHED_OVER): State.JOINING,
    (State.SWITCHING_OVER, Event.HIGHER_EPOCH): State.JOINING,
    (State.SWITCHING_OVER, Event.LEASE_OVER): State.FENCED,
    (State.SWITCHING_OVER, Event.SWITCH_OVER_FAILED): State.MASTER,
    (State.SWITCHING_OVER, Event.GAVE_UP): State.JOINING,
    (State.HALTED, Event.OPERATOR_ORDER): State.JOINING,
    **{(state, Event.MISCONFIGURED): State.HALTED for state in State if state is not State.HALTED},
}


@attrs.frozen
class Change:
    """A change of state, for the log."""

    before: State
    event: Event
    after: State
    epoch: int


def next_state(state: State, event: Event) -> State:
    """Return the state after `event`; `state` itself if the event means nothing there."""
    return TRANSITIONS.get((state, event), state)


@attrs.frozen(kw_only=True)
class Duties:
    """The duties of a member as long as it is in a state; all False: it serves reads up to `confirmed`."""

    takes_stream: bool = False  # follows the master that `state` names, acknowledges what it has
    sends_stream: bool = False  # lets other members follow
    answers_waits: bool = False  # waiting sends may get SUCCESS; otherwise SERVICE_NOT_AVAILABLE
    takes_sends: bool = False  # stores new messages; otherwise SERVICE_NOT_AVAILABLE
    keeps_sends: bool = False  # instead: a master holds sends for a while, a slave passes them on to the master
    is_broker_0: bool = False  # registers brokerId 0, runs the delay and transaction services


DUTIES: dict[State, Duties] = {
    State.JOINING: Duties(),
    State.FOLLOWER: Duties(takes_stream=True, keeps_sends=True),
    State.IN_SYNC: Duties(takes_stream=True, keeps_sends=True),
    State.CANDIDATE: Duties(),
    State.PROMOTING: Duties(sends_stream=True, keeps_sends=True),
    State.MASTER: Duties(sends_stream=True, answers_waits=True, takes_sends=True, is_broker_0=True),
    State.FENCED: Duties(sends_stream=True),
    State.SWITCHING_OVER: Duties(sends_stream=True, answers_waits=True, keeps_sends=True, is_broker_0=True),
    State.HALTED: Duties(),
}
