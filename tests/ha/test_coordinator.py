"""Coordinators with a real etcd: masters are replaced, and nothing acknowledged is missing. Stores are simulated."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import trio

from rocketpy.failover.etcd.gateway import Access, Gateway
from rocketpy.failover.etcd.group_keys import GroupKeys
from rocketpy.failover.rules.records import SwitchRequest
from tests.support.etcd import EtcdCluster, etcd_cluster
from tests.support.failover.live import LEASE_S, LiveGroup, live_group

NAMES = itertools.count()
Keys = Callable[[], AbstractAsyncContextManager[GroupKeys]]


def keys_of(addresses: tuple[str, ...], broker_name: str) -> Keys:
    @asynccontextmanager
    async def keys() -> AsyncIterator[GroupKeys]:
        async with Gateway(Access(addresses=addresses, timeout_s=2.0)) as gateway:
            yield GroupKeys(gateway, "live", broker_name)

    return keys


def play(addresses: tuple[str, ...], members: list[str], story: Callable[[LiveGroup], Awaitable[None]]) -> None:
    async def main() -> None:
        async with live_group(keys_of(addresses, f"group {next(NAMES)}"), members) as group:
            await story(group)

    trio.run(main)


def test_a_killed_master_is_replaced_and_comes_back_as_follower(etcd: EtcdCluster) -> None:
    async def story(group: LiveGroup) -> None:
        first = await group.until_master(set("ab"))
        group.kill(first)
        second = await replaced(group, first)
        await group.start(first)
        await group.until_in_sync()
        group.kill(second)
        assert await replaced(group, second) == first

    play(etcd.addresses, ["a", "b"], story)


async def replaced(group: LiveGroup, old: str) -> str:
    """The next master; with one member left, sends are stored and answered 11, so nothing is acknowledged."""
    await group.until(lambda: group.master() not in (None, old))
    return group.master() or old


def test_a_master_that_stops_hands_the_group_on(etcd: EtcdCluster) -> None:
    async def story(group: LiveGroup) -> None:
        first = await group.until_master(set("abc"))
        group.stop(first)
        await group.until_master(set("abc") - {first})

    play(etcd.addresses, ["a", "b", "c"], story)


def test_a_switch_over(etcd: EtcdCluster) -> None:
    async def story(group: LiveGroup) -> None:
        first = await group.until_master(set("ab"))
        (target,) = set("ab") - {first}
        view = await group.view()
        assert view.state is not None
        async with group.keys() as keys:
            await keys.request_switch(SwitchRequest(from_epoch=view.state.epoch, to=target, until_ms=1 << 60))
        await group.until_master({target})
        after = (await group.view()).state
        assert after is not None and after.epoch == view.state.epoch + 1, "one epoch, no election"
        assert set(after.in_sync) == {"a", "b"}

    play(etcd.addresses, ["a", "b"], story)


def test_a_revoked_lease_costs_no_epoch_or_a_clean_failover(etcd: EtcdCluster) -> None:
    async def story(group: LiveGroup) -> None:
        await group.until_master(set("ab"))
        view = await group.view()
        assert view.master is not None
        async with group.keys() as keys:
            await keys.gateway.revoke(view.master.lease)
        await group.until_in_sync()
        await group.until_master(set("ab"))

    play(etcd.addresses, ["a", "b"], story)


def test_a_master_cut_from_its_followers_serves_alone_until_it_is_healed(etcd: EtcdCluster) -> None:
    async def story(group: LiveGroup) -> None:
        first = await group.until_master(set("ab"))
        group.cut.add(first)
        await group.until(lambda: group.coordinators[first].member.copies == 1)
        assert group.master() == first
        group.cut.clear()
        await group.until_in_sync()
        assert await group.until_master(set("ab")) == first

    play(etcd.addresses, ["a", "b"], story)


def test_a_pair_goes_on_without_etcd(tmp_path: Path, etcd: EtcdCluster) -> None:
    """haServeWithoutLease: a cluster of its own is killed; `etcd` says whether there is any."""
    with etcd_cluster(tmp_path) as cluster:

        async def story(group: LiveGroup) -> None:
            first = await group.until_master(set("ab"))
            for member in range(3):
                cluster.kill(member)
            await trio.sleep(2 * LEASE_S)
            assert await group.until_master(set("ab")) == first
            for member in range(3):
                cluster.start(member)
            await group.until_in_sync()

        play(cluster.addresses, ["a", "b"], story)
