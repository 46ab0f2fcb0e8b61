"""What an operator asks of a group: refused with a reason, or done by one transaction."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest
import trio
import trio.testing

from rocketpy.failover.etcd.operator import (
    OperatorRefused,
    check_replaceable,
    elect,
    is_in_sync,
    switch_master,
    unclean_election,
)
from rocketpy.failover.rules.epochs import EpochList
from rocketpy.failover.rules.member import Member
from rocketpy.failover.rules.records import GroupState, MasterRecord, MemberRecord
from rocketpy.failover.rules.requests import Report, View
from rocketpy.failover.rules.settings import Settings
from rocketpy.failover.rules.states import State
from tests.support.failover.live import LiveGroup, live_group
from tests.support.failover.model_keys import ModelKeys
from tests.support.failover.world import config_of

ELECTED = GroupState(epoch=6, master="c", in_sync={"c": "ic"})
CONFIG = config_of(["a", "b", "c"], "sync")


def record(name: str, *, end: int = 100, epoch: int = 4, lease: int = 1, store: str = "") -> MemberRecord:
    return MemberRecord(
        address=f"{name}:1",
        ha_address=f"{name}:2",
        broker_id=1,
        incarnation=store or f"i{name}",
        epoch=epoch,
        end=end,
        lease=lease,
    )


def view_of(in_sync: str, members: Mapping[str, MemberRecord], *, master: str | None = None) -> View:
    """Epoch 5 of master a. `in_sync`: names."""
    return View(
        revision=9,
        config=CONFIG,
        state=GroupState(epoch=5, master="a", in_sync={name: f"i{name}" for name in in_sync}),
        state_revision=7,
        master=MasterRecord(member=master, epoch=5, lease=1) if master else None,
        members=members,
    )


def of(*names: str) -> dict[str, MemberRecord]:
    return {name: record(name) for name in names}


# --- switchMaster ---------------------------------------------------------------------------------------------------


def test_a_master_hands_over_to_the_member_that_is_named() -> None:
    async def main() -> None:
        keys = ModelKeys()
        async with live_group(keys.opened, ["a", "b"]) as group:
            first = await group.until_master(set("ab"))
            (target,) = set("ab") - {first}
            async with keys.opened() as opened:
                before, after = await switch_master(opened, target, wall_ms=lambda: wall_ms(group, target))
            assert (before.master, after.master, after.epoch) == (first, target, before.epoch + 1)
            await group.until_master({target})

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def wall_ms(group: LiveGroup, name: str) -> int:
    return group.nodes[name].report().wall_ms


@pytest.mark.parametrize(
    ("view", "target", "reason"),
    [
        (View(revision=1), "b", "never had one"),
        (view_of("ab", of("a", "b")), "b", "no master now"),
        (view_of("ab", of("a", "b"), master="a"), "a", "a is master already, in epoch 5"),
        (view_of("ab", of("a", "b"), master="a"), "d", "no member d; there are: a, b, c"),
        (view_of("ab", of("a", "b"), master="a"), "c", "c is not registered"),
        (view_of("ab", of("a", "b", "c"), master="a"), "c", "c is not in sync.*in-sync members are a, b"),
        (view_of("a", {"a": record("a"), "b": record("b")}, master="a"), "b", "b is not in sync"),
    ],
)
def test_a_switch_over_that_cannot_be(view: View, target: str, reason: str) -> None:
    class Fixed(ModelKeys):
        async def read(self) -> View:
            return view

    async def main() -> None:
        fixed = Fixed()
        async with fixed.opened() as opened:
            with pytest.raises(OperatorRefused, match=reason):
                await switch_master(opened, target)
        assert "switch" not in fixed.etcd.keys

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize(
    ("after", "reason"), [(None, "a is still master after 8 s"), (ELECTED, "c was elected in epoch 6")]
)
def test_a_switch_over_that_does_not_come(after: GroupState | None, reason: str) -> None:
    class Silent(ModelKeys):
        async def read(self) -> View:
            view = view_of("abc", of("a", "b", "c"), master="a")
            if after is None or "switch" not in self.etcd.keys:
                return view
            return View(revision=10, config=CONFIG, state=after, state_revision=8)

    async def main() -> None:
        async with Silent().opened() as opened:
            with pytest.raises(OperatorRefused, match=reason):
                await switch_master(opened, "b")

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


# --- a store is replaced --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "member", "reason"),
    [
        (View(revision=1), "b", "no master now"),
        (view_of("ab", of("a", "b")), "b", "no master now"),
        (view_of("ab", of("a", "b"), master="a"), "a", "a is the master, in epoch 5"),
        (view_of("b", of("a", "b"), master="a"), "b", "b is the only one in sync"),
    ],
)
def test_a_store_that_the_group_needs_is_not_replaced(view: View, member: str, reason: str) -> None:
    with pytest.raises(OperatorRefused, match=reason):
        check_replaceable(view, member)


def test_another_member_may_go_on_with_an_empty_store() -> None:
    assert check_replaceable(view_of("ab", of("a"), master="a"), "b") == "a"
    assert check_replaceable(view_of("a", of("a", "b"), master="a"), "b") == "a"


# --- haElect --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "target", "reason"),
    [
        (view_of("ab", of("a", "b"), master="a"), "b", "a is master in epoch 5; use switchMaster"),
        (view_of("ab", of("b", "c")), "c", "b has everything that was acknowledged"),
        (view_of("ab", of("c")), "b", "b is not registered"),
        (view_of("ab", {"b": record("b", end=0), "c": record("c", end=700)}), "d", "no member d"),
        (view_of("a", {"b": record("b", end=0), "c": record("c", end=700)}), "b", "empty log, and c:1 has 700 bytes"),
    ],
)
def test_an_unclean_election_that_is_refused(view: View, target: str, reason: str) -> None:
    with pytest.raises(OperatorRefused, match=reason):
        unclean_election(view, target)


def test_a_member_with_another_store_is_not_in_sync() -> None:
    view = view_of("ab", {"a": record("a", epoch=-1, end=0, store="new")})
    assert not is_in_sync(view, "a") and not is_in_sync(view, "b")
    assert unclean_election(view, "a").state == GroupState(epoch=6, master="a", in_sync={"a": "new"}, unclean=6)


def test_the_member_that_is_elected_serves_though_it_had_halted() -> None:
    """It had diverged: the operator gives up what the other logs have."""

    async def main() -> None:
        keys = ModelKeys()
        lease, _ = await keys.grant(60)
        await keys.configure(CONFIG)
        await keys.register("c", record("c", epoch=8, lease=lease))
        async with keys.opened() as opened:
            state = await elect(opened, unclean_election(await opened.read(), "c"))
            assert (state.epoch, state.master, state.in_sync) == (9, "c", {"c": "ic"}), "above all epochs of logs"
            member = Member(Settings(member="c", config=CONFIG), state=State.HALTED)
            member.learn(await opened.read())
            member.step(1.0, Report(incarnation="ic", epochs=EpochList().opened(8, 0), end=100, confirmed=0, done=True))
            assert member.state is State.PROMOTING and member.epoch == 9
            with pytest.raises(OperatorRefused, match="the group has changed meanwhile"):
                await elect(opened, unclean_election(view_of("", of("c")), "c"))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_member_that_does_not_fit_the_group_stays_halted() -> None:
    own = attrs.evolve(CONFIG, file_size=1024)
    member = Member(Settings(member="c", config=own), state=State.HALTED)
    member.learn(View(revision=3, config=CONFIG, state=GroupState(epoch=9, master="c", in_sync={"c": "ic"})))
    member.step(1.0, Report(incarnation="ic", epochs=EpochList(), end=100, confirmed=0, done=True))
    assert member.state is State.HALTED
