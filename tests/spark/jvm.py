"""JVMs of Spark in tests: they are short, so they compile with the first compiler only and map an archive of classes.

A start with one query took 51 s of a processor on a busy machine with the usual flags, 29 s with the first compiler,
and 13 s with the archive. SPARK_SUBMIT_OPTS reaches the JVM of every session that a test or its child processes begin.
`python -m tests.spark.jvm FLAGS` runs a JVM with some queries to its end; the archive holds the classes of these.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rocketpy.spark import session
from tests.interop import archives

ROOT = Path(__file__).parents[2]
PYSPARK = importlib.util.find_spec("pyspark")
HOME = Path(PYSPARK.origin).parents[1] if PYSPARK and PYSPARK.origin else Path(sys.prefix)
"""An archive is for the jars of one installation; the environment may have a second one (make test-spark SPARK=…)."""
OPTIONS = "SPARK_SUBMIT_OPTS"
FLAGS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
TRAINING_S = 600.0


def train() -> None:
    """Set OPTIONS, and write the archive unless it is there or another worker writes it: that one is not waited for.
    A JVM starts without an archive that is not there, because it is being written or could not be."""
    os.environ[OPTIONS] = " ".join([*FLAGS, f"-XX:SharedArchiveFile={archives.archive_of(HOME)}", *archives.QUIET])
    with (HOME / "classes.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            archives.make(HOME, run_queries)


def run_queries(flags: Iterable[str]) -> None:
    words = [sys.executable, "-m", __name__, *FLAGS, *flags]
    process = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        status = process.wait(TRAINING_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if status:
        raise subprocess.CalledProcessError(status, words)


def main(flags: list[str]) -> None:
    """What most tests do without our sources: a table, a file, a stream."""
    os.environ[OPTIONS] = " ".join(flags)
    spark: Any = session("local[2]", name="training")
    with tempfile.TemporaryDirectory() as directory:
        spark.range(100).selectExpr("id % 3 AS k").groupBy("k").count().write.parquet(f"{directory}/table")
        rows = spark.read.parquet(f"{directory}/table").orderBy("k").collect()
        stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().writeStream
        stream = stream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
        query = stream.trigger(processingTime="0 seconds").start(f"{directory}/stream")
        while rows and not query.recentProgress:
            query.awaitTermination(0.1)
        query.stop()
    process = spark.sparkContext._gateway.proc
    spark.stop()
    process.stdin.close()  # the JVM ends in order, and writes the archive
    process.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
