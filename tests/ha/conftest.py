"""Tests with a real etcd. Where it is missing they are skipped with a reason; `make test-ha` under CI=true fails.

Tests whose course is random print their seed; HA_SEED=... repeats it.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd import MISSING, EtcdCluster, etcd_cluster, is_installed
from tests.support.ha.clocks import built_library
from tests.support.ha.group import Group, real_group
from tests.support.ha.network import network

# The histories that CI plays in five minutes: each kind of fault once (make test-ha-short).
SHORT = {
    "test_brokers.py::test_a_killed_master_is_replaced_and_comes_back_as_slave",
    "test_brokers.py::test_a_master_that_comes_back_without_its_disk_copies_everything",
    "test_brokers.py::test_a_worker_that_is_killed_costs_no_epoch[send]",
    "test_brokers.py::test_a_master_that_stands_still_acknowledges_nothing_that_is_lost[-5]",
    "test_brokers.py::test_a_pair_goes_on_without_etcd",
    "test_coordinator.py::test_a_pair_goes_on_without_etcd",
    "test_brokers.py::test_a_master_that_is_cut_from_its_slave[True]",
    "test_brokers.py::test_three_members_with_faults_at_random",
    "test_asynchronous.py::test_killed_masters",
    "test_asynchronous.py::test_planned_changes_lose_nothing",
    "test_delayed_and_half.py::test_delayed_messages",
    "test_delayed_and_half.py::test_transactions_that_are_open[python]",
    "test_disks.py::test_a_master_whose_disk_is_full",
    "test_disks.py::test_a_master_that_loses_power_and_its_tail",
    "test_clocks.py::test_a_member_with_a_wrong_clock[slept]",
    "test_links.py::test_packets_are_late_lost_and_in_another_order[0.03]",
    "test_leases.py::test_leases_that_are_revoked_by_hand",
    "test_etcd.py::test_a_group_from_its_beginning",
    "test_etcd.py::test_of_rivals_one_wins",
    "test_failover_commands.py::test_a_switch_over_by_command",
    "test_official_clients.py::test_producer_and_consumer_follow_the_master[go]",
    "test_switch_overs.py::test_switch_overs_lose_double_and_cut_nothing",
    "test_tls.py::test_a_change_of_role_needs_no_file_of_a_certificate",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = {f"{item.path.name}::{item.name}": item for item in items}
    if config.getoption("markexpr") == "short" and (gone := SHORT - named.keys()):
        raise pytest.UsageError(f"SHORT in tests/ha/conftest.py: no test has these names now: {sorted(gone)}")
    for name in SHORT & named.keys():
        named[name].add_marker(pytest.mark.short)


@pytest.fixture(autouse=True, scope="session")
def _needs_etcd() -> None:
    if not is_installed():
        pytest.skip(MISSING)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    directory: Path = tmp_path_factory.mktemp("etcd")
    with etcd_cluster(directory) as cluster:
        yield cluster


@pytest.fixture
def seed() -> int:
    number = int(os.environ.get("HA_SEED") or random.randrange(1 << 30))
    print(f"HA_SEED={number}")
    return number


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that turns the clocks of members."""
    return built_library(tmp_path_factory.mktemp("clock"))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Group]:
    with real_group(tmp_path) as group:
        yield group


@pytest.fixture
def networked(tmp_path: Path) -> Iterator[Group]:
    """A pair whose members, etcd and clients are on networks of their own."""
    with network("a", "b", "etcd") as made, real_group(tmp_path, network=made) as group:
        yield group
