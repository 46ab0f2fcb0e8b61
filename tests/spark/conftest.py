"""What the tests of rocketpy.spark need; without it they are skipped, and under CI they fail.

One Spark session serves all of them: it takes seconds to start and half a gigabyte.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketpy.errors import ConfigError
from rocketpy.spark.session import check_java, session
from tests.spark.jvm import train
from tests.spark.query_process import CONFIG
from tests.support.broker import RunningBroker, running_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MUST_RUN = os.environ.get("CI") == "true"
NEEDED = ("pyarrow", "pyspark")
NEEDED_BY = {
    "test_archive_remade.py": ("deltalake", "moto", "pyiceberg"),
    "test_archive_tables.py": ("deltalake", "duckdb", "moto", "pandas", "pyiceberg"),
    "test_bodies.py": ("fastavro",),
    "test_erasure.py": ("deltalake", "fastavro", "moto", "pyiceberg"),
    "test_gallery.py": ("deltalake",),
    "test_kill_judges.py": ("duckdb",),
    "test_page_commands.py": ("deltalake", "moto", "pandas", "pyiceberg"),
}

TASK_TRIES = 3  # local[N] alone never tries a task again


class Skipped(pytest.Module):
    """A module that cannot be imported here."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        missing = " and ".join(missing_of(self.path))
        pytest.skip(f"{missing} not installed: make test-spark installs what these tests need")


def missing_of(module_path: Path) -> list[str]:
    """Return the packages that a test file needs and that are not installed."""
    needed = (*NEEDED, *NEEDED_BY.get(module_path.name, ()))
    return [name for name in needed if importlib.util.find_spec(name) is None]


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip with the reason what would fail to import."""
    return Skipped.from_parent(parent, path=module_path) if missing_of(module_path) and not MUST_RUN else None


@pytest.fixture(scope="session")
def java() -> None:
    """Skips where there is no Java that Spark runs on; fails where the tests must run."""
    try:
        check_java()
    except ConfigError as error:
        if MUST_RUN:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    train()
    config = CONFIG | {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.memory": "1g",
    }
    started = session(f"local[2,{TASK_TRIES}]", name="rocketpy-tests", config=config)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A started broker, whose new topics have four queues."""
    with running_broker({"defaultTopicQueueNums": "4"}) as started:
        yield started


@pytest.fixture
def chance() -> random.Random:
    """Random numbers from a new seed, or from ROCKETPY_SEED. A test that fails shows it."""
    print("seed", seed := int(os.environ.get("ROCKETPY_SEED") or random.randrange(1 << 32)))
    return random.Random(seed)


@pytest.fixture
def commands_use_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """`rocketpy pipeline` in this process runs in the session of the tests, and leaves it running."""
    monkeypatch.setattr(sys.modules["rocketpy.spark.session"], "session", lambda *args, **kwargs: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
