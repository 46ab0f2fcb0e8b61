"""The set-up of each Python process of Spark, and the versions that must be equal in all of them.

Short: readers, writers and jobs all import it, and jobs that run without Spark must not load PySpark.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import attrs

import rocketpy
from rocketpy.errors import ConfigError, RocketError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"  # PySpark reads it when it tells the JVM of an exception
DAEMON = "rocketpy.spark.daemon"  # session.py gives it to Spark, for sessions on one machine
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT_BYTES_MAX = 16 << 20  # of freed memory; some answers and their batches
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@attrs.frozen
class Origin:
    """Versions in the process that made a plan."""

    rocketpy: str = rocketpy.__version__
    python: str = PYTHON

    def check(self) -> None:
        """Raises ConfigError if this process has others."""
        here = Origin()
        if here != self:
            raise ConfigError(
                f"the driver has rocketpy-mq {self.rocketpy} on Python {self.python}, this executor {here.rocketpy} on "
                f"Python {here.python}: install the same versions on every node, and set PYSPARK_PYTHON"
            )


@contextmanager
def reason_first() -> Iterator[None]:
    """Report our errors to the JVM without a traceback, and hide broken pipes of this process for good.

    So Spark's message begins with the reason instead of a page of PySpark's frames. PySpark ends the process after the
    error: no other traceback is lost. A JVM that has its plan closes the connection before PySpark has written its last
    word, which is why broken pipes stay hidden after the block.
    """
    hide_broken_pipes()
    try:
        yield
    except RocketError:
        if _is_of_pyspark():
            os.environ[HIDE_TRACEBACK] = "1"
        raise


def _is_of_pyspark() -> bool:
    """Return True if PySpark has started this process: as a worker, or to plan a query."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and (spec.name.startswith("pyspark.") or spec.name == DAEMON)


class WithoutBrokenPipes:
    """Standard error without the tracebacks of a JVM that has closed its end of the connection.

    `show` and `limit` end tasks early. PySpark then fails to write the remaining rows, and prints that failure although
    nothing is lost. Output of a handler for a BrokenPipeError that PySpark's own code raised is dropped.
    """

    def __init__(self, target: TextIO) -> None:
        self._target = target

    def write(self, text: str) -> int:
        caught = sys.exc_info()[1]
        if isinstance(caught, BrokenPipeError) and _is_raised_by_pyspark(caught):
            return len(text)
        return self._target.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def hide_broken_pipes() -> None:
    """Leave tracebacks of broken pipes out of standard error, here and in forks, if PySpark has started this process.

    A JVM that needs no more rows closes its end of the connection.
    """
    if _is_of_pyspark() and not isinstance(sys.stderr, WithoutBrokenPipes):
        sys.stderr = WithoutBrokenPipes(sys.stderr)


def _is_raised_by_pyspark(error: BaseException) -> bool:
    """Return True if the handler is in the main module, which PySpark provides in its processes, or in its daemon."""
    trace = error.__traceback__
    return trace is not None and trace.tb_frame.f_globals.get("__name__") in ("__main__", "pyspark.daemon")


@functools.cache
def prepare_worker() -> None:
    """Exclude the modules loaded so far from garbage collection, keep freed memory, and hide broken pipes.

    Spark's daemon runs a full collection after each task: 20 to 45 ms, mostly for modules that stay.
    """
    hide_broken_pipes()
    _keep_freed_memory()
    gc.collect()
    gc.freeze()


def _keep_freed_memory() -> None:
    """Let malloc use the memory of one answer or image for the next one, instead of returning it to the system: each of
    its pages would cost a fault again, which took a third of the time of a task that pulls."""
    with contextlib.suppress(AttributeError):  # musl decides by itself
        malloc = ctypes.CDLL(None)
        malloc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES_MAX)
        malloc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
