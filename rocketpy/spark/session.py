"""Spark sessions that are set up for the sources, and the shortest way to read from them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketpy.errors import ConfigError

from .advice import advise
from .worker import DAEMON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA_MIN = 17
PYSPARK_MIN = (4, 2)
JAVA_ANSWERS_S = 60.0
CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's manager of checkpoint files by default starts programs (chmod, readlink) for each file on a local disk. This
one writes the same files under the same names, and moves them into place as atomically. A micro-batch of 64 rows took
93 ms with the default and 41 ms with this one (two cores, load 10). It has this name from Spark 4.1 on."""
REGISTERED = "_rocketpy_is_registered"  # attribute of a session
LOCAL = "local[*,3]"  # all cores; a task is tried three times, which `local[*]` does not do
SOCKETS = "/tmp"  # on every node
OURS = re.compile(r"^(?:.*\s)?rocketpy\.[\w.]+: (.+)$", re.MULTILINE)
RAISED = re.compile(
    r"(^[ \t]*|(?<=: ))Traceback \(most recent call last\):\n(?:\1[ \t]+.*\n)+\1(\S.*)$", re.MULTILINE
)  # Spark indents that of a worker that has not started
CAUSED = re.compile(r"^(?:Caused by)?: [\w.$]+: (.+)$", re.MULTILINE)  # in the text of Py4JJavaError


def register(spark: SparkSession) -> SparkSession:
    """Make the sources known to a session. Not needed where the package is installed from a wheel."""
    check_pyspark()
    from .store_source import StoreSource
    from .topic_source import TopicSource

    if getattr(spark, REGISTERED, False):  # Spark would warn that one replaces the other
        return spark
    for source in (StoreSource, TopicSource):
        spark.dataSource.register(source)
    setattr(spark, REGISTERED, True)
    return spark


def session(
    master: str | None = LOCAL,
    *,
    name: str = "rocketpy",
    config: Mapping[str, str] | None = None,
    advises: bool = True,
) -> SparkSession:
    """A session for the sources: this interpreter for the workers, no UI, UTC, and sockets without TCP's delays.

    Args:
        master: `local[2,3]` (two cores, three tries for each task), `spark://host:7077`; None: what spark-submit has
            set, otherwise LOCAL.
        config: settings of Spark, over those made here.
        advises: log the options that would have saved a query work (`advise`).
    Raises:
        ConfigError: there is no Java 17, or PySpark is too old.
    """
    check_java()
    check_pyspark()
    from pyspark.sql import SparkSession

    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # which spark-submit sets
        master = LOCAL

    settings = {
        "spark.python.unix.domain.socket.enabled": "true",
        # Spark's default is the directory of the executor: in a container of YARN too long for the path of a socket.
        "spark.python.unix.domain.socket.dir": SOCKETS,
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    if master is not None and master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # A stream keeps a state store for each of them; Spark's 200 make a batch on one machine take half a minute.
        settings["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
        settings[CHECKPOINT_MANAGER] = BY_FILE_SYSTEM
        settings["spark.python.daemon.module"] = DAEMON  # a cluster keeps Spark's own, which each node can import
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers run the python3 of the PATH
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**settings, **(config or {})}.items():
        builder = builder.config(key, value)
    started = register(builder.getOrCreate())
    return advise(started) if advises else started


def read(
    spark: SparkSession, source: str = "rocketmq", *, columns: Sequence[str] | str = "std", **options: Any
) -> DataFrame:
    """A batch DataFrame of one of the sources.

    Args:
        columns: min, std, all, or the names of the columns; fewer are faster.
        options: of the source; values may be numbers and booleans.
    """
    chosen = columns if isinstance(columns, str) else ",".join(columns)
    reader = register(spark).read.format(source).option("columns", chosen)
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load()


def check_java(java_home: str | None = None) -> None:
    """Raises ConfigError unless there is a Java that Spark can use."""
    home = java_home or os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin/java") if home else "java"
    remedy = f"Spark needs Java {JAVA_MIN} or newer: install it, or set JAVA_HOME"
    if shutil.which(java) is None:
        raise ConfigError(f"{java} is not there. {remedy}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWERS_S, check=False)
    match = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if match is None or int(match[1]) < JAVA_MIN:
        raise ConfigError(f"{java} is Java {match[1] if match else 'of unknown version'}. {remedy}")


def check_pyspark(version: str | None = None) -> None:
    """Raises ConfigError for a PySpark, by default the installed one, whose Python sources lack what streams need."""
    import pyspark

    version = version or pyspark.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < PYSPARK_MIN:
        raise ConfigError(
            f"PySpark {version} has Python sources without limits of a batch and without the trigger "
            f"availableNow: install PySpark {'.'.join(map(str, PYSPARK_MIN))} or newer"
        )


def reason_of(error: Exception) -> str:
    """One line of what Spark says in many: our own error if there is one inside, otherwise the last line of a traceback
    of Python, otherwise the last cause that Java names, otherwise the first line."""
    text = str(error)
    if ours := OURS.findall(text):
        return str(ours[-1])
    causes = [raised for _, raised in RAISED.findall(text)] or CAUSED.findall(text)
    return str(causes[-1]) if causes else text.strip().split("\n")[0]
