"""A streaming query in a process of its own, which tests kill: a topic into Parquet, with a checkpoint.

Also the processes of Spark that a driver has started.

python -m tests.spark.query_process MASTER NAME_SERVER TOPIC DIRECTORY [--once] [KEY=VALUE ...]
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rocketpy.spark import session
from tests.spark.jvm import FLAGS

ROOT = Path(__file__).parents[2]
DAEMON = re.compile(rb"\0-m\0[\w.]*spark\.daemon\0")  # settings of a JVM that starts name it, too
CONFIG = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "2"}
CONFIG |= {"spark.executor.extraJavaOptions": " ".join(FLAGS)}


def start_query(spark: Any, name_server: str, topic: str, out: Path, *, once: bool = False, **options: str) -> Any:
    """Write the topic, or topics separated by commas, to `out`/data, in batches as small as `options` say."""
    given = {"nameServer": name_server, "subscribe": topic, "startingOffsets": "earliest", "columns": "min", **options}
    writer = spark.readStream.format("rocketmq").options(**given).load().writeStream.format("parquet")
    writer = writer.option("path", str(out / "data")).option("checkpointLocation", str(out / "checkpoint"))
    return writer.trigger(**({"availableNow": True} if once else {"processingTime": "0 seconds"})).start()


class QueryProcess:
    """The process, with its JVM and its workers."""

    def __init__(self, master: str, name_server: str, topic: str, out: Path, *words: str) -> None:
        command = [sys.executable, "-m", "tests.spark.query_process", master, name_server, topic, str(out), *words]
        self._log = out.parent / "query.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """SIGKILL to the driver and its JVM at once; the workers end with the JVM."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def text(self) -> str:
        return self._log.read_text(errors="replace")


def processes_of(driver: int, workers: Iterable[int] = ()) -> dict[str, list[int]]:
    """The processes of the driver's session, and of the sessions of a cluster's workers, by their kind."""
    found: dict[str, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) in {driver, *workers} and fields[0] != "Z":
                kind = "driver" if int(path.name) == driver else kind_of((path / "cmdline").read_bytes())
                found.setdefault(kind, []).append(int(path.name))
    return found


def kind_of(words: bytes) -> str:
    """The kind of a process of Spark by its command line."""
    if b"CoarseGrainedExecutorBackend" in words:
        return "executor"
    if b"SparkSubmit" in words:
        return "jvm"
    return "python worker" if DAEMON.search(words) else "other"


def main(master: str, name_server: str, topic: str, directory: str, *words: str) -> None:
    options = dict(word.split("=", 1) for word in words if word != "--once")
    spark = session(master, name="query", config=CONFIG)
    query = start_query(spark, name_server, topic, Path(directory), once="--once" in words, **options)
    try:
        query.awaitTermination()
    finally:
        spark.stop()  # executors in processes of their own do not end with this one


if __name__ == "__main__":
    main(*sys.argv[1:])
