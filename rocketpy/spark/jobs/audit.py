"""Job audit: checks every record, unit and index entry of a store, as `rocketpy store verify` does, on many cores."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpy.store.inspection.findings import ProgressListener
from rocketpy.store.inspection.reader import StoreReader
from rocketpy.store.inspection.verify import NO_LISTENER, VerifyReport
from rocketpy.store.inspection.verify_parts import verify_in_parts

from .running import run_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def audit(
    spark: SparkSession | None,
    root: Path,
    *,
    commitlog: str = "",
    slots: int | None = None,
    listener: ProgressListener = NO_LISTENER,
) -> VerifyReport:
    """Check a store. A task is a file of the log, 256 queues, or an index file.

    Args:
        root: the store's directory, at the same path on every worker. It is never written.
        commitlog: the directory of the CommitLog, if it is not `root`/commitlog.
        slots: maxHashSlotNum, if it cannot be derived from the size of an index file.
    Raises:
        StoreError: something cannot be read at all.
    """
    reader = StoreReader(root.absolute(), commitlog)
    return verify_in_parts(reader, partial(run_parts, spark), listener, commitlog=commitlog, slots=slots)
