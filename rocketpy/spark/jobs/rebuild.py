"""Job rebuild: consume queues and index of a store, made anew from its log (rocketpy/store/rebuilding)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpy.config import MessageStoreConfig
from rocketpy.store.inspection.findings import ProgressListener
from rocketpy.store.inspection.parts import SPLIT_BYTES
from rocketpy.store.inspection.reader import StoreReader
from rocketpy.store.inspection.verify import NO_LISTENER
from rocketpy.store.rebuilding import publishing
from rocketpy.store.rebuilding import rebuild as rebuilding

from .running import run_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rebuild(
    spark: SparkSession | None,
    root: Path,
    target: Path,
    *,
    commitlog: str = "",
    config: MessageStoreConfig | None = None,
    split_bytes: int = SPLIT_BYTES,
    skip_damage: bool = False,
    listener: ProgressListener = NO_LISTENER,
) -> rebuilding.Rebuilt:
    """Rebuild into `target`, a new directory. A task is a piece of the log, some queue files, or an index file.

    Args:
        root: the store, at the same path on every worker, as is `target`. It is only read.
        commitlog: the directory of the CommitLog, if it is not `root`/commitlog.
        config: the store's broker's; without it the sizes of existing files count, and the reference's defaults.
        split_bytes: of the log, for one task.
        skip_damage: go on after damaged records, which are in the result.
    Raises:
        RecordCorrupt: damage. StoreError: something cannot be read or written.
    """
    reader = StoreReader(root.absolute(), commitlog)
    return rebuilding.rebuild(
        reader,
        target.absolute(),
        rebuilding.store_config(reader, config),
        partial(run_parts, spark),
        listener,
        split_bytes=split_bytes,
        skip_damage=skip_damage,
    )


def publish(root: Path, target: Path, commitlog: str = "") -> None:
    """Swap what was rebuilt for the store's files, under the store's lock.

    Raises:
        StoreError: a broker is using the store, or the rebuild is not complete or of another store.
    """
    publishing.publish(StoreReader(root.absolute(), commitlog), target.absolute())
