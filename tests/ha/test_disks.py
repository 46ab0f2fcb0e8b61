"""Disks that get full, stand still, or forget: no acknowledged message is lost."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.ha.clients import Clients
from tests.support.ha.disks import Boots, Disk, disk, failing
from tests.support.ha.group import LEASE_S, Group, Member, real_group
from tests.support.ha.history import NO_SLAVE, SUCCESS
from tests.support.ha.needs import needs_disks

SERVES_S = 15.0  # after a fault of the master, another member serves: a promise of the page
TRAFFIC_S = 2.0  # sends that are acknowledged behind a copy of a store


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[str, Disk]]:
    """Of both members of a group that is made afterwards."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(disk(tmp_path / name)) for name in "ab"}


@pytest.fixture
def disked(tmp_path: Path, disks: dict[str, Disk]) -> Iterator[Group]:
    with real_group(tmp_path) as group:
        yield group


@needs_disks
def test_a_slave_whose_disk_is_full(disked: Group, disks: dict[str, Disk], seed: int) -> None:
    """It leaves the set, acknowledges nothing that it does not have, and comes back when there is room."""
    with Clients(disked.servers, disked.history, seed, body_bytes=3000):
        slave = disked.other(disked.wait_for_master())
        epoch = disked.epoch()
        disked.history.happened(f"the disk of {slave}, the slave, is full")
        disks[slave].fill()
        disked.wait_for(lambda: NO_SLAVE in disked.history.codes(), "sends that are stored on the master alone")
        disked.history.happened("there is room")
        disks[slave].make_room()
        disked.wait_until_healed()
        assert disked.epoch() == epoch
    disked.check()


@needs_disks
def test_a_master_whose_disk_is_full(disked: Group, disks: dict[str, Disk], seed: int) -> None:
    """It hands over to the other member; what it has acknowledged is there. With room it follows again.
    Fault: A master with a full or failing disk kept its lease, and the group refused sends."""
    with Clients(disked.servers, disked.history, seed, body_bytes=3000):
        first = disked.wait_for_master()
        disked.history.happened(f"the disk of {first}, the master, is full")
        disks[first].fill()
        wait_for_another(disked, first)  # a send that the first refuses before it hands over may be seen, or none
        disked.history.happened("there is room")
        disks[first].make_room()
        disked.wait_until_healed()
    disked.check()


@needs_disks
def test_a_master_whose_file_system_turns_read_only(disked: Group, disks: dict[str, Disk], seed: int) -> None:
    """Another member serves; what is acknowledged until then is there. The master comes back with another disk."""
    with Clients(disked.servers, disked.history, seed):
        first = disked.wait_for_master()
        disked.wait_in_sync()
        disked.history.happened(f"the file system of {first}, the master, is read-only")
        disks[first].turn_read_only()
        wait_for_another(disked, first)
        disked.members[first].kill_all()
        disks[first].renew()
        disked.members[first].begin()
        disked.wait_until_healed()
    disked.check()


@pytest.mark.skipif(shutil.which("strace") is None, reason="errors of a disk are made by strace")
def test_a_master_whose_disk_answers_with_errors(pair: Group, seed: int) -> None:
    """Each write and sync fails with EIO. Its memory still takes messages, which both members have. It comes back with
    another disk."""
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        pair.wait_in_sync()
        pair.history.happened(f"the disk of {first}, the master, answers with EIO")
        with failing(pair.members[first].pids().values()):
            wait_for_another(pair, first)
            pair.members[first].kill_all()
        pair.members[first].lose_store()
        pair.members[first].begin()
        pair.wait_until_healed()
    pair.check()


def wait_for_another(group: Group, first: str) -> None:
    """Until the other member of a pair serves, within the bar."""
    begun_s = time.monotonic()
    group.wait_for_lone_master(group.other(first))
    took_s = time.monotonic() - begun_s
    print(f"another member serves after {took_s:.1f} s")
    assert took_s < SERVES_S, f"another member serves after {took_s:.1f} s"


def test_a_master_whose_manager_ends_in_a_loop(pair: Group, seed: int) -> None:
    """A damaged topics.json, as a disk leaves it: neither the manager nor the next process tree can read it."""
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        member = pair.members[first]
        config = member.store / "config"
        pair.wait_for((config / "topics.json").exists, "topics.json")
        pair.history.happened(f"topics.json of {first}, the master, is damaged")
        member.signal_worker("manager", signal.SIGSTOP)  # it writes the file no more
        for path in config.glob("topics.json*"):
            path.write_bytes(b'{"topicConfigTable":\x00\xff')
        member.signal_worker("manager", signal.SIGKILL)
        wait_for_another(pair, first)
        group_says(pair, first)
        member.kill_all()
        member.lose_store()
        member.begin()
        pair.wait_until_healed()
    pair.check()


def group_says(group: Group, name: str) -> None:
    """Wait until the group knows why a member cannot serve."""
    group.wait_for(lambda: fault_of(group, name), f"the fault of {name}")


def fault_of(group: Group, name: str) -> str:
    record = group.registered(name)
    return "" if record is None else record.fault


@pytest.mark.parametrize("title", ["coordinator", "supervisor"])
def test_a_process_of_the_master_that_hangs(pair: Group, seed: int, title: str) -> None:
    """Its successor gives the lease of the one before back, or the other member's has all."""
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        epoch, pid = pair.epoch(), pair.members[first].pids()[title]
        pair.history.happened(f"the {title} of {first}, the master, hangs")
        begun_s = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        pair.wait_for(lambda: pair.epoch() > epoch, "another epoch")
        pair.wait_for_master(codes=(SUCCESS, NO_SLAVE))
        assert time.monotonic() - begun_s < SERVES_S
        pair.wait_for(lambda: pair.members[first].pids().get(title, pid) != pid, f"another {title}")
        pair.wait_until_healed()
    pair.check()


@needs_disks
@pytest.mark.parametrize("whose", ["master", "slave"])
def test_a_disk_that_stands_still(disked: Group, disks: dict[str, Disk], seed: int, whose: str) -> None:
    with Clients(disked.servers, disked.history, seed):
        first = disked.wait_for_master()
        name = first if whose == "master" else disked.other(first)
        disked.history.happened(f"the disk of {name}, the {whose}, stands still")
        disks[name].freeze()
        try:
            if whose == "slave":
                disked.wait_for(lambda: NO_SLAVE in disked.history.codes(), "sends that are stored on the master alone")
            else:
                time.sleep(LEASE_S + 2)
        finally:
            disked.history.happened("it goes on")
            disks[name].thaw()
        disked.wait_until_healed()
    disked.check()


@needs_disks
def test_a_master_that_loses_power_and_its_tail(tmp_path: Path, disks: dict[str, Disk], seed: int) -> None:
    """It returns at once, without what it acknowledged last: it does not go on, the other one is elected."""
    boots = {name: Boots(tmp_path / f"{name}.boot") for name in disks}

    def arrange(member: Member) -> None:
        member.prefix = [*member.prefix, *boots[member.name].prefix]

    with real_group(tmp_path, arrange=arrange) as group:
        with Clients(group.servers, group.history, seed):
            first = group.wait_for_master()
            member, before = group.members[first], incarnation(group, first)
            disks[first].save()
            time.sleep(TRAFFIC_S)
            group.history.happened(f"{first} loses power and the last {TRAFFIC_S} s of its disk, and returns at once")
            member.kill_all()
            disks[first].put_back()
            boots[first].boot()
            member.begin()
            group.wait_for_master({group.other(first)})
            group.wait_until_healed()
            assert incarnation(group, first) != before, "it passes for the store that was in sync"
        group.check()


def incarnation(group: Group, name: str) -> str:
    state = group.state()
    assert state is not None
    return state.in_sync[name]


@pytest.mark.parametrize("was_running", [False, True])
def test_a_store_that_is_put_back_from_a_copy(pair: Group, seed: int, was_running: bool) -> None:
    """The copy has all times of files, as `cp -a` makes it, of a member that was stopped or that was running. It lacks
    what was acknowledged since, so it may not be elected. That of a running member is of no use: it may halt.
    Fault: A store restored from a copy passed for the in-sync one and could be elected."""
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        second = pair.other(first)
        member, copy = pair.members[second], pair.members[second].store.with_suffix(".copy")
        if not was_running:
            assert member.stop() == 0
        copy_of(member.store, copy)
        if not was_running:
            member.begin()
        pair.wait_until_healed()
        assert pair.master() == first
        time.sleep(TRAFFIC_S)
        pair.history.happened(f"kill -9 of both; {second} returns with a copy of its store")
        for each in pair.members.values():
            each.kill_all()
        member.lose_store()
        copy.rename(member.store)
        epoch = pair.epoch()
        member.begin()
        time.sleep(3 * LEASE_S)  # nothing may happen
        assert pair.epoch() == epoch, "a member was elected that lacks acknowledged messages"
        pair.members[first].begin()
        pair.wait_for_lone_master(first)
        if was_running:
            member.kill_all()
            member.lose_store()
            member.begin()
        pair.wait_until_healed()
    pair.check()


def copy_of(store: Path, copy: Path) -> None:
    """As a backup copies it; files that vanish meanwhile are left out."""

    def copied(source: str, target: str) -> str:
        try:
            return shutil.copy2(source, target)
        except FileNotFoundError:
            return target

    shutil.copytree(store, copy, copy_function=copied)
