"""Groups of real brokers under load, with faults: no acknowledged message is lost, none is seen at two offsets, and
never do two masters acknowledge. Each test prints its seed; HA_SEED=... repeats it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.etcd import MISSING, is_installed
from tests.support.ha import network as places
from tests.support.ha.clients import Clients
from tests.support.ha.group import LEASE_S, Group, real_group
from tests.support.ha.history import NO_SLAVE
from tests.support.ha.network import CLIENTS, network

pytestmark = pytest.mark.skipif(not is_installed(), reason=MISSING)
needs_network = pytest.mark.skipif(not places.is_possible(), reason=places.MISSING)


@pytest.fixture
def seed() -> int:
    number = int(os.environ.get("HA_SEED") or random.randrange(1 << 30))
    print(f"HA_SEED={number}")
    return number


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Group]:
    with real_group(tmp_path) as group:
        yield group


@pytest.fixture
def networked(tmp_path: Path) -> Iterator[Group]:
    """A pair whose members, etcd and clients are on networks of their own."""
    with network("a", "b", "etcd") as made, real_group(tmp_path, network=made) as group:
        yield group


def other(group: Group, name: str) -> str:
    (found,) = set(group.members) - {name}
    return found


def in_sync_again(group: Group) -> None:
    group.wait_in_sync()
    group.wait_for_master()


# --- deaths ---------------------------------------------------------------------------------------------------------


def test_a_killed_master_is_replaced_and_comes_back_as_slave(pair: Group, seed: int) -> None:
    with Clients(pair.servers, pair.history, seed):
        for _ in range(2):
            first = pair.wait_for_master()
            pair.history.happened(f"kill -9 of all of {first}")
            pair.members[first].kill_all()
            pair.wait_for_lone_master(other(pair, first))
            pair.members[first].begin()
            in_sync_again(pair)
    pair.check()


def test_a_master_that_comes_back_without_its_disk_copies_everything(pair: Group, seed: int) -> None:
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        pair.history.happened(f"{first} loses its machine and its disk")
        pair.members[first].kill_all()
        pair.members[first].lose_store()
        pair.wait_for_lone_master(other(pair, first))
        pair.members[first].begin()
        in_sync_again(pair)
        pair.history.happened("the other one loses its machine")
        pair.members[other(pair, first)].kill_all()
        pair.wait_for_lone_master(first)
        pair.members[other(pair, first)].begin()
        in_sync_again(pair)
    pair.check()


def test_a_slave_that_was_away_is_not_elected(pair: Group, seed: int) -> None:
    """The slave dies, the master goes on alone, then dies too. Only the master has everything: it has to come back."""
    with Clients(pair.servers, pair.history, seed) as clients:
        first = pair.wait_for_master()
        second = other(pair, first)
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
        in_sync_again(pair)
        assert clients.failure is None
    pair.check()


@pytest.mark.parametrize("title", ["send", "replicator", "store", "manager", "selector 0"])
def test_a_worker_that_is_killed_costs_no_epoch(pair: Group, seed: int, title: str) -> None:
    """Of the master, then of the slave."""
    with Clients(pair.servers, pair.history, seed):
        first = pair.wait_for_master()
        epoch = pair.epoch()
        for name in (first, other(pair, first)):
            pair.history.happened(f"kill -9 of {title} of {name}")
            pair.members[name].signal_worker(title, signal.SIGKILL)
            in_sync_again(pair)
        assert pair.epoch() == epoch and pair.master() == first
    pair.check()


@pytest.mark.parametrize("title", ["coordinator", "supervisor"])
def test_a_process_that_takes_its_role_up_again(pair: Group, seed: int, title: str) -> None:
    """Of the slave, then of the master: a coordinator has to be elected again, and another member may win
    (docs/adr/0162); a process tree goes on in its epoch."""
    with Clients(pair.servers, pair.history, seed):
        first, epoch = pair.wait_for_master(), pair.epoch()
        for name in (other(pair, first), first):
            pair.history.happened(f"kill -9 of {title} of {name}")
            pair.members[name].signal_worker(title, signal.SIGKILL)
            if name == first and title == "coordinator":
                pair.wait_for(lambda: pair.epoch() > epoch, "another epoch")
            in_sync_again(pair)
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
        in_sync_again(pair)
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
        in_sync_again(pair)
    pair.check()


# --- partitions -----------------------------------------------------------------------------------------------------


def cut(group: Group, one: str, two: str, *, both: bool = True) -> Callable[[], None]:
    """Cut two places from each other. Returns: what joins them again."""
    assert group.network is not None
    made, ways = group.network, [(one, two), *([(two, one)] if both else [])]
    group.history.happened(f"{one} is cut from {two}" + ("" if both else ", one way"))
    for source, target in ways:
        made.cut(source, target)

    def join() -> None:
        group.history.happened(f"{one} is joined with {two}")
        for source, target in ways:
            made.join(source, target)

    return join


@needs_network
def test_a_master_that_is_cut_from_etcd_alone(networked: Group, seed: int) -> None:
    """Its lease ends; it hears of the new epoch from its slave, which was elected."""
    group = networked
    with Clients(group.servers, group.history, seed):
        first = group.wait_for_master()
        join = cut(group, first, "etcd")
        group.wait_for_lone_master(other(group, first))
        join()
        in_sync_again(group)
    group.check()


@needs_network
@pytest.mark.parametrize("both", [True, False])
def test_a_master_that_is_cut_from_its_slave(networked: Group, seed: int, both: bool) -> None:
    """No election: sends are stored on it alone, until both are joined."""
    group = networked
    with Clients(group.servers, group.history, seed):
        first = group.wait_for_master()
        epoch = group.epoch()
        join = cut(group, first, other(group, first), both=both)
        group.wait_for(lambda: NO_SLAVE in group.history.codes(), "sends that are stored on the master alone")
        join()
        in_sync_again(group)
        assert group.epoch() == epoch
    group.check()


@needs_network
def test_a_master_that_only_clients_reach(networked: Group, seed: int) -> None:
    """It may acknowledge nothing; what it stored is cut when it comes back, and nobody has seen it."""
    group = networked
    with Clients(group.servers, group.history, seed):
        first = group.wait_for_master()
        joins = [cut(group, first, "etcd"), cut(group, first, other(group, first))]
        group.wait_for_lone_master(other(group, first))
        for join in joins:
            join()
        in_sync_again(group)
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
        in_sync_again(group)
        assert group.epoch() == epoch
    group.check()


# --- operators ------------------------------------------------------------------------------------------------------


def test_switch_overs_lose_and_double_nothing(pair: Group, seed: int) -> None:
    """Ten in a row under load; each epoch is one more than the last, so nobody had to be elected."""
    with Clients(pair.servers, pair.history, seed):
        for _ in range(10):
            first, epoch = pair.wait_for_master(), pair.epoch()
            target = other(pair, first)
            pair.history.happened(f"switch-over from {first} to {target}")
            pair.switch_over(target)
            pair.wait_for_master({target})
            in_sync_again(pair)
            assert pair.epoch() == epoch + 1
    pair.check()


# --- everything -----------------------------------------------------------------------------------------------------

FAULTS_S = 40.0


@needs_network
def test_three_members_with_faults_at_random(tmp_path: Path, seed: int) -> None:
    """Deaths, pauses and cuts, at most one member at a time, in any order; then all is healed."""
    choose = random.Random(seed)
    with network("a", "b", "c", "etcd") as made, real_group(tmp_path, "abc", network=made) as group:
        with Clients(group.servers, group.history, seed):
            until_s = time.monotonic() + FAULTS_S
            while time.monotonic() < until_s:
                name = choose.choice("abc")
                heal = choose.choice((kill, freeze, isolate, kill_a_worker))(group, name, choose)
                time.sleep(choose.uniform(0.2, 1.6 * LEASE_S))
                heal()
                time.sleep(choose.uniform(0.0, LEASE_S))
            in_sync_again(group)
        group.check()
    print(
        f"codes {group.history.codes()}, longest time without an acknowledgement {group.history.longest_gap_s():.1f} s"
    )


Heal = Callable[[], None]


def kill(group: Group, name: str, choose: random.Random) -> Heal:
    """kill -9 of all of it, sometimes with its disk: then others must have everything."""
    without_disk = choose.random() < 0.3
    if without_disk:
        group.wait_in_sync()
    group.history.happened(f"kill -9 of all of {name}" + (", its disk is gone" if without_disk else ""))
    group.members[name].kill_all()
    if without_disk:
        group.wait_for(lambda: name not in group.state().in_sync, f"{name} to leave the set")  # type: ignore[union-attr]
        group.members[name].lose_store()
    return group.members[name].begin


def freeze(group: Group, name: str, choose: random.Random) -> Heal:
    group.history.happened(f"SIGSTOP of all of {name}")
    group.members[name].signal_all(signal.SIGSTOP)

    def go_on() -> None:
        group.history.happened(f"SIGCONT of {name}")
        group.members[name].signal_all(signal.SIGCONT)

    return go_on


def isolate(group: Group, name: str, choose: random.Random) -> Heal:
    """Cut it from some of the others, one way or both."""
    peers = [place for place in ("a", "b", "c", "etcd") if place != name]
    joins = [cut(group, name, peer, both=choose.random() < 0.7) for peer in choose.sample(peers, choose.randint(1, 3))]

    def join() -> None:
        for each in joins:
            each()

    return join


def kill_a_worker(group: Group, name: str, choose: random.Random) -> Heal:
    title = choose.choice(("send", "replicator", "store", "manager", "coordinator", "supervisor"))
    group.history.happened(f"kill -9 of {title} of {name}")
    try:
        group.members[name].signal_worker(title, signal.SIGKILL)
    except KeyError:  # it is just being started
        group.history.happened(f"there is no {title} of {name}")
    return lambda: None
