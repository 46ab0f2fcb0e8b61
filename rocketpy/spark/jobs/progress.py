"""Tells a listener how far a step of Spark is, while the step runs in another thread's call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketpy.store.inspection.findings import ProgressListener

logger = logging.getLogger(__name__)

INTERVAL_S = 0.5
STOP_S = 10.0

Watch = Callable[[], None]
"""Looks how far it is and tells the listener."""


@contextmanager
def watching(watch: Watch, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Call `watch` every `interval_s` seconds, in a thread. What it raises is logged: progress is never the work."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(interval_s):
            try:
                watch()
            except Exception as error:  # of any library between here and the broker
                logger.debug("progress is not known: %s", error)

    thread = threading.Thread(target=run, name="rocketpy-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(STOP_S)


def watch_tasks(spark: SparkSession, listener: ProgressListener, what: str) -> Watch:
    """Counts the tasks of the stages that run."""
    tracker = spark.sparkContext.statusTracker()
    begun = [0]

    def watch() -> None:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        total = sum(stage.numTasks for stage in stages if stage is not None)
        if total and total != begun[0]:
            listener.begin(what, total, "tasks")
            begun[0] = total
        if total:
            listener.reached(sum(stage.numCompletedTasks for stage in stages if stage is not None))

    return watch
