"""What a group agrees on changes while it runs: members one at a time, the least number in sync, the flush."""

from __future__ import annotations

import attrs
import pytest
import trio

from rocketpy.failover.etcd import operator
from rocketpy.failover.etcd.operator import OperatorRefused
from rocketpy.failover.rules.records import SYNC_FLUSH, GroupConfig
from rocketpy.failover.rules.states import State
from tests.support.failover.live import LEASE_S, LiveGroup
from tests.support.failover.model_keys import ModelKeys
from tests.support.failover.world import config_of
from tests.unit.failover.etcd.test_coordinator import other, play


async def configure(group: LiveGroup, wanted: GroupConfig) -> None:
    async with group.keys() as keys:
        await operator.configure(keys, wanted)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_members_come_and_go_while_the_group_serves(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        before = keys.etcd.view().state
        await configure(group, config_of(list("abc"), mode))
        group.add("c", list("abc"))
        await group.start("c")
        await group.until_in_sync()
        now = keys.etcd.view().state
        assert before is not None and now is not None and now.epoch == before.epoch and set(now.in_sync) == set("abc")
        assert "haMembers is a,b here and a,b,c in the group: that of the group counts" in caplog.text
        gone = other(first)
        with pytest.raises(OperatorRefused, match=f"{gone} runs or is in sync"):
            await configure(group, config_of([first, "c"], mode))
        group.stop(gone)
        await group.until(
            lambda: {name for name, _ in group.coordinators[first].member.orders.counting} == {first, "c"}
        )
        await group.until(lambda: gone not in keys.etcd.view().members)
        await configure(group, config_of([first, "c"], mode))
        del group.nodes[gone]
        group.kill(first)
        await group.until(lambda: group.master() == "c")
        await group.start(first)
        await group.until_in_sync()

    play(story, mode=mode)


def test_a_member_that_is_not_on_the_list_halts() -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        group.add("c", list("abc"))
        await group.start("c")
        member = group.coordinators["c"].member
        await group.until(lambda: member.state is State.HALTED)
        assert group.master() == first
        group.stop("c")
        await group.until(lambda: group.nodes["c"].member is None)
        del group.nodes["c"]

    play(story)


def test_the_least_number_in_sync_is_that_of_the_group() -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        await configure(group, attrs.evolve(config_of(["a", "b"], "sync"), in_sync_min=2))
        group.kill(other(first))
        await group.until(lambda: not group.coordinators[first].member.orders.duties.takes_sends)
        await configure(group, attrs.evolve(config_of(["a", "b"], "sync"), in_sync_min=1))
        await group.until(lambda: group.coordinators[first].member.orders.duties.takes_sends)
        await group.start(other(first))
        await group.until_in_sync()

    play(story)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mode": "async"}, "brokerRole is ASYNC_MASTER here"),
        ({"file_size": 1 << 20}, "mappedFileSizeCommitLog is 1048576 here"),
        ({"members": ("a", "b", "c", "d")}, "these are several: c, d"),
        ({"members": ("a", "c")}, "these are several: b, c"),
        ({"flush": SYNC_FLUSH}, "flushDiskType is not SYNC_FLUSH on a, b"),
    ],
)
def test_a_change_on_which_promises_rest_is_refused(change: dict[str, object], reason: str) -> None:
    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        await group.until_master(set("ab"))
        wanted = attrs.evolve(config_of(["a", "b"], "sync"), **change)
        with pytest.raises(OperatorRefused, match=reason):
            await configure(group, wanted)
        await trio.sleep(LEASE_S)

    play(story)


def test_a_flush_is_promised_when_all_members_have_it() -> None:
    """A member that does not flush before it acknowledges halts then, instead of breaking the promise in silence.
    Fault: A slave with another flush mode or a master with another minInSyncReplicas silently weakened its group."""

    async def story(group: LiveGroup, keys: ModelKeys) -> None:
        first = await group.until_master(set("ab"))
        durable = attrs.evolve(config_of(["a", "b"], "sync"), flush=SYNC_FLUSH)
        for name in "ab":
            group.stop(name)
            await group.until(lambda name=name: group.nodes[name].member is None)  # type: ignore[misc]  # bound now
            group.nodes[name].settings = attrs.evolve(group.nodes[name].settings, config=durable)
            await group.start(name)
            await group.until_in_sync()
        await configure(group, durable)
        last = next(name for name in "ab" if name != group.master())
        group.stop(last)
        await group.until(lambda: group.nodes[last].member is None)
        group.nodes[last].settings = attrs.evolve(group.nodes[last].settings, config=config_of(["a", "b"], "sync"))
        await group.start(last)
        await group.until(lambda: group.coordinators[last].member.state is State.HALTED)
        assert first in "ab"

    play(story)
