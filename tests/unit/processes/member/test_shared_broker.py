"""The broker as its coordinator sees it, on shared memory and files that the test plays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import pytest

from rocketpy.failover.member_block import NO_DEADLINE_NS, Following, MemberBlock, MemberOrders
from rocketpy.failover.rules.epochs import EpochList
from rocketpy.failover.rules.fences import FOR_EVER_S, NEVER_S
from rocketpy.failover.rules.records import MemberRecord
from rocketpy.failover.rules.requests import Orders, Report
from rocketpy.failover.rules.states import DUTIES, State
from rocketpy.processes.member import shared_broker
from rocketpy.processes.member.shared_broker import CoordinatorView, SharedBroker
from rocketpy.processes.member.tree import MemberMemory
from rocketpy.replication.epoch_file import EpochFile
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.files import StorePaths
from tests.support.tracing import traced
from tests.unit.replication.test_slave_table import connect

MASTER = MemberRecord(address="h:1", ha_address="h:2", broker_id=1, incarnation="i", epoch=1, end=0, lease=5)


@attrs.define(eq=False)
class Play:
    """A broker, and everything that it looks at."""

    broker: SharedBroker
    control: ControlBlock
    rung: list[int]

    @classmethod
    def make(cls, directory: Path) -> Play:
        paths = StorePaths.of(directory)
        control, rung = ControlBlock(paths.control, 1 << 20), [0]

        def ring() -> None:
            rung[0] += 1

        broker = SharedBroker(MemberMemory(), paths, ring)
        return cls(broker, control, rung)

    def open(self, *, is_master: bool, incarnation: str = "i", epoch: int = -1) -> None:
        """As a process tree does."""
        block, marks = self.broker.memory.block, self.broker.memory.marks
        block.begin_tree()
        block.set_own(("a", incarnation))
        marks.is_master, marks.is_open = is_master, True
        block.opened_epoch = epoch

    def apply(self, state: State, **fields: object) -> MemberOrders:
        self.broker.apply(Orders(state=state, duties=DUTIES[state], **fields))  # type: ignore[arg-type]  # by name
        found = self.broker.memory.block.orders()
        assert found is not None
        return found[0]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play.make(tmp_path)


def test_the_report_is_what_the_broker_has(play: Play, tmp_path: Path) -> None:
    EpochFile(tmp_path).write(EpochList().opened(3, 0))
    play.open(is_master=True, epoch=3)
    play.control.header.published_phy_offset, play.control.header.confirmed_phy_offset = 900, 700
    connect(play.broker.memory.slaves, 0, 1, "b", 800, epoch=3)
    play.broker.memory.block.see_epoch(4)
    report = play.broker.report()
    assert (report.incarnation, report.end, report.confirmed, report.opened) == ("i", 900, 700, 3)
    assert report.epochs == EpochList().opened(3, 0) and report.newest_epoch_seen == 4
    assert report.acks["b"].position == 800 and not report.damaged and not report.diverged


def test_epochs_are_read_again_when_they_have_changed(play: Play, tmp_path: Path) -> None:
    play.open(is_master=False)
    assert play.broker.report().epochs == EpochList()
    EpochFile(tmp_path).write(EpochList().opened(7, 0))
    play.broker.memory.block.count_epochs_change()
    assert play.broker.report().epochs.last == 7
    EpochFile(tmp_path).path.write_text("1\n2\n3-4\n")
    play.broker.memory.block.count_epochs_change()
    assert play.broker.report().damaged


def test_while_a_tree_opens_the_store_it_is_not_looked_at(play: Play, tmp_path: Path) -> None:
    """Recovery may cut the control block to nothing for a moment: to read it then would be the end of the process."""
    play.open(is_master=False)
    play.control.header.published_phy_offset = 900
    assert play.broker.report().end == 900
    play.broker.memory.marks.is_open = False
    (tmp_path / "control").write_bytes(b"")
    report = play.broker.report()
    assert report.end == 900 and report.incarnation == "i" and not report.done
    play.control.close()
    play.control = ControlBlock(tmp_path / "control", 1 << 20)
    play.control.header.published_phy_offset = 500
    play.open(is_master=False, incarnation="k")
    report = play.broker.report()
    assert (report.end, report.incarnation) == (500, "k")


@pytest.mark.parametrize("is_master", [False, True])
def test_done_is_what_the_tree_has_read_and_ended(play: Play, is_master: bool) -> None:
    play.apply(State.MASTER, epoch=3)
    play.apply(State.CANDIDATE)
    play.open(is_master=is_master)
    pointer, version = play.broker.memory.block.pointer, play.broker.memory.block.version
    assert not play.broker.report().done
    pointer.sends_refused = version
    assert play.broker.report().done is is_master
    pointer.stream_stopped = version
    assert play.broker.report().done
    play.apply(State.MASTER, epoch=4)
    play.apply(State.SWITCHING_OVER, epoch=4)
    assert not play.broker.report().done, "it was done for other orders"


def test_orders_reach_the_block(play: Play) -> None:
    counting = frozenset({("a", "i"), ("b", "k")})
    given = play.apply(State.MASTER, epoch=3, counting=counting, deadline_s=FOR_EVER_S)
    assert given == MemberOrders(
        is_master=True, epoch=3, takes_sends=True, answers_waits=True, sends_stream=True, is_broker_0=True,
        counting=counting,
    )  # fmt: skip
    assert play.broker.memory.block.deadline_ns == NO_DEADLINE_NS
    play.apply(State.MASTER, epoch=3, deadline_s=12.5)
    assert play.broker.memory.block.deadline_ns == 12_500_000_000
    play.apply(State.FENCED, epoch=3, deadline_s=NEVER_S)
    assert play.broker.memory.block.deadline_ns == 0


def test_answers_end_before_other_orders_hold(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    play.apply(State.MASTER, epoch=3, deadline_s=FOR_EVER_S)
    block, seen = play.broker.memory.block, []
    give = MemberBlock.give
    monkeypatch.setattr(
        MemberBlock, "give", lambda self, orders: (seen.append(block.deadline_ns), give(self, orders))[1]
    )
    play.apply(State.FENCED, epoch=3)
    play.apply(State.MASTER, epoch=3, deadline_s=9.0)
    assert seen == [0, 0]


def test_the_role_stays_until_it_is_known_who_is_master(play: Play) -> None:
    assert not play.apply(State.JOINING).is_master
    assert play.apply(State.PROMOTING, epoch=3).is_master
    for state in (State.JOINING, State.CANDIDATE, State.HALTED):
        given = play.apply(state)
        assert given.is_master and given.epoch == -1 and not (given.takes_sends or given.sends_stream)
    assert not play.apply(State.FOLLOWER, following=("b", 4)).is_master
    assert not play.apply(State.JOINING).is_master


def test_the_guardian_is_woken_for_another_role_only(play: Play) -> None:
    play.apply(State.JOINING)
    assert play.rung == [0]
    play.apply(State.PROMOTING, epoch=3)
    assert play.rung == [1]
    play.apply(State.MASTER, epoch=3, deadline_s=5.0)
    assert play.rung == [1]
    play.apply(State.PROMOTING, epoch=5)
    play.apply(State.FOLLOWER)
    assert play.rung == [3]


def test_a_master_is_followed_at_the_address_that_it_registered_last(play: Play) -> None:
    registered: dict[str, MemberRecord] = {}
    play.broker.view = lambda: CoordinatorView(registered=registered)
    assert play.apply(State.FOLLOWER, following=("b", 4)).following is None
    registered["b"] = MASTER
    expected = Following(member="b", epoch=4, ha_address="h:2", address="h:1")
    assert play.apply(State.FOLLOWER, following=("b", 4)).following == expected
    registered.clear()
    assert play.apply(State.FOLLOWER, following=("b", 4)).following == expected
    assert play.apply(State.JOINING).following is None


def test_a_successor_knows_whom_it_has_replaced(play: Play) -> None:
    """Until that is registered in etcd again, or follows the new epoch."""
    registered = {"b": MASTER}
    play.broker.view = lambda: CoordinatorView(registered=registered)
    play.open(is_master=True, epoch=4)
    play.apply(State.FOLLOWER, following=("b", 3))
    assert play.broker.replaced() is None
    play.apply(State.PROMOTING, epoch=4)
    assert play.broker.replaced() is None
    registered.clear()
    play.apply(State.MASTER, epoch=4)
    found = play.broker.replaced()
    assert found is not None and (found.member, found.ha_address) == ("b", "h:2")
    connect(play.broker.memory.slaves, 0, 1, "b", 800, epoch=4)
    assert play.broker.replaced() is None


def stepped(broker: SharedBroker, event: Callable[[], None], at: int) -> tuple[Report, bool]:
    """Make a report, and let `event` happen before its instruction number `at`. Returns: the report; did it happen?"""
    left = at

    def trace(frame: FrameType, kind: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != shared_broker.__file__:
            return None
        frame.f_trace_opcodes = True
        if kind == "opcode":
            left -= 1
            if left == 0:
                event()
        return trace

    with traced(trace):
        return broker.report(), left <= 0


@pytest.mark.parametrize("is_master", [False, True])
def test_an_end_that_is_done_has_everything(play: Play, is_master: bool) -> None:
    """The last message is stored, and then sends are refused, between any two instructions of a report.

    A switch-over hands over to a member that has everything below the `end` of a report that is done. With an older
    `end` an asynchronous group would lose what it has acknowledged last.
    Fault: A planned change of an asynchronous group could lose its last acknowledged messages.
    """
    pointer = play.broker.memory.block.pointer
    play.apply(State.SWITCHING_OVER if is_master else State.CANDIDATE, epoch=3)

    def stores_the_last_message() -> None:
        play.control.header.published_phy_offset = 900
        pointer.sends_refused = pointer.stream_stopped = play.broker.memory.block.version

    def report_at(number: int, event: Callable[[], None]) -> tuple[Report, bool]:
        play.open(is_master=is_master, epoch=3)
        play.control.header.published_phy_offset = 500
        assert (play.broker.report().end, play.broker.report().done) == (500, False)
        return stepped(play.broker, event, number)

    steps = 0
    for number in itertools.count(1):
        report, has_happened = report_at(number, stores_the_last_message)
        assert not report.done or report.end == 900, f"at instruction {number}"
        if not has_happened:
            break
        steps = number
    assert steps > 50, "the report was not stepped through"


def test_an_end_of_a_tree_that_is_gone_is_not_done(play: Play) -> None:
    """The tree ends between any two instructions of a report, after it has stored its last message."""
    pointer = play.broker.memory.block.pointer
    play.apply(State.SWITCHING_OVER, epoch=3)

    def ends() -> None:
        play.broker.memory.marks.is_master, play.broker.memory.marks.is_open = None, False

    for number in itertools.count(1):
        play.open(is_master=True, epoch=3)
        play.control.header.published_phy_offset = 500
        assert play.broker.report().end == 500
        play.control.header.published_phy_offset, pointer.sends_refused = 900, play.broker.memory.block.version
        report, has_happened = stepped(play.broker, ends, number)
        assert not report.done or report.end == 900, f"at instruction {number}"
        if not has_happened:
            break
    assert number > 50, "the report was not stepped through"
