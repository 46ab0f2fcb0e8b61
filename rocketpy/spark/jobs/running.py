"""Runs the parts of a job: on Spark's workers, or here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..worker import Origin, prepare_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_MAX = 10_000  # of one job: the driver keeps the state of each
LOCAL_TASKS = 4  # for each core of a `local` master; elsewhere executors may be added while a job runs


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
    tasks = min(len(parts), LOCAL_TASKS * context.defaultParallelism if is_local else TASKS_MAX)
    divided = context.parallelize(parts, tasks)
    results: list[Any] = divided.mapPartitions(partial(_work, Origin(), work)).collect()
    return results


def _work(origin: Origin, work: Callable[[Any], Any], parts: Iterable[Any]) -> Iterable[Any]:
    """In a worker."""
    origin.check()
    prepare_worker()
    return map(work, parts)
