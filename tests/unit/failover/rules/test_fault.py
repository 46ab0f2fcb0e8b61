"""A master that cannot serve gives way to one that can: in simulated time, with coordinators on a model of etcd."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio

from rocketpy.failover.etcd.operator import switch_master
from rocketpy.failover.rules.conditions import PAUSE_S, RECOVERED_S, Fault
from rocketpy.failover.rules.records import MemberRecord, SwitchRequest, from_json, to_json
from rocketpy.failover.rules.requests import Orders, Report
from rocketpy.failover.rules.settings import Settings
from rocketpy.failover.rules.states import State
from tests.support.failover.live import LiveBroker, LiveGroup
from tests.support.failover.model_keys import ModelKeys
from tests.support.failover.node import Node
from tests.unit.failover.etcd.test_coordinator import other, play

FAULT_S = attrs.fields(Settings).fault_s.default
BAR_S = 15.0  # until another member serves


def break_store(node: Node, *, is_open: bool) -> None:
    node.fault, node.is_open = "its disk is full", is_open


def repair(node: Node) -> None:
    node.fault, node.is_open = "", True


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("is_open", [True, False])
def test_another_member_serves_soon(mode: str, is_open: bool, caplog: pytest.LogCaptureFixture) -> None:
    """An open store hands over everything. One that is not open gives the lease up; what only an asynchronous master
    has is lost then, as with its machine.
    Fault: A master with a full or failing disk kept its lease, and the group refused sends.
    Fault: A master without a process tree emptied its in-sync set, so nobody could be elected."""

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        await group.until_in_sync()
        node, broken_s = group.nodes[first], trio.current_time()
        break_store(node, is_open=is_open)
        await group.until(lambda: group.master() == other(first))
        assert FAULT_S <= trio.current_time() - broken_s < FAULT_S + 2 < BAR_S
        assert f"{first} cannot serve as master: its disk is full" in caplog.text
        assert keys.etcd.view().members[first].fault == "its disk is full"
        repair(node)
        await group.until_in_sync()
        await group.until(lambda: keys.etcd.view().members[first].fault == "")

    play(story, mode=mode)


class SlowBroker(LiveBroker):
    """Has a fault for some seconds after each change of its role: its store is opened, its workers begin."""

    slow_s = 2.5
    changed_s = -100.0
    was_master = False

    def report(self) -> Report:
        member, now_s = self.node.member, trio.current_time()
        is_master = member is not None and member.state in (State.PROMOTING, State.MASTER, State.SWITCHING_OVER)
        if is_master != self.was_master:
            self.was_master, self.changed_s = is_master, now_s
        self.node.fault = "its workers are being started" if now_s < self.changed_s + self.slow_s else ""
        return super().report()


@pytest.mark.parametrize("slow_s", [2.5, 4.0])
def test_a_fault_that_is_over_moves_no_master(slow_s: float) -> None:
    """Changes of the role that are slow, but end, do not send the mastership round and round.
    Fault: A role change of more than two seconds counted as a fault, and the mastership went round for ever."""

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("abc"))
        await group.until_in_sync()
        second = min(set("abc") - {first})
        for name in "abc":
            slow = SlowBroker(group.nodes[name])
            slow.slow_s, slow.was_master = slow_s, name == first
            group.coordinators[name]._broker = slow
        state = keys.etcd.view().state
        assert state is not None
        async with group.keys() as opened:
            await opened.request_switch(SwitchRequest(from_epoch=state.epoch, to=second, until_ms=1 << 60))
        await group.until(lambda: group.master() == second)
        changed = keys.etcd.view().state
        await trio.sleep(30)
        later = keys.etcd.view().state
        assert changed is not None and later is not None and later.epoch == changed.epoch

    play(story, "abc")


def test_role_changes_in_quick_succession_are_no_fault() -> None:
    """Each takes some tenths of a second, and lasts less than the time after which a fault is over.
    Fault: Planned changes within 3 s added up to one fault, and a new master gave up its lease."""
    times, slow_s = 30, 0.5

    async def one_more(group: LiveGroup, keys: ModelKeys, epoch: int) -> None:
        state, second = keys.etcd.view().state, other(group.master() or "")
        assert state is not None and state.epoch == epoch, "nobody else was elected"
        async with group.keys() as opened:
            await opened.request_switch(SwitchRequest(from_epoch=epoch, to=second, until_ms=1 << 60))
        await group.until(lambda: group.master() == second)
        await group.until_in_sync()
        assert {record.fault for record in keys.etcd.view().members.values()} == {""}

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        await group.until_in_sync()
        for name in "ab":
            slow = SlowBroker(group.nodes[name])
            slow.slow_s, slow.was_master = slow_s, name == first
            group.coordinators[name]._broker = slow
        for epoch in range(1, 1 + times):
            await one_more(group, keys, epoch)

    play(story)


def test_a_switch_over_that_cannot_be_done_is_given_up() -> None:
    """The send worker hangs: it neither stores nor says that it has stopped."""

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        await group.until_in_sync()
        node, broken_s = group.nodes[first], trio.current_time()
        node.fault, node.hangs = "worker send hangs", True
        await group.until(lambda: group.master() == other(first))
        assert trio.current_time() - broken_s < FAULT_S + 5 < BAR_S
        repair(node)
        node.hangs = False
        await group.until_in_sync()

    play(story)


class NeverOpens(LiveBroker):
    """Each process tree that is to open the store as master's ends before it has."""

    def look(self) -> None:
        member = self.node.member
        is_promoting = member is not None and member.state is State.PROMOTING
        self.node.is_open, self.node.fault = not is_promoting, "its store is not open" if is_promoting else ""

    def report(self) -> Report:
        self.look()
        return super().report()

    def apply(self, orders: Orders) -> None:
        self.look()
        super().apply(orders)


def test_a_member_that_is_elected_and_never_opens_its_store_gives_way() -> None:
    async def story(group: LiveGroup, _keys: ModelKeys) -> None:
        first = await group.until_master(set("abc"))
        await group.until_in_sync()
        second, third = sorted(set("abc") - {first})
        group.coordinators[second]._broker = NeverOpens(group.nodes[second])
        async with group.keys() as opened:
            view = await opened.read()
            assert view.state is not None
            await opened.request_switch(SwitchRequest(from_epoch=view.state.epoch, to=second, until_ms=1 << 60))
        await group.until(lambda: group.coordinators[second].member.state is State.PROMOTING)
        begun_s = trio.current_time()
        await group.until_master({first, third})
        assert trio.current_time() - begun_s < FAULT_S + 2 < BAR_S
        group.coordinators[second]._broker = LiveBroker(group.nodes[second])
        repair(group.nodes[second])
        await group.until_in_sync()

    play(story, "abc")


def stays_master(change: Callable[[LiveGroup, str], None], members: str = "ab", mode: str = "sync") -> None:
    async def story(group: LiveGroup, _keys: ModelKeys) -> None:
        first = await group.until_master(set(members))
        await group.until_in_sync()
        change(group, first)
        epoch = group.nodes[first].disk.epochs.last
        for _ in range(40):
            await trio.sleep(FAULT_S / 10)
            member = group.nodes[first].member
            assert member is not None and member.state is State.MASTER and member.epoch == epoch
        for node in group.nodes.values():
            repair(node)
        await group.until_in_sync()

    play(story, members, mode)


def test_a_master_stays_if_the_other_one_is_no_better() -> None:
    def both(group: LiveGroup, first: str) -> None:
        for node in group.nodes.values():
            node.fault = "its disk is full"

    stays_master(both)


def test_a_master_stays_if_it_is_alone() -> None:
    def alone(group: LiveGroup, first: str) -> None:
        break_store(group.nodes[first], is_open=False)

    stays_master(alone, "a", "async")


def test_an_operator_replaces_a_master_without_a_process_tree() -> None:
    """With haUnhealthySeconds=0, which gives no mastership up by itself."""

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        await group.until_in_sync()
        member = group.coordinators[first].member
        member.settings = attrs.evolve(member.settings, fault_s=0.0)
        break_store(group.nodes[first], is_open=False)
        await trio.sleep(4 * FAULT_S)
        assert member.state is State.MASTER
        async with group.keys() as opened:
            now_ms = int(trio.current_time() * 1000)
            before, after = await switch_master(opened, other(first), wall_ms=lambda: now_ms)
        assert (before.master, after.master) == (first, other(first))
        repair(group.nodes[first])
        await group.until_in_sync()

    play(story)


# --- how long a fault lasts -------------------------------------------------------------------------------------------


def looked(*parts: tuple[float, str]) -> Fault:
    """A fault that is looked at five times a second: for so many seconds it is this one."""
    fault, now_s = Fault(), 100.0
    for seconds, text in parts:
        for _ in range(round(seconds * 5)):
            now_s += 0.2
            fault.update(now_s, text)
    return fault


def test_a_fault_lasts_from_when_it_is_seen_first() -> None:
    assert looked((3, "")).lasts_s == 0
    assert looked((3, ""), (4, "full")).lasts_s == pytest.approx(3.8)
    assert not looked((1, "full")).is_told and looked((3, "full")).is_told


def test_a_crash_in_a_loop_is_one_fault() -> None:
    loop = [(1.0, "ends"), (1.0, "")] * 4
    assert looked(*loop).lasts_s > 6
    assert looked(*loop, (RECOVERED_S, "")).lasts_s == 0
    assert looked((4, "ends"), (RECOVERED_S + 0.2, ""), (0.4, "ends")).lasts_s < 1


def test_a_pause_of_this_process_is_no_fault_that_lasts() -> None:
    fault = looked((3, "hangs"))
    fault.update(104 + 60 + PAUSE_S, "hangs")
    assert fault.lasts_s == 0


def test_a_record_of_an_earlier_version_has_no_fault() -> None:
    record = MemberRecord(
        address="h:1", ha_address="h:2", broker_id=1, incarnation="i", epoch=1, end=0, lease=5, fault="x"
    )
    assert from_json(MemberRecord, to_json(record)) == record
    assert from_json(MemberRecord, to_json(record).replace(b'"fault":"x",', b"")).fault == ""
