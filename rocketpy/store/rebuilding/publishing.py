"""Swaps rebuilt consume queues and index for those of the store, which no broker may be using."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from rocketpy.errors import RecordCorrupt, StoreError

from ..files import Files, translated
from ..inspection.reader import StoreReader
from ..inspection.state_files import read_deletions
from ..recovery.store_lock import StoreLock
from .rebuild import Rebuilt, read_manifest

REPLACED = "replaced"  # below the target: what the store had before


def publish(reader: StoreReader, target: Path) -> None:
    """Make what `rebuild` has left in `target` the queues and index of the store. May be repeated if it was cut short.

    The old files go to `target`/replaced. Queues without records in the log keep their last file, so that their
    offsets go on. Units of the new queues have plain tags codes, so the extension files go, too. The next start of a
    broker finds its positions from the files, and dispatches what was stored since the rebuild.

    Raises:
        StoreError: a broker is using the store, the rebuild is not complete or of another store, or `target` is on
            another file system.
    """
    rebuilt = read_manifest(target)
    paths, files = reader.paths, reader.files
    lock = StoreLock(paths.lock)
    try:
        _check_same(reader, target, rebuilt)
        if (target / "consumequeue").exists():
            _keep_queues_without_records(reader, target / "consumequeue")
        lock.sign()  # the control block is discarded by this: it does not know the new files
        (target / REPLACED).mkdir(exist_ok=True)
        _swap(files, paths.consumequeue, target, needed=bool(rebuilt.units))
        if paths.consumequeue_ext.exists():
            _move_aside(paths.consumequeue_ext, target)
        if rebuilt.index_files is not None:
            _swap(files, paths.index, target, needed=bool(rebuilt.index_files))
        files.sync_directory(paths.root)
    finally:
        lock.release()


def _check_same(reader: StoreReader, target: Path, rebuilt: Rebuilt) -> None:
    if not rebuilt.records:
        return
    try:
        record = reader.record_at(rebuilt.last_phy_offset)
    except RecordCorrupt:
        record = None
    if record is None or record.store_timestamp_ms != rebuilt.last_store_timestamp_ms:
        raise StoreError(
            f"{target} was not rebuilt from {reader.paths.root}: there is no record of the same time at "
            f"{rebuilt.last_phy_offset}; rebuild again"
        )


def _keep_queues_without_records(reader: StoreReader, queues: Path) -> None:
    """Link the last file of each queue that was not rebuilt, unless it went with its topic."""
    deleted = read_deletions(reader.files, reader.paths)
    for queue in reader.queues():
        directory = queues / queue.topic / str(queue.queue_id)
        infos = reader.queue_files(queue)
        if infos and not directory.exists() and (queue.topic, queue.queue_id) not in deleted:
            with translated(directory, "write"):
                directory.mkdir(parents=True)
                os.link(queue.path / infos[-1].name, directory / infos[-1].name)


def _swap(files: Files, place: Path, target: Path, *, needed: bool) -> None:
    """Move the old directory to `replaced` and the new one to its place, if that is still to be done."""
    new = target / place.name
    if not new.exists() and needed:
        return  # an earlier call has done it
    if place.exists():
        _move_aside(place, target)
    if new.exists():
        with translated(place, "replace"):
            new.replace(place)
    files.sync_directory(place.parent)


def _move_aside(place: Path, target: Path) -> None:
    names = (
        target / REPLACED / f"{place.name}{suffix}"
        for suffix in itertools.chain([""], map("-{}".format, itertools.count(2)))
    )
    with translated(place, "move"):
        place.replace(next(name for name in names if not name.exists()))
