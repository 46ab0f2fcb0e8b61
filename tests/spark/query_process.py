"""A streaming query in a process of its own, which tests kill: a topic into Parquet, with a checkpoint.

python -m tests.spark.query_process MASTER NAME_SERVER TOPIC DIRECTORY [--once] [KEY=VALUE ...]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from rocketpy.spark import session
from tests.spark.jvm import FLAGS

ROOT = Path(__file__).parents[2]
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
