"""Groups of real brokers under load, with faults: no acknowledged message is lost, none is seen at two offsets, and
never do two masters acknowledge."""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.broker import free_ports
from tests.support.ha.at_random import play
from tests.support.ha.clients import Clients
from tests.support.ha.faults import cut
from tests.support.ha.group import LEASE_S, Group
from tests.support.ha.history import NO_SLAVE
from tests.support.ha.needs import needs_compiler, needs_network
from tests.support.ha.network import CLIENTS

# --- deaths ---------------------------------------------------------------------------------------------------------


def test_a_killed_master_is_replaced_and_comes_back_as_slave(pair: Group, seed: int) -> None:
    """Holds: replication, a slave takes over."""
    with Clients(pair.servers, pair.history, seed):
        for _ in range(2):
            first = pair.wait_for_master()
            pair.history.happened(f"kill -9 of all of {first}")
            pair.members[first].kill_all()
            pair.wait_for_lone_master(pair.other(first))
            pair.members[first].begin()
            pair.wait_until_healed()
    pair.check()


def test_a_master_that_comes_back_without_its_disk_copies_everything(pair: Group, seed: int) -> None:
    """Holds: replication, disaster recovery."""
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        pair.history.happened(f"{first} loses its machine and its disk")
        pair.members[first].kill_all()
        pair.members[first].lose_store()
        pair.wait_for_lone_master(pair.other(first))
        pair.members[first].begin()
        pair.wait_until_healed()
        pair.history.happened("the other one loses its machine")
        pair.members[pair.other(first)].kill_all()
        pair.wait_for_lone_master(first)
        pair.members[pair.other(first)].begin()
        pair.wait_until_healed()
    pair.check()


def test_a_slave_whose_disk_has_changed_a_byte_halts(pair: Group, seed: int) -> None:
    """The byte is in the last record of its log, where no epoch tells it. With an empty store it is in sync again."""
    with Clients(pair.servers, pair.history, seed):
        second = pair.members[pair.other(pair.wait_for_master())]
        pair.wait_in_sync()
        pair.history.happened(f"{second.name} is killed, and its disk changes a byte")
        second.kill_all()
        change_last_byte(second.store)
        second.begin()
        pair.wait_for(lambda: "though both are of one history" in second.text(), "the damaged member to find that")
        pair.wait_for(lambda: "HALTED" in second.text(), "it to halt")
        assert "cut the log" not in second.text()
        second.kill_all()
        second.lose_store()
        second.begin()
        pair.wait_until_healed()
    pair.check()


def change_last_byte(store: Path) -> None:
    """The last byte of the log that is not zero."""
    files = [path for path in sorted((store / "commitlog").iterdir()) if path.read_bytes().strip(b"\0")]
    image = bytearray(files[-1].read_bytes())
    end = len(image.rstrip(b"\0"))
    image[end - 1] ^= 0x40
    files[-1].write_bytes(image)


def test_a_slave_that_was_away_is_not_elected(pair: Group, seed: int) -> None:
    """The slave dies, the master goes on alone, then dies too. Only the master has everything: it has to come back."""
    with Clients(pair.servers, pair.history, seed) as clients:
        first = pair.wait_for_master()
        second = pair.other(first)
        pair.members[second].kill_all()
        pair.wait_for(lambda: NO_SLAVE in pair.history.codes(), "sends that are stored on the master alone")
        pair.history.happened(f"kill -9 of {first}, the only one in sync; {second} starts")
        pair.members[first].kill_all()
        pair.members[second].begin()
        epoch = pair.epoch()
        time.sleep(3 * LEASE_S)  # nothing may happen
        assert pair.epoch() == epoch, "a member that is not in sync was elected"
        pair.members[first].begin()
        pair.wait_for_lone_master(first)
        pair.wait_until_healed()
        assert clients.failure is None
    pair.check()


@pytest.mark.parametrize("title", ["send", "replicator", "store", "manager", "selector 0"])
def test_a_worker_that_is_killed_costs_no_epoch(pair: Group, seed: int, title: str) -> None:
    """Of the master, then of the slave."""
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        epoch = pair.epoch()
        for name in (first, pair.other(first)):
            pair.history.happened(f"kill -9 of {title} of {name}")
            pair.members[name].signal_worker(title, signal.SIGKILL)
            pair.wait_until_healed()
        assert pair.epoch() == epoch and pair.master() == first
    pair.check()


def test_a_member_shows_its_state_in_metrics(pair: Group) -> None:
    """Its manager follows orders beside serving metrics.
    Fault: A member's manager with metrics ended repeatedly: two tasks entered one cancel scope."""
    name = pair.other(pair.master() or "")
    member, port = pair.members[name], free_ports()[0]
    member.kill_all()
    member.settings["metricsPort"] = str(port)
    member.begin()
    pair.wait_in_sync()

    def shown() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return b'rocketpy_ha_member{state="in_sync"} 1.0' in answer.read()

    pair.wait_for(shown, f"the state of {name} in its metrics")


@pytest.mark.parametrize("title", ["coordinator", "supervisor"])
def test_a_process_that_takes_its_role_up_again(pair: Group, seed: int, title: str) -> None:
    """Of the slave, then of the master: a coordinator has to be elected again, and another member may win
    (docs/adr/0132); a process tree goes on in its epoch."""
    with Clients(pair.servers, pair.history, seed):
        first, epoch = pair.wait_for_master(), pair.epoch()
        for name in (pair.other(first), first):
            pair.history.happened(f"kill -9 of {title} of {name}")
            pair.members[name].signal_worker(title, signal.SIGKILL)
            if name == first and title == "coordinator":
                pair.wait_for(lambda: pair.epoch() > epoch, "another epoch")
            pair.wait_until_healed()
    pair.check()


# --- pauses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause_s", [1, LEASE_S + 2])
@pytest.mark.parametrize("title", ["", "send", "coordinator"])
def test_a_master_that_stands_still_acknowledges_nothing_that_is_lost(
    pair: Group, seed: int, title: str, pause_s: int
) -> None:
    """All of it, or one process: for less than the lease, and for longer."""
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        member = pair.members[first]
        pids = [member.pids()[title]] if title else list(member.pids().values())
        pair.history.happened(f"SIGSTOP of {title or 'all'} of {first}")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(pause_s)
        pair.history.happened("SIGCONT")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:  # it was replaced
                continue
        pair.wait_until_healed()
    pair.check()


# --- etcd -----------------------------------------------------------------------------------------------------------


def test_a_pair_goes_on_without_etcd(pair: Group, seed: int) -> None:
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        pair.history.happened("etcd is killed")
        pair.etcd.kill(0)
        time.sleep(3 * LEASE_S)
        assert pair.wait_for_master() == first, "it acknowledges without its lease"
        pair.etcd.start(0)
        pair.wait_until_healed()
    pair.check()


# --- partitions -----------------------------------------------------------------------------------------------------


@needs_network
def test_a_master_that_is_cut_from_etcd_alone(networked: Group, seed: int) -> None:
    """Its lease ends; it hears of the new epoch from its slave, which was elected, and serves nobody any more.
    Fault: A master that did not reach etcd was not told of its successor."""
    group = networked
    with Clients(group.servers, group.history, seed):
        first = group.wait_for_master()
        known = len(group.members[first].text())
        join = cut(group, first, "etcd")
        group.wait_for_lone_master(group.other(first))
        left = f"failover: {first} is JOINING, was "
        group.wait_for(lambda: left in group.members[first].text()[known:], f"{first} to learn that it was replaced")
        join()
        group.wait_until_healed()
    group.check()


@needs_network
@pytest.mark.parametrize("both", [True, False])
def test_a_master_that_is_cut_from_its_slave(networked: Group, seed: int, both: bool) -> None:
    """No election: sends are stored on it alone, until both are joined."""
    group = networked
    with Clients(group.servers, group.history, seed):
        first = group.wait_for_master()
        epoch = group.epoch()
        join = cut(group, first, group.other(first), both=both)
        group.wait_for(lambda: NO_SLAVE in group.history.codes(), "sends that are stored on the master alone")
        join()
        group.wait_until_healed()
        assert group.epoch() == epoch
    group.check()


@needs_network
def test_a_master_that_only_clients_reach(networked: Group, seed: int) -> None:
    """It may acknowledge nothing; what it stored is cut when it comes back, and nobody has seen it."""
    group = networked
    with Clients(group.servers, group.history, seed):
        first = group.wait_for_master()
        joins = [cut(group, first, "etcd"), cut(group, first, group.other(first))]
        group.wait_for_lone_master(group.other(first))
        for join in joins:
            join()
        group.wait_until_healed()
    group.check()


@needs_network
def test_a_master_that_no_client_reaches(networked: Group, seed: int) -> None:
    """It stays master: people have to decide. Nothing is lost."""
    group = networked
    with Clients(group.servers, group.history, seed):
        first = group.wait_for_master()
        epoch = group.epoch()
        join = cut(group, CLIENTS, first)
        time.sleep(2 * LEASE_S)
        join()
        group.wait_until_healed()
        assert group.epoch() == epoch
    group.check()


# --- everything -----------------------------------------------------------------------------------------------------

FAULTS_S = float(os.environ.get("HA_FAULTS_S") or 40)


@needs_network
@needs_compiler
def test_three_members_with_faults_at_random(tmp_path: Path, library: Path, seed: int) -> None:
    """HA_FAULTS_S=600 goes on for ten minutes; `python -m tests.support.ha.at_random` plays one history after the
    other."""
    print(play(tmp_path, library, seed, FAULTS_S))
