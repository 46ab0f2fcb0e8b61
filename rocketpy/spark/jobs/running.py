"""Runs the parts of a job, on Spark's workers or here; and keeps a second run from what the first one writes."""

from __future__ import annotations

import fcntl
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketpy.errors import StoreError
from rocketpy.store.files import translated

from ..worker import Origin, prepare_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketpy.store.inspection.findings import ProgressListener

TASKS_MAX = 10_000  # of one job: the driver keeps the state of each


def run_parts(spark: SparkSession | None, work: Callable[[Any], Any], parts: Sequence[Any]) -> Iterable[Any]:
    """Call `work` with each part. The results come in the order of the parts.

    Args:
        spark: None runs them one after the other in this process.
        work: can be pickled, and gives the same result when a task is tried again.
    """
    if spark is None:
        return map(work, parts)
    if not parts:
        return ()
    context = spark.sparkContext
    is_local = context.master.startswith("local")
    tasks = tasks_of(parts, context.defaultParallelism) if is_local else even_tasks(parts, TASKS_MAX)
    divided = context.parallelize(tasks, len(tasks))
    results: list[Any] = divided.mapPartitions(partial(_work, Origin(), work)).collect()
    return results


def tasks_of(parts: Sequence[Any], cores: int) -> list[Sequence[Any]]:
    """Divide parts, in their order, among tasks for a fixed number of cores.

    Each task has half of a core's share of the parts that remain. So there are few tasks, each of which costs its core
    30 ms, and the last ones are short: no core waits long for another one at the end.
    """
    tasks: list[Sequence[Any]] = []
    at = 0
    while at < len(parts):
        size = -(-(len(parts) - at) // (2 * cores))
        tasks.append(parts[at : at + size])
        at += size
    return tasks


def even_tasks(parts: Sequence[Any], tasks_max: int) -> list[Sequence[Any]]:
    """Divide parts, in their order, into at most `tasks_max` tasks of equal size; the last one may be shorter.

    For a cluster, where executors may be added while a job runs: up to `tasks_max` parts, each is a task of its own.
    """
    size = max(1, -(-len(parts) // tasks_max))
    return [parts[at : at + size] for at in range(0, len(parts), size)]


def run_in_groups(
    spark: SparkSession | None,
    make_work: Callable[[], Callable[[Any], Any]],
    parts: Sequence[Any],
    size: int,
    what: str,
    listener: ProgressListener,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Sequence[Any], list[Any]]]:
    """`run_parts` for `size` parts at a time, for jobs that commit meanwhile.

    Args:
        make_work: called before each group.
        size: at least a part for each core is done at a time.
        is_stopped: asked before each group; True ends the job there.
    Yields: the parts of a group, and their results.
    """
    listener.begin(what, len(parts), "parts")
    done, size = 0, max(size, 1 if spark is None else spark.sparkContext.defaultParallelism)
    for at in range(0, len(parts), size):
        if is_stopped():
            return
        group, results = parts[at : at + size], []
        for result in run_parts(spark, make_work(), group):
            results.append(result)
            listener.reached(done := done + 1)
        yield group, results


def _work(origin: Origin, work: Callable[[Any], Any], tasks: Iterable[Sequence[Any]]) -> Iterable[Any]:
    """In a worker."""
    origin.check()
    prepare_worker()
    return map(work, itertools.chain.from_iterable(tasks))


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock of the file `path`, which is made if it is not there. It is free when this process has ended,
    however that was.

    Raises:
        StoreError: another process holds it; `busy` is what it says. The file cannot be made.
    """
    with translated(path, "open"):
        lock = path.open("ab")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(busy) from None
        yield
