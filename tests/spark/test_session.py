"""Sessions for the sources: what they set, and that it fits what other sessions have written."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

import pyspark
import pytest
from click.testing import CliRunner

from rocketpy.cli.command_line import cli
from rocketpy.errors import ConfigError
from rocketpy.spark import reason_of
from rocketpy.spark.session import BY_FILE_SYSTEM, CHECKPOINT_MANAGER, REGISTERED, check_pyspark, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_checkpoint_goes_on_with_another_manager_of_its_files(spark: SparkSession, tmp_path: Path) -> None:
    """A session on one machine has a manager that starts no programs; others have that of Spark."""
    assert spark.conf.get(CHECKPOINT_MANAGER) == BY_FILE_SYSTEM
    try:
        for batch in range(4):
            if batch % 2:
                spark.conf.unset(CHECKPOINT_MANAGER)
            else:
                spark.conf.set(CHECKPOINT_MANAGER, BY_FILE_SYSTEM)
            stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().writeStream
            query = stream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(once=True).start()
            query.awaitTermination()
            assert [progress["batchId"] for progress in query.recentProgress] == [batch]
    finally:
        spark.conf.set(CHECKPOINT_MANAGER, BY_FILE_SYSTEM)
    assert sorted(path.name for path in (tmp_path / "commits").glob("[0-9]")) == ["0", "1", "2", "3"]


def test_an_old_pyspark_is_refused_with_one_line(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(spark, REGISTERED, raising=False)
    for version in ("3.5.9", "4.0.5", "4.1.4"):
        monkeypatch.setattr(pyspark, "__version__", version)
        with pytest.raises(ConfigError, match=rf"^PySpark {version} .*: install PySpark 4\.2 or newer$"):
            register(spark)
    for version in ("4.2.0", "4.3.0", "5.0.0.dev1"):
        monkeypatch.setattr(pyspark, "__version__", version)
        check_pyspark()


@pytest.mark.parametrize(
    ("variable", "words", "named"),
    [
        ("", ["--master", "sc://h:15002"], "sc://h:15002"),
        ("sc://h", ["--master", "local[2,3]"], "sc://h"),
        ("local", [], "local"),
    ],
)
def test_jobs_refuse_spark_connect_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, words: list[str], named: str
) -> None:
    """Fault: A job with Spark Connect began, and ended with an error of PySpark."""
    monkeypatch.setattr(sys.modules["rocketpy.spark.session"], "session", lambda *args, **given: pytest.fail("begun"))
    monkeypatch.setenv("SPARK_REMOTE", variable)
    job = ["pipeline", "archive", "-n", "127.0.0.1:1", "-t", "T", *words, str(tmp_path / "a")]
    done = CliRunner().invoke(cli, job)
    assert done.exit_code == 2 and not (tmp_path / "a").exists()
    refused = "is Spark Connect: jobs need a master like local[*], and no SPARK_REMOTE"
    assert done.stderr == f"rocketpy: {named} (SPARK_REMOTE or master) {refused}\n"


def test_the_reason_of_an_error_is_its_last_line() -> None:
    """Fault: reason_of gave the first line of an error, which says only that there was one in a worker."""
    trace = 'Traceback (most recent call last):\n  File "x", line 1, in f\n    g()\n    ^^^\n'
    head = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
    assert reason_of(Exception(f"{head}{trace}ValueError: 7 is odd\n SQLSTATE: 38000")) == "ValueError: 7 is odd"
    chained = f"{head}{trace}OSError: a\n\nDuring handling of this, another:\n\n{trace}KeyError: 'b'\n"
    assert reason_of(Exception(chained)) == "KeyError: 'b'"
    assert reason_of(Exception(f"{head}{trace}rocketpy.errors.ConfigError: topic: is empty\n")) == "topic: is empty"
    assert reason_of(Exception(f"{head}rocketpy.errors.ConfigError: topic: is empty\n")) == "topic: is empty"
    said = indent(f"{trace}OSError: path too long\n", "  ")
    worker = f"a.B: \nError from python worker:\n{said}PYTHONPATH was:\n  /x\n"
    assert reason_of(Exception(worker)) == "OSError: path too long"
    java = "An error occurred while calling o1.x.\n: a.B: aborted\n\tat c.d\nCaused by: a.E: is lost\nCaused by: a.F\n"
    assert reason_of(Exception(java)) == "is lost"
    assert reason_of(Exception("[TABLE_NOT_FOUND] no table\nmore")) == "[TABLE_NOT_FOUND] no table"
