"""Asynchronous groups: the tail of a master that is lost may be lost, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.ha.asynchronous import AsynchronousHistory
from tests.support.ha.clients import Clients
from tests.support.ha.faults import cut
from tests.support.ha.group import SETTINGS, Group, real_group
from tests.support.ha.needs import needs_network
from tests.support.ha.network import network

ASYNCHRONOUS = {"brokerRole": "ASYNC_MASTER"}
assert SETTINGS["brokerRole"] == "SYNC_MASTER"


@pytest.fixture
def history() -> AsynchronousHistory:
    return AsynchronousHistory()


@pytest.fixture
def group(tmp_path: Path, history: AsynchronousHistory) -> Iterator[Group]:
    with real_group(tmp_path, settings=ASYNCHRONOUS, history=history) as made:
        yield made


@pytest.fixture
def apart(tmp_path: Path, history: AsynchronousHistory) -> Iterator[Group]:
    """On networks of their own."""
    with (
        network("a", "b", "etcd") as places,
        real_group(tmp_path, network=places, settings=ASYNCHRONOUS, history=history) as made,
    ):
        yield made


def tell_lost(group: Group, history: AsynchronousHistory) -> int:
    """How many acknowledged messages are lost; when senders have stopped, and before the group is checked, which stops
    it."""
    group.wait_in_sync()
    lost = len(history.lost(group.stored(group.members[group.master() or ""])))
    print(f"{lost} of {len(history.acknowledged)} acknowledged messages are lost")
    return lost


def test_killed_masters(group: Group, history: AsynchronousHistory, seed: int) -> None:
    """The second one returns without its disk."""
    with Clients(group.servers, history, seed):
        for loses_disk in (False, True):
            first = group.wait_for_master()
            group.wait_in_sync()
            history.happened(f"kill -9 of all of {first}" + (", its disk is gone" if loses_disk else ""))
            group.members[first].kill_all()
            group.wait_for_master({group.other(first)})
            if loses_disk:
                group.members[first].lose_store()
            group.members[first].begin()
            group.wait_until_healed()
    tell_lost(group, history)
    group.check()


def test_planned_changes_lose_nothing(group: Group, history: AsynchronousHistory, seed: int) -> None:
    """Switch-overs, and a clean stop of the master."""
    with Clients(group.servers, history, seed):
        for _ in range(3):
            target = group.other(group.wait_for_master())
            history.happened(f"switch-over to {target}")
            group.switch_over(target)
            group.wait_for_master({target})
            group.wait_until_healed()
        first = group.wait_for_master()
        history.happened(f"{first} is stopped")
        assert group.members[first].stop() == 0
        group.wait_for_master({group.other(first)})
        group.members[first].begin()
        group.wait_until_healed()
    assert tell_lost(group, history) == 0
    group.check()


@needs_network
def test_a_master_that_goes_on_alone_and_dies(apart: Group, history: AsynchronousHistory, seed: int) -> None:
    """What it acknowledges while its slave is cut off is the tail. The slave is still in the set, or it has left it,
    and then nobody is elected before the master is back."""
    with Clients(apart.servers, history, seed):
        first = apart.wait_for_master()
        join = cut(apart, first, apart.other(first))
        apart.wait_for_master({first})
        history.happened(f"kill -9 of all of {first}")
        apart.members[first].kill_all()
        apart.members[first].begin()
        join()
        apart.wait_until_healed()
    tell_lost(apart, history)
    apart.check()


@needs_network
def test_a_master_that_is_cut_from_everybody_but_clients(apart: Group, history: AsynchronousHistory, seed: int) -> None:
    """It acknowledges until its lease is over, and these messages are lost. The other one serves after that: a lease is
    held by one member only, and here neither etcd nor a clock lies."""
    with Clients(apart.servers, history, seed):
        first = apart.wait_for_master()
        joins = [cut(apart, first, "etcd"), cut(apart, first, apart.other(first))]
        apart.wait_for_master({apart.other(first)})
        for join in joins:
            join()
        apart.wait_until_healed()
    tell_lost(apart, history)
    apart.check()
