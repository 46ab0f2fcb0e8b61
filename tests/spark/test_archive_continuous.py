"""Archive runs that are killed in the middle, or run until they are told to stop: each record is archived once."""

from __future__ import annotations

import contextlib
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
from tests.spark.jvm import train
from tests.spark.query_process import processes_of
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


def test_a_first_run_that_is_killed_goes_on_and_follows_the_store(tmp_path: Path, chance: random.Random) -> None:
    """SIGKILL after some commits; the next run goes on behind the last one, archives what is added, and ends with
    status 0."""
    make_store(tmp_path / "all", 1000)
    shutil.copytree(tmp_path / "all", tmp_path / "s")
    for path in (later := sorted((tmp_path / "s/commitlog").iterdir())[-3:]):
        path.unlink()
    target, wanted = tmp_path / "a", chance.randint(2, 20)
    words = ("--broker", BROKER, "--commit-bytes", "3000", str(tmp_path / "s"))
    with Following(target, *words) as following:
        following.wait_until(lambda: len(manifests(target)) >= wanted)
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


class Fault(Exception):
    """An error of Spark, by its module."""

    __module__ = "py4j.protocol"


LOST = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 3 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:3000)
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
Caused by: java.io.EOFException
"""


def test_faults_of_spark_are_tried_again_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays double up to a minute, and begin anew after a run that succeeds."""
    errors, waits = iter([*[Fault(LOST)] * 2, None, *[Fault(LOST)] * 8]), list[float]()

    def run(*_: Any, **__: Any) -> list[Any]:
        if (error := next(errors)) is not None:
            raise error
        return []

    monkeypatch.setattr("rocketpy.spark.jobs.archive_topics.archive_topics", run)
    monkeypatch.setattr("rocketpy.cli.pipeline.stopping.Stop.wait", lambda stop, seconds: waits.append(seconds))
    command = ["pipeline", "archive", "--inline", "--continuous", "-n", "127.0.0.1:1", "-t", "T", str(tmp_path / "a")]
    done = CliRunner().invoke(cli, command)
    assert waits == [1, 2, 60, 1, 2, 4, 8, 16, 32, 60]
    reason, said = "Python worker exited unexpectedly (crashed)", done.stderr.splitlines()
    assert said[:2] == [f"rocketpy: {reason}; the next run is in {seconds} s" for seconds in (1, 2)]
    assert said[-1] == f"rocketpy: Spark has failed 8 times in a row: {reason}" and done.exit_code == 2
    errors = iter([Fault("Traceback:\nrocketpy.errors.StoreError: messages are gone\n\tat org.apache.spark")])
    done = CliRunner().invoke(cli, command)
    assert (done.stderr, done.exit_code) == ("rocketpy: messages are gone\n", 2), "an error that no run repairs"


def test_a_job_whose_python_workers_are_killed_is_tried_again(java: None, tmp_path: Path) -> None:
    """Fault: `archive --continuous` ended when a job of Spark had failed, as when its Python workers were killed."""
    train()
    make_store(tmp_path / "s", 300)

    def kill_workers() -> bool:
        for worker in processes_of(following.process.pid).get("python worker", []):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        return "; the next run is in 1 s" in following.text()

    with Following(tmp_path / "a", "--broker", BROKER, str(tmp_path / "s"), inline=False) as following:
        following.wait_until(kill_workers)
        following.wait_until(lambda: archived(tmp_path / "a") == logged(tmp_path / "s"))
        assert following.stop() == 0, following.text()


def test_a_signal_ends_a_pause_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopped_by_signals() as stop:
        assert not stop.wait(0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(1e6) and stop.is_set
        assert signal.getsignal(signal.SIGTERM) is before, "a second signal ends the process"
    assert signal.getsignal(signal.SIGTERM) is before
