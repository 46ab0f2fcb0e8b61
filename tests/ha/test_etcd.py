"""The client for etcd against a cluster of three members: what docs/adr/0161 says of it holds."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
import trio

from rocketpy.cli.replication_checks import etcd_findings
from rocketpy.config import load_broker_config
from rocketpy.failover.etcd.gateway import Access, EtcdError, EtcdUnavailable, Gateway
from rocketpy.failover.etcd.group_keys import EtcdReplaced, GroupKeys
from rocketpy.failover.etcd.upkeep import Upkeep, remedy
from rocketpy.failover.rules.records import (
    GroupConfig,
    GroupState,
    MasterRecord,
    MemberRecord,
    RecordInvalid,
    SwitchRequest,
)
from rocketpy.failover.rules.requests import Kind, Outcome, Transaction
from tests.support.etcd import EtcdCluster, etcd_cluster
from tests.unit.processes.member.test_member_from_config import MEMBER

Work = Callable[[GroupKeys], Awaitable[None]]
NAMES = itertools.count()
CONFIG = GroupConfig(format=1, mode="sync", file_size=1 << 30, members=("a", "b"))
PATIENCE_S = 30.0


def run(etcd: EtcdCluster, work: Work, timeout_s: float = 5.0) -> None:
    """Do `work` with a group of its own. Waits are longer than a broker's: the machine may be busy."""

    async def main() -> None:
        access = Access(addresses=etcd.addresses, timeout_s=timeout_s)
        with trio.fail_after(PATIENCE_S + 10 * timeout_s):
            async with Gateway(access) as gateway:
                await work(GroupKeys(gateway, "a cluster/1", f"broker {next(NAMES)}"))

    trio.run(main)


def member(lease: int) -> MemberRecord:
    return MemberRecord(address="h:1", ha_address="h:2", broker_id=1, incarnation="i", epoch=1, end=0, lease=lease)


def election(revision: int, name: str, epoch: int, lease: int) -> Transaction:
    return Transaction(
        number=1,
        kind=Kind.ELECT,
        state_revision=revision,
        state=GroupState(epoch=epoch, master=name, in_sync={name: "i"}),
        master=MasterRecord(member=name, epoch=epoch, lease=lease),
        master_absent=True,
    )


def test_a_group_from_its_beginning(etcd: EtcdCluster) -> None:
    async def work(keys: GroupKeys) -> None:
        view = await keys.read()
        assert (view.state, view.state_revision, view.master, view.members) == (None, 0, None, {})
        assert (await keys.configure(CONFIG)).config == CONFIG
        other = attrs.evolve(CONFIG, mode="async")
        assert (await keys.configure(other)).config == CONFIG  # the first one stays
        lease, granted_s = await keys.gateway.grant(60)
        assert granted_s == 60 and await keys.gateway.keep_alive(lease) == 60
        await keys.register("a", member(lease))
        await keys.request_switch(SwitchRequest(from_epoch=1, to="b", until_ms=5))
        outcome, view_after = await keys.decide(election(0, "a", 1, lease))
        assert outcome is Outcome.SUCCEEDED and view_after is not None
        assert view_after == await keys.read()
        assert view_after.members == {"a": member(lease)} and view_after.master is not None
        assert view_after.switch == SwitchRequest(from_epoch=1, to="b", until_ms=5)
        await keys.gateway.revoke(lease)
        view = await keys.read()
        assert view.master is None and view.members == {} and view.state == view_after.state
        assert view.state_revision == view_after.state_revision
        assert await keys.gateway.keep_alive(lease) == 0
        await keys.gateway.revoke(lease)  # again: it is gone, which was asked for

    run(etcd, work)


def test_of_rivals_one_wins(etcd: EtcdCluster) -> None:
    async def work(keys: GroupKeys) -> None:
        leases = [(await keys.gateway.grant(60))[0] for _ in range(5)]
        outcomes: list[Outcome] = []

        async def campaign(lease: int) -> None:
            outcomes.append((await keys.decide(election(0, f"m{lease}", 1, lease)))[0])

        async with trio.open_nursery() as nursery:
            for lease in leases:
                nursery.start_soon(campaign, lease)
        assert sorted(outcome.name for outcome in outcomes) == ["REFUSED"] * 4 + ["SUCCEEDED"]

    run(etcd, work)


@pytest.mark.parametrize("what", ["master is there", "state has changed", "lease has ended"])
def test_a_transaction_that_comes_too_late_writes_nothing(etcd: EtcdCluster, what: str) -> None:
    async def work(keys: GroupKeys) -> None:
        first, second = (await keys.gateway.grant(60))[0], (await keys.gateway.grant(60))[0]
        _, view = await keys.decide(election(0, "a", 1, first))
        assert view is not None
        revision = view.state_revision
        if what != "master is there":
            await keys.gateway.revoke(first)
        if what == "state has changed":
            touch = Transaction(number=2, kind=Kind.TOUCH, state_revision=revision, state=view.state)
            assert (await keys.decide(touch))[0] is Outcome.SUCCEEDED
        if what == "lease has ended":
            await keys.gateway.revoke(second)
        before = await keys.read()
        assert (await keys.decide(election(revision, "b", 2, second)))[0] is Outcome.REFUSED
        assert await keys.read() == attrs.evolve(before, revision=before.revision)

    run(etcd, work)


def test_a_watch_tells_of_changes_and_of_nothing_else(etcd: EtcdCluster) -> None:
    async def work(keys: GroupKeys) -> None:
        told = trio.Event()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keys.gateway.watch, keys.prefix, (await keys.read()).revision + 1, told.set)
            await keys.gateway.put(keys.prefix[:-1] + b"x/state", b"of another group")
            await keys.request_switch(SwitchRequest(from_epoch=1, to="b", until_ms=5))
            await told.wait()
            nursery.cancel_scope.cancel()

    run(etcd, work)


def test_a_watch_from_a_compacted_revision_ends(etcd: EtcdCluster) -> None:
    async def work(keys: GroupKeys) -> None:
        for until in range(3):
            await keys.request_switch(SwitchRequest(from_epoch=1, to="b", until_ms=until))
        revision = (await keys.read()).revision
        await keys.gateway._ask_all("kv/compaction", {"revision": str(revision)})
        await keys.gateway.watch(keys.prefix, revision - 2, lambda: None)  # comes back

    run(etcd, work)


def test_keys_that_are_not_what_they_should_be(etcd: EtcdCluster) -> None:
    async def work(keys: GroupKeys) -> None:
        for name in (b"members/x", b"switch", b"strange"):
            await keys.gateway.put(keys.prefix + name, b"\xff nonsense")
        view = await keys.read()
        assert view.members == {} and view.switch is None  # nothing rests on them
        await keys.gateway.put(keys.prefix + b"state", b"{}")
        with pytest.raises(RecordInvalid, match="GroupState in etcd: no field"):
            await keys.read()

    run(etcd, work)


def test_a_member_that_is_gone_or_hangs_does_not_matter_and_a_majority_does(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdCluster
) -> None:
    """A cluster of its own, because it is damaged. `etcd` says whether there is any."""
    with etcd_cluster(tmp_path_factory.mktemp("damaged")) as cluster:

        async def work(keys: GroupKeys) -> None:
            lease, _ = await keys.gateway.grant(600)
            cluster.kill(0)
            view = await until_answered(keys)
            with trio.fail_after(PATIENCE_S):
                while (outcome := (await keys.decide(election(view.state_revision, "a", 1, lease)))[0]) in (
                    Outcome.UNKNOWN,
                    Outcome.REFUSED,
                ) and (view := await until_answered(keys)).state is None:
                    pass
            assert outcome is Outcome.SUCCEEDED or (view.state is not None and view.state.master == "a")
            assert await keys.gateway.keep_alive(lease) > 0
            cluster.kill(1)
            with pytest.raises((EtcdUnavailable, EtcdError)):
                await keys.read()
            touch = Transaction(number=2, kind=Kind.TOUCH, state_revision=view.state_revision, state=view.state)
            assert (await keys.decide(touch))[0] is not Outcome.SUCCEEDED
            cluster.start(1)
            await until_answered(keys)

        run(cluster, work, timeout_s=2.0)


@pytest.mark.parametrize("is_ahead", [False, True], ids=["revision-behind", "revision-ahead"])
def test_an_etcd_restored_from_a_snapshot_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdCluster, is_ahead: bool
) -> None:
    """The restored cluster has the same number. `etcd` says whether there is any.
    Fault: An etcd restored from a snapshot was trusted, so a member without acknowledged messages could be elected."""
    directory = tmp_path_factory.mktemp("restored")
    with etcd_cluster(directory, members=1) as cluster:

        async def work(keys: GroupKeys) -> None:
            lease, _ = await keys.gateway.grant(600)
            _, first = await keys.decide(election(0, "a", 1, lease))
            assert first is not None and first.state is not None
            cluster.save(directory / "snapshot")
            alone = attrs.evolve(first.state, in_sync={"a": "i", "b": "j"})
            grow = Transaction(number=2, kind=Kind.CHANGE_SET, state_revision=first.state_revision, state=alone)
            outcome, second = await keys.decide(grow)
            assert outcome is Outcome.SUCCEEDED and second is not None
            cluster.restore(directory / "snapshot")
            if is_ahead:
                for _ in range(second.revision - first.revision + 1):
                    await keys.gateway.put(keys.prefix + b"other", b"")
            with pytest.raises(EtcdReplaced, match="restored from a snapshot"):
                await until_answered(keys)
            with pytest.raises(EtcdReplaced):
                keys.check()
            with pytest.raises(EtcdReplaced):
                await keys.decide(grow)

        run(cluster, work)


async def until_answered(keys: GroupKeys):  # type: ignore[no-untyped-def]  # a View
    """Read until etcd has a leader again."""
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                return await keys.read()
            except (EtcdUnavailable, EtcdError):
                await trio.sleep(0.05)


def test_an_etcd_that_is_full_says_so(tmp_path: Path) -> None:
    """It renews leases and answers reads, and takes no writes. An operator compacts, defragments and disarms.
    Fault: A full etcd silently ended elections."""
    with etcd_cluster(tmp_path, 1, options={"quota-backend-bytes": "200000"}) as cluster:

        async def fill(keys: GroupKeys) -> None:
            upkeep = Upkeep(keys.gateway, 10.0)
            await upkeep.look(0.0, is_master=True)
            assert upkeep.status.alarms == "" and upkeep.status.db_bytes > 0
            with pytest.raises(EtcdUnavailable, match="space"):
                for _ in range(200):
                    await keys.gateway.put(keys.prefix + b"filler", b"x" * 3000)
            await upkeep.look(5.0, is_master=True)
            assert upkeep.status.alarms == "NOSPACE" and "alarm disarm" in remedy(upkeep.status)
            await upkeep.look(16.0, is_master=True)  # removes the history

        async def go_on(keys: GroupKeys) -> None:
            status = await keys.gateway.status()
            assert status.alarms == "" and status.db_bytes < 100_000
            await keys.gateway.put(keys.prefix + b"filler", b"x")

        settings = load_broker_config(None, MEMBER | {"haEtcdAddresses": cluster.addresses[0]}, {"HOME": "/nowhere"})
        run(cluster, fill)
        assert [finding.found.split(";")[0] for finding in etcd_findings(settings) if finding.is_fatal] == ["NOSPACE"]
        cluster.control("defrag")
        cluster.control("alarm", "disarm")
        run(cluster, go_on)
        assert not [finding for finding in etcd_findings(settings) if finding.is_fatal]


def test_what_a_group_agrees_on_is_replaced_if_nothing_has_changed(etcd: EtcdCluster) -> None:
    async def work(keys: GroupKeys) -> None:
        await keys.configure(CONFIG)
        lease, _ = await keys.gateway.grant(60)
        await keys.register("b", member(lease))
        view = await keys.read()
        alone = attrs.evolve(CONFIG, members=("a",))
        assert not await keys.reconfigure(alone, view), "b is registered"
        await keys.gateway.revoke(lease)
        assert await keys.reconfigure(alone, view)
        assert (await keys.read()).config == alone
        assert not await keys.reconfigure(CONFIG, view), "it was changed since"
        state = election(0, "a", 1, (await keys.gateway.grant(60))[0])
        view = await keys.read()
        assert (await keys.decide(state))[0] is Outcome.SUCCEEDED
        assert not await keys.reconfigure(CONFIG, view), "the state was changed since"

    run(etcd, work)
