"""Archive runs that are killed in the middle, or run until they are told to stop: each record is archived once."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.cli.pipeline.stopping import stopped_by_signals
from rocketpy.errors import ConnectFailed
from rocketpy.spark.jobs.archive import archive
from rocketpy.spark.jobs.archive_log import manifests_of
from rocketpy.store.inspection.reader import StoreReader
from tests.spark.following import Following
from tests.spark.test_segments import make_store

BROKER = "b"


def archived(target: Path) -> list[int]:
    """The phy offsets of all rows that readers of the directory see."""
    found: list[int] = []
    for path in target.glob("topic=*/dt=*/*.parquet"):
        found += pq.ParquetFile(path).read(["physicalOffset"])[0].to_pylist()
    return sorted(found)


def manifests(target: Path) -> list[Path]:
    return sorted((target / "_rocketpy" / BROKER).glob("*.json"))


def logged(root: Path) -> list[int]:
    return [record.phy_offset for record in StoreReader(root).records()]


def test_a_first_run_that_is_killed_goes_on_and_follows_the_store(tmp_path: Path) -> None:
    """SIGKILL after some commits; the next run goes on behind the last one, archives what is added, and ends with
    status 0."""
    make_store(tmp_path / "all", 1000)
    shutil.copytree(tmp_path / "all", tmp_path / "s")
    for path in (later := sorted((tmp_path / "s/commitlog").iterdir())[-3:]):
        path.unlink()
    target, chance = tmp_path / "a", random.Random()
    words = ("--broker", BROKER, "--commit-bytes", "3000", str(tmp_path / "s"))
    with Following(target, *words) as following:
        following.wait_until(lambda: len(manifests(target)) >= chance.randint(2, 20))
    last = manifests_of(target)[BROKER][-1]
    committed = [place for place in logged(tmp_path / "s") if place < last.end]
    assert 0 < len(committed) < len(logged(tmp_path / "s"))
    with Following(target, *words) as following:
        following.wait_until(lambda: archived(target) == logged(tmp_path / "s"))
        for path in later:
            shutil.copy(tmp_path / "all/commitlog" / path.name, tmp_path / "copy")
            (tmp_path / "copy").rename(path)
        following.wait_until(lambda: archived(target) == logged(tmp_path / "all"))
        assert following.stop() == 0, following.text()
    assert '"rows": ' in following.text()
    ranges = [(one.begin, one.end) for one in manifests_of(target)[BROKER]]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))


def test_a_run_ends_after_a_commit_when_it_is_told_to(tmp_path: Path) -> None:
    make_store(tmp_path / "s", 60)
    answers = iter([False, False, True])
    given: dict[str, Any] = {"broker": BROKER, "commit_bytes": 1000}
    done = archive(None, tmp_path / "s", tmp_path / "a", is_stopped=lambda: next(answers), **given)
    assert len(done) == 2
    assert archived(tmp_path / "a") == [place for place in logged(tmp_path / "s") if place < done[-1].end]


def test_a_broker_that_is_away_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other errors end the command."""
    errors = iter([ConnectFailed("no route"), ConnectFailed("no route"), ValueError("a fault")])

    def fail(*_: Any, **__: Any) -> None:
        raise next(errors)

    monkeypatch.setattr("rocketpy.spark.jobs.archive_topics.archive_topics", fail)
    monkeypatch.setattr("rocketpy.cli.pipeline.stopping.Stop.wait", lambda stop, seconds: False)
    command = ["pipeline", "archive", "--inline", "--continuous", "-n", "127.0.0.1:1", "-t", "T", str(tmp_path / "a")]
    done = CliRunner().invoke(cli, command)
    assert str(done.exception) == "a fault"
    assert done.stderr.count("rocketpy: no route; the next run is in 60 s") == 2


def test_a_signal_ends_a_pause_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopped_by_signals() as stop:
        assert not stop.wait(0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(1e6) and stop.is_set
        assert signal.getsignal(signal.SIGTERM) is before, "a second signal ends the process"
    assert signal.getsignal(signal.SIGTERM) is before
