"""A simulated broker: what is on its disk, what its process knows, and the Member that decides for it."""

from __future__ import annotations

from typing import Protocol

import attrs

from rocketpy.failover.rules import epochs as epoch_rules
from rocketpy.failover.rules.epochs import EpochList, Log
from rocketpy.failover.rules.fences import Lease
from rocketpy.failover.rules.in_sync import Ack
from rocketpy.failover.rules.member import Member
from rocketpy.failover.rules.records import MemberRecord
from rocketpy.failover.rules.requests import Report, RevokeLease, Transaction
from rocketpy.failover.rules.settings import Settings
from rocketpy.failover.rules.states import Change, Event, State

from .checker import Checker, Entry

BATCH = 8  # entries of a DATA frame
FETCH_AGAIN_S = 0.6


@attrs.frozen
class Fetch:
    """From a follower: what it has; it acknowledges that, once it has joined the epoch."""

    sender: str
    incarnation: str
    session: int
    epoch: int  # joined; -1: not yet, this is a HELLO
    epochs: EpochList
    end: int


@attrs.frozen
class Reply:
    """From a master: WELCOME, which says where to begin, or DATA."""

    kind: str
    session: int
    epoch: int
    log: Log
    start: int = 0
    entries: tuple[Entry, ...] = ()


@attrs.define
class Disk:
    """What outlives the process. `flushed` outlives the power, too."""

    incarnation: str
    log: list[Entry] = attrs.field(factory=list)
    epochs: EpochList = attrs.field(factory=EpochList)
    confirmed: int = 0
    flushed: int = 0


@attrs.define(eq=False)
class Serials:
    """Numbers, and names of incarnations, of which none is given twice."""

    _serial: int = attrs.field(init=False, default=0)

    def serial(self) -> int:
        self._serial += 1
        return self._serial

    def incarnation(self) -> str:
        return f"i{self.serial()}"


class Surroundings(Protocol):
    """What a node needs of the world that it is in."""

    checker: Checker

    @property
    def now(self) -> float: ...  # true time, seconds
    def incarnation(self) -> str: ...
    def serial(self) -> int: ...
    def tell(self, name: str, change: Change) -> None: ...
    def send(self, source: str, target: str, message: Fetch | Reply) -> None: ...
    def ask(self, node: Node, request: Transaction | RevokeLease) -> None: ...
    def acknowledged(self, node: Node) -> None: ...  # a follower has acknowledged something


@attrs.define(eq=False)
class Node:
    """One member. `rate` and `ahead_s` make its CLOCK_BOOTTIME out of true time."""

    name: str
    settings: Settings
    world: Surroundings
    disk: Disk
    rate: float = 1.0
    ahead_s: float = 0.0
    member: Member | None = None  # None: the process is down
    paused_until: float = 0.0
    life: int = 0  # number of starts: messages for an earlier process are lost
    acks: dict[str, Ack] = attrs.field(factory=dict)
    newest_epoch_seen: int = -1
    diverged: bool = False
    opened: int = -1
    session: int = 0
    joined: int = -1  # the epoch of the stream that is being taken
    target: str | None = None
    is_leaving: bool = False  # its coordinator hands the group on, and has had sends refused
    fetched_s: float = -1e9
    asked: bool = False  # a fetch has no answer yet
    waits: list[int] = attrs.field(factory=list)  # positions of sends without an answer
    fault: str = ""  # nothing can be stored
    hangs: bool = False  # nothing is stored, answered or reported as done
    is_open: bool = True  # False: there is no process tree, or it has not opened the store

    def clock(self) -> float:
        return self.world.now * self.rate + self.ahead_s

    # --- the process --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process, which knows nothing but the disk."""
        self.life += 1
        self.member = Member(self.settings)
        self.acks, self.waits = {}, []
        self.newest_epoch_seen = self.opened = self.joined = -1
        self.target, self.diverged, self.is_leaving = None, False, False
        self.disk.confirmed = min(self.disk.confirmed, len(self.disk.log))

    def stop(self) -> None:
        self.member, self.life = None, self.life + 1

    def lose_power(self, kept: int) -> None:
        """The log is cut to `kept` entries, at least those that were flushed; the store has lost bytes then."""
        self.stop()
        kept = max(kept, self.disk.flushed)
        del self.disk.log[kept:]
        self.disk.epochs = self.disk.epochs.until(kept)
        self.disk.confirmed = min(self.disk.confirmed, kept)
        self.disk.incarnation = self.world.incarnation()

    def lose_disk(self) -> None:
        self.stop()
        self.disk = Disk(self.world.incarnation())

    def record(self) -> MemberRecord:
        assert self.member is not None
        return MemberRecord(
            address=self.name,
            ha_address=self.name,
            broker_id=1,
            incarnation=self.disk.incarnation,
            epoch=self.disk.epochs.last,
            end=len(self.disk.log),
            lease=self.member.lease.number if self.member.lease else 0,
            fault=self.fault if self.member.fault.is_told else "",
        )

    def report(self) -> Report:
        assert self.member is not None
        return Report(
            incarnation=self.disk.incarnation,
            epochs=self.disk.epochs,
            end=len(self.disk.log),
            confirmed=self.disk.confirmed,
            done=self.is_open and not self.hangs and (self.joined < 0 or self.member.duties.takes_stream),
            opened=self.opened,
            newest_epoch_seen=self.newest_epoch_seen,
            diverged=self.diverged,
            acks=self.acks,
            wall_ms=int(self.world.now * 1000),
            fault=self.fault,
            is_open=self.is_open,
        )

    def lease_granted(self, number: int, sent_s: float, granted_s: float) -> None:
        assert self.member is not None
        self.member.lease = Lease(number, sent_s, granted_s)

    # --- deciding -----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let the member decide, then do what it says, and ask what it asks."""
        assert self.member is not None
        requests = self.member.step(self.clock(), self.report())
        self.apply()
        for request in requests:
            self.world.ask(self, request)

    def apply(self) -> None:
        """Do what the duties say, and answer what can be answered."""
        member, checker = self.member, self.world.checker
        assert member is not None
        if not member.duties.takes_stream:
            self.joined, self.target = -1, None
        if member.state is State.PROMOTING and self.opened != member.epoch and self.is_open:
            self.disk.epochs = self.disk.epochs.opened(member.epoch, len(self.disk.log))
            self.opened = member.epoch
        for change in member.changes_taken():
            self.world.tell(self.name, change)
            if change.before is State.PROMOTING and change.after is State.MASTER:
                checker.promoted(self.name, change.epoch, self.disk.log)
            if change.event is Event.DIVERGED:
                checker.diverged(self.name)
        self._answer()

    def _answer(self) -> None:
        member, checker = self.member, self.world.checker
        assert member is not None
        if member.duties.sends_stream:
            checker.shown(self.name, self.disk.log, self.disk.confirmed, member.confirmed)
            self.disk.confirmed = max(self.disk.confirmed, member.confirmed)
        if not member.duties.answers_waits or not self.is_open:
            self.waits.clear()  # answered 14, or the connection has ended
        while not self.hangs and self.waits and self.waits[0] < member.acknowledged:
            position = self.waits.pop(0)
            if member.copies > 1 or not checker.is_sync:  # otherwise 11
                checker.answered_0(member.epoch, position, self.disk.log[position])

    def send(self) -> None:
        """A client's message."""
        if self.member is not None and self.member.duties.takes_sends and not self.is_leaving and not self.fault:
            epoch = self.member.epoch
            self.world.checker.appended(epoch, f"{self.name}.{self.life}")
            self.waits.append(len(self.disk.log))
            self.disk.log.append((epoch, self.world.serial()))

    # --- the stream ---------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Ask the master for more, or knock again."""
        assert self.member is not None
        following = self.member.following
        if following is not None and following[0] != self.target:
            self.target, self.joined, self.session = following[0], -1, self.session + 1
        if self.target is None or not self.is_open:
            return
        if self.joined >= 0 and not self.asked:
            self.fetch()
        elif self.world.now - self.fetched_s >= FETCH_AGAIN_S:
            self.session, self.joined = self.session + 1, -1
            self.fetch()

    def fetch(self) -> None:
        assert self.target is not None
        disk, self.fetched_s, self.asked = self.disk, self.world.now, True
        asked = Fetch(self.name, disk.incarnation, self.session, self.joined, disk.epochs, len(disk.log))
        self.world.send(self.name, self.target, asked)

    def receive(self, message: Fetch | Reply) -> None:
        if self.member is None or not self.is_open:
            return
        if isinstance(message, Fetch):
            self._serve(message)
        elif message.session == self.session and self.target is not None and not self.fault:
            self._take(message)

    def _serve(self, asked: Fetch) -> None:
        member, disk = self.member, self.disk
        assert member is not None
        if not member.duties.sends_stream or self.opened != member.epoch:
            return
        epoch = member.epoch
        log = Log(epochs=disk.epochs, end=len(disk.log), confirmed=member.confirmed)
        if not epoch_rules.may_serve(epoch, asked.epochs, asked.epoch):
            self.newest_epoch_seen = max(self.newest_epoch_seen, asked.epoch, asked.epochs.last)
            return
        if asked.epoch != epoch:
            self.world.send(self.name, asked.sender, Reply("WELCOME", asked.session, epoch, log))
            return
        self.acks[asked.sender] = Ack(asked.incarnation, epoch, asked.end)
        self.world.acknowledged(self)
        entries = tuple(disk.log[asked.end : asked.end + BATCH])
        log = attrs.evolve(log, confirmed=member.confirmed)
        self.world.send(self.name, asked.sender, Reply("DATA", asked.session, epoch, log, asked.end, entries))

    def _take(self, reply: Reply) -> None:
        disk, world, self.asked = self.disk, self.world, False
        if not epoch_rules.may_take(reply.epoch, disk.epochs, self.newest_epoch_seen):
            return
        self.newest_epoch_seen = max(self.newest_epoch_seen, reply.epoch)
        if reply.kind == "WELCOME" and self.joined < 0:
            own = Log(epochs=disk.epochs, end=len(disk.log), confirmed=disk.confirmed)
            unclean = self.member.orders.unclean if self.member is not None else 0
            cut = epoch_rules.cut_for(own, reply.log, is_sync=world.checker.is_sync, unclean=unclean)
            if cut is None:
                self.diverged = True
                return
            del disk.log[cut:]
            disk.flushed, disk.confirmed = min(disk.flushed, cut), min(disk.confirmed, cut)
            disk.epochs = reply.log.epochs.until(cut)
            self.joined = reply.epoch
        elif reply.kind == "DATA" and reply.epoch == self.joined and reply.start == len(disk.log):
            disk.log.extend(reply.entries)
            disk.epochs = reply.log.epochs.until(len(disk.log))
            confirmed = max(disk.confirmed, min(reply.log.confirmed, len(disk.log)))
            world.checker.shown(self.name, disk.log, disk.confirmed, confirmed)
            disk.confirmed = confirmed
            if not reply.entries:
                return  # nothing new: the next turn asks again
        if self.joined >= 0:
            self.fetch()
