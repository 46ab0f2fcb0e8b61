"""Tests with a real etcd. Where it is missing they are skipped with a reason; `make test-ha` under CI=true fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd import MISSING, EtcdCluster, etcd_cluster, is_installed


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    if not is_installed():
        if os.environ.get("CI") == "true":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    directory: Path = tmp_path_factory.mktemp("etcd")
    with etcd_cluster(directory) as cluster:
        yield cluster
