"""Swaps rebuilt consume queues and index for those of the store, which no broker may be using.

    note what is swapped -> link queues that have no records -> exchange the directories -> move the old ones away

Each swap exchanges two directories in one step of the file system, so that a store whose publication was cut short has
either its old queues or the new ones, and a broker may start with both.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import struct
from pathlib import Path

import attrs

from rocketpy.errors import RecordCorrupt, StoreError
from rocketpy.native.core import ffi

from ..files import Files, translated
from ..inspection.reader import StoreReader
from ..inspection.state_files import read_control, read_deletions
from ..recovery.store_lock import StoreLock
from .rebuild import Rebuilt, deletions_crc, read_manifest, write_json

REPLACED = "replaced"  # below the target: what the store had before
PUBLICATION = "publication.json"
AT_FDCWD, RENAME_EXCHANGE = -100, 2
QUEUES_REPLACED_AT = ffi.offsetof("rp_control", "queues_replaced")
FLAG = struct.Struct("=Q")


@attrs.frozen
class Publication:
    """The notes of a publication, by which the next call completes one that was cut short."""

    consumequeue: int  # inode of the new directory: it is published when the store's directory has it
    index: int | None
    kept: list[list[str | int]]  # topic and queue id of queues that were not rebuilt
    is_complete: bool = False


def publish(reader: StoreReader, target: Path) -> None:
    """Make what `rebuild` has left in `target` the queues and index of the store. May be repeated if it was cut short;
    when it is complete, a repetition does nothing.

    The old files go to `target`/replaced. Queues without records in the log keep their files, so that their offsets go
    on. Units of the new queues have plain tags codes, so the extension files go, too. The next start of a broker finds
    its positions from the files, and dispatches what was stored since the rebuild.

    Raises:
        StoreError: a broker is using the store, the rebuild is not complete, has no records or is of another store,
            topics were deleted since, or `target` is on another file system.
    """
    rebuilt = read_manifest(target)
    paths, files = reader.paths, reader.files
    if not rebuilt.records:
        raise StoreError(f"{target} has nothing to publish: there were no records in the log that it was rebuilt from")
    lock = StoreLock(paths.lock)
    try:
        _check_same(reader, target, rebuilt)
        publication = _read_publication(target)
        if publication is None:
            _check_deletions(reader, target, rebuilt)
            publication = _begin(files, target, has_index=rebuilt.index_files is not None)
        if publication.is_complete:
            return
        _discard_positions(reader)
        if _inode(paths.consumequeue) != publication.consumequeue:
            publication = _keep_queues_without_records(reader, target, publication)
        _swap(files, paths.consumequeue, target, publication.consumequeue)
        if paths.consumequeue_ext.exists():
            _move_aside(files, paths.consumequeue_ext, target)
        if publication.index is not None:
            _swap(files, paths.index, target, publication.index)
        _write_publication(target, attrs.evolve(publication, is_complete=True))
    finally:
        lock.release()


def _discard_positions(reader: StoreReader) -> None:
    """The control block does not know the new files: the next start keeps only deletions of topics of it (ADR 121). If
    another program has used the store since, the next start discards it anyway."""
    control = read_control(reader.files, reader.paths)
    if control is not None and control.is_current:
        reader.files.write(reader.paths.control, QUEUES_REPLACED_AT, FLAG.pack(1), sync=True)


def _check_same(reader: StoreReader, target: Path, rebuilt: Rebuilt) -> None:
    try:
        record = reader.record_at(rebuilt.last_phy_offset)
    except RecordCorrupt:
        record = None
    if record is None or record.store_timestamp_ms != rebuilt.last_store_timestamp_ms:
        raise StoreError(
            f"{target} was not rebuilt from {reader.paths.root}: there is no record of the same time at "
            f"{rebuilt.last_phy_offset}; rebuild again"
        )


def _check_deletions(reader: StoreReader, target: Path, rebuilt: Rebuilt) -> None:
    if deletions_crc(read_deletions(reader.files, reader.paths)) != rebuilt.deletions_crc:
        raise StoreError(f"topics were deleted since {target} was rebuilt: rebuild again")


# --- what the next call must know -----------------------------------------------------------------------------------


def _begin(files: Files, target: Path, *, has_index: bool) -> Publication:
    names = ("consumequeue", "index", REPLACED) if has_index else ("consumequeue", REPLACED)
    for name in names:
        files.make_directory(target / name)  # one without units or keys was not made
    publication = Publication(
        _inode(target / "consumequeue") or 0, _inode(target / "index") if has_index else None, kept=[]
    )
    _write_publication(target, publication)
    return publication


def _read_publication(target: Path) -> Publication | None:
    path = target / PUBLICATION
    try:
        with translated(path, "read"):
            return Publication(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None
    except (ValueError, TypeError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _write_publication(target: Path, publication: Publication) -> None:
    write_json(target / PUBLICATION, attrs.asdict(publication))


def _inode(path: Path) -> int | None:
    with translated(path, "stat"):
        return path.stat().st_ino if path.exists() else None


# --- steps ----------------------------------------------------------------------------------------------------------


def _keep_queues_without_records(reader: StoreReader, target: Path, publication: Publication) -> Publication:
    """Link the files of each queue that was not rebuilt, unless it went with its topic."""
    queues, deleted = target / "consumequeue", read_deletions(reader.files, reader.paths)
    kept = [
        queue
        for queue in reader.queues()
        if (queue.topic, queue.queue_id) not in deleted
        and (
            [queue.topic, queue.queue_id] in publication.kept
            or not (queues / queue.topic / str(queue.queue_id)).exists()
        )
    ]
    publication = attrs.evolve(publication, kept=[[queue.topic, queue.queue_id] for queue in kept])
    _write_publication(target, publication)
    for queue in kept:
        directory = queues / queue.topic / str(queue.queue_id)
        reader.files.make_directory(directory)
        with translated(directory, "write"):
            for info in reader.queue_files(queue):
                if not (directory / info.name).exists():
                    os.link(queue.path / info.name, directory / info.name)
        reader.files.sync_directory(directory)
        reader.files.sync_directory(directory.parent)
    reader.files.sync_directory(queues)
    return publication


def _swap(files: Files, place: Path, target: Path, inode: int) -> None:
    """Put the new directory in the place of the store's, and the old one into `replaced`, as far as it is not done."""
    new = target / place.name
    if _inode(place) != inode:
        with translated(place, "replace"):
            if place.exists():
                _exchange(new, place)
            else:
                new.rename(place)
        files.sync_directory(place.parent)
        files.sync_directory(target)
    if new.exists():
        _move_aside(files, new, target)


def _exchange(one: Path, other: Path) -> None:
    """Rename both to each other's name, in one step.

    Raises: OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _move_aside(files: Files, place: Path, target: Path) -> None:
    names = (
        target / REPLACED / f"{place.name}{suffix}"
        for suffix in itertools.chain([""], map("-{}".format, itertools.count(2)))
    )
    with translated(place, "move"):
        place.rename(next(name for name in names if not name.exists()))
    files.sync_directory(place.parent)
    files.sync_directory(target / REPLACED)
