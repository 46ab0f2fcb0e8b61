"""The input of a member (View, Report), its requests of etcd (Transaction, RevokeLease), its orders for its broker."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from .epochs import EpochList
from .fences import NEVER_S
from .in_sync import Ack, StoreId
from .records import GroupConfig, GroupState, MasterRecord, MemberRecord, SwitchRequest
from .states import Duties, State


@attrs.frozen(kw_only=True)
class View:
    """One consistent read of a group's keys. `revision` is etcd's for the whole read; an older view is not used."""

    revision: int
    config: GroupConfig | None = None
    config_revision: int = 0  # of the key `config`; 0: there is none
    state: GroupState | None = None
    state_revision: int = 0  # of the key `state`; 0: there is none
    master: MasterRecord | None = None
    members: Mapping[str, MemberRecord] = attrs.field(factory=dict)
    switch: SwitchRequest | None = None


@attrs.frozen(kw_only=True)
class Report:
    """This member's store and replication at one moment.

    `done`: the duties of the present state are carried out: a stream that should stop has stopped and everything
    taken of it is in the log; or sends that should stop are answered SERVICE_NOT_AVAILABLE, and those before them
    are in the log.

    `fault`: the reason why this broker cannot serve as master, for operators; empty: it can.
    """

    incarnation: str
    epochs: EpochList
    end: int  # published, bytes
    confirmed: int
    done: bool
    opened: int = -1  # the epoch that is on the disk, with the next offsets of all queues known
    newest_epoch_seen: int = -1  # the newest epoch that a peer has named
    diverged: bool = False
    damaged: bool = False  # the epoch file
    acks: Mapping[str, Ack] = attrs.field(factory=dict)
    wall_ms: int = 0
    fault: str = ""
    is_open: bool = True  # its store is: the duties can be carried out


class Kind(enum.Enum):
    """The decision that a transaction makes."""

    BOOTSTRAP = "bootstrap the group"
    ELECT = "elect"
    CHANGE_SET = "change the in-sync set"
    SWITCH_OVER = "switch over"
    TOUCH = "touch"  # writes `state` as it is, so that every other transaction on its revision fails
    PUT_BACK = "put the key of the master back"


@attrs.frozen(kw_only=True)
class Transaction:
    """If `state` has `state_revision` (and `master` is absent, if that is asked), write both; all or nothing.

    `master` is written with the lease that it names. `number` tells answers apart.
    """

    number: int
    kind: Kind
    state_revision: int
    state: GroupState | None = None  # None: stays
    master: MasterRecord | None = None  # None: stays
    master_absent: bool = False


@attrs.frozen
class RevokeLease:
    """End a lease now, and with it the keys that it holds. No transaction that names it can succeed afterwards."""

    lease: int


class Outcome(enum.Enum):
    """The answer to a transaction. UNKNOWN: none came; it may have succeeded, and may still."""

    SUCCEEDED = "succeeded"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@attrs.define
class Decisions:
    """The transactions of one member: at most one waits for its answer, and those without an answer are kept.

    A transaction without an answer is certainly lost when `state` has another revision, or its lease is gone.
    """

    waiting: Transaction | None = None
    unresolved: list[Transaction] = attrs.field(factory=list)
    _seen: int = 0  # the newest revision of `state` that is known
    _next: int = 1

    def ask(
        self,
        kind: Kind,
        view: View,
        *,
        state: GroupState | None = None,
        master: MasterRecord | None = None,
        master_absent: bool = False,
    ) -> list[Transaction | RevokeLease]:
        """Make a transaction on the revision of this view. It waits for its answer from now on."""
        return self.ask_again(
            Transaction(
                number=0,
                kind=kind,
                state_revision=view.state_revision,
                state=state,
                master=master,
                master_absent=master_absent,
            )
        )

    def ask_again(self, asked: Transaction) -> list[Transaction | RevokeLease]:
        """Make a transaction once more, with a number of its own."""
        self._next += 1
        self.waiting = attrs.evolve(asked, number=self._next - 1)
        return [self.waiting]

    def answered(self, number: int, outcome: Outcome) -> None:
        """Take the answer to the transaction that waits; another number is an answer that came too late."""
        if self.waiting is None or self.waiting.number != number:
            return
        asked, self.waiting = self.waiting, None
        if outcome is not Outcome.UNKNOWN or asked.kind is Kind.PUT_BACK or asked.state_revision < self._seen:
            return
        if asked not in (attrs.evolve(one, number=number) for one in self.unresolved):  # a repetition adds nothing
            self.unresolved.append(asked)

    def seen(self, state_revision: int) -> None:
        """Note the revision of `state`: transactions on an older one have failed, or have changed it themselves."""
        self._seen = state_revision
        self.unresolved = [one for one in self.unresolved if one.state_revision >= state_revision]

    def lease_gone(self, lease: int) -> None:
        """Forget transactions that name a lease, which has ended: they fail from now on."""
        self.unresolved = [one for one in self.unresolved if one.master is None or one.master.lease != lease]

    def is_asked(self, kind: Kind) -> bool:
        """Return True if a transaction of this kind may still succeed."""
        return any(one.kind is kind for one in (*self.unresolved, self.waiting) if one is not None)

    @property
    def may_come(self) -> list[GroupState]:
        """States that were asked for and may be written, or have been."""
        asked = [*self.unresolved, *([self.waiting] if self.waiting else [])]
        return [one.state for one in asked if one.state is not None]


@attrs.frozen(kw_only=True)
class Orders:
    """The orders to the broker. They are carried out at once, before anything else is asked of etcd, and are complete
    each time, so that repeating them changes nothing.

    epoch: the one to serve, in PROMOTING, MASTER, FENCED and SWITCHING_OVER; otherwise -1. In PROMOTING the broker
        opens it: drains its ring, writes (epoch, end of its log) to the epoch file, syncs it, works out the next
        offsets of all queues, and then reports it as `opened`.
    following: the member whose stream to take, and the epoch that etcd names; None: take no stream.
    counting: members whose acknowledgements under `epoch` a position needs before it is confirmed, this one included.
        If it is the only one, a synchronous master answers SLAVE_NOT_AVAILABLE.
    is_next_master: an operator has asked this slave to take over, a moment ago.
    unclean: the last epoch of an unclean election; 0: there was none. Logs of older epochs may be cut for it.
    deadline_s: CLOCK_BOOTTIME until which sends may be answered SUCCESS; compared right before answers leave.
    """

    state: State
    duties: Duties
    epoch: int = -1
    following: tuple[str, int] | None = None
    counting: frozenset[StoreId] = frozenset()
    is_next_master: bool = False
    deadline_s: float = NEVER_S
    unclean: int = 0
