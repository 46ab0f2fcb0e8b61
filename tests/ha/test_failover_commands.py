"""Commands for failover, run as an operator runs them, against a real etcd. Stores of members are simulated."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from rocketpy.failover.etcd.gateway import Access, Gateway
from rocketpy.failover.etcd.group_keys import GroupKeys
from tests.support.etcd import EtcdCluster
from tests.support.failover.live import LiveGroup, live_group

NAMES = itertools.count()
Admin = Callable[..., Awaitable[subprocess.CompletedProcess[bytes]]]


def play(etcd: EtcdCluster, directory: Path, story: Callable[[LiveGroup, Admin], Awaitable[None]]) -> None:
    """`story` gets a pair with a master and both in sync, and a way to run a command with the file of a broker."""
    name, file = f"group-{next(NAMES)}", directory / "broker.conf"
    settings = {
        "brokerName": name,
        "brokerRole": "SYNC_MASTER",
        "brokerId": "1",
        "haMode": "automatic",
        "haMember": "a",
        "haMembers": "a,b",
        "haEtcdAddresses": ",".join(etcd.addresses),
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    @asynccontextmanager
    async def keys() -> AsyncIterator[GroupKeys]:
        async with Gateway(Access(addresses=etcd.addresses, timeout_s=2.0)) as gateway:
            yield GroupKeys(gateway, "DefaultCluster", name)

    async def admin(command: str, *options: str) -> subprocess.CompletedProcess[bytes]:
        words = [sys.executable, "-m", "rocketpy", "admin", command, "-f", str(file), *options]
        return await trio.run_process(words, capture_stdout=True, capture_stderr=True, check=False, stdin=b"")

    async def main() -> None:
        async with live_group(keys, ["a", "b"]) as group:
            await story(group, admin)

    trio.run(main)


def test_a_switch_over_by_command(tmp_path: Path, etcd: EtcdCluster) -> None:
    async def story(group: LiveGroup, admin: Admin) -> None:
        first = await group.until_master(set("ab"))
        (target,) = set("ab") - {first}
        done = await admin("switchMaster", "-t", target, "--output", "json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["master"], told["master_before"], told["epoch"]) == (target, first, told["epoch_before"] + 1)
        await group.until_master({target})
        again = await admin("switchMaster", "-t", target)
        assert again.returncode == 1 and f"{target} is master already".encode() in again.stderr

    play(etcd, tmp_path, story)


def test_the_status_of_a_group(tmp_path: Path, etcd: EtcdCluster) -> None:
    async def story(group: LiveGroup, admin: Admin) -> None:
        first = await group.until_master(set("ab"))
        done = await admin("haStatus", "--output", "json")
        rows = {row["member"]: row for row in map(json.loads, done.stdout.splitlines())}
        assert done.returncode == 0 and rows.keys() == set("ab"), done.stderr
        assert {name: row["role"] for name, row in rows.items()}[first] == "MASTER"
        assert {row["in_sync"] for row in rows.values()} == {"yes"}
        assert all(0 < row["lease_s"] <= 3 for row in rows.values())
        (other,) = set("ab") - {first}
        group.stop(other)
        await group.until(lambda: group.coordinators[first].member.copies == 1)
        rows = {
            row["member"]: row
            for row in map(json.loads, (await admin("haStatus", "--output", "json")).stdout.splitlines())
        }
        assert (rows[other]["role"], rows[other]["in_sync"]) == ("GONE", "no")
        await group.start(other)
        await group.until_in_sync()

    play(etcd, tmp_path, story)


def test_the_status_names_a_broker_outside_of_the_group_with_a_longer_log(tmp_path: Path, etcd: EtcdCluster) -> None:
    async def story(group: LiveGroup, admin: Admin) -> None:
        first = await group.until_master(set("ab"))
        async with group.keys() as keys:
            lease, _ = await keys.gateway.grant(60)
            record = attrs.evolve((await keys.read()).members[first], lease=lease)
            await keys.register("longer", attrs.evolve(record, end=1 << 40))
            await keys.register("shorter", attrs.evolve(record, end=0))
            done = await admin("haStatus")
            await keys.gateway.revoke(lease)
        lines = done.stderr.decode().splitlines()
        (longer,) = [line for line in lines if line.startswith("longer is not in the group (haMembers)")]
        assert longer.endswith("bytes longer than the longest of the group: keep its store")
        assert "shorter is not in the group (haMembers)" in lines

    play(etcd, tmp_path, story)


def test_an_election_by_hand_has_to_be_meant(tmp_path: Path, etcd: EtcdCluster) -> None:
    async def story(group: LiveGroup, admin: Admin) -> None:
        first = await group.until_master(set("ab"))
        meant = await admin("haElect", "-t", first)
        assert meant.returncode == 2 and b"give --unclean" in meant.stderr
        refused = await admin("haElect", "-t", first, "--unclean", "--yes")
        assert refused.returncode == 1 and f"{first} is master in epoch".encode() in refused.stderr

    play(etcd, tmp_path, story)


def test_a_member_is_added_by_command(tmp_path: Path, etcd: EtcdCluster) -> None:
    async def story(group: LiveGroup, admin: Admin) -> None:
        file = tmp_path / "broker.conf"
        await group.until_master(set("ab"))
        before = file.read_text()
        file.write_text(before.replace("haMembers=a,b", "haMembers=a,b,c,d"))
        refused = await admin("haConfigure")
        assert refused.returncode == 1 and b"these are several: c, d" in refused.stderr
        file.write_text(before.replace("haMembers=a,b", "haMembers=a,b,c"))
        done = await admin("haConfigure")
        assert done.returncode == 0 and b"members: a, b, c (before: a, b)" in done.stdout, done.stderr
        group.add("c", list("abc"))
        await group.start("c")
        await group.until_in_sync()

    play(etcd, tmp_path, story)
