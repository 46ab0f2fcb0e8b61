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


@pytest.fixture(autouse=True, scope="session")
def _needs_etcd() -> None:
    if not is_installed():
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
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
    """That by which clocks of members are turned."""
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
