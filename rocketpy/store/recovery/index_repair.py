"""Repairs the index after a power failure, and finds the log offset from which keys must be indexed again.

The reference removes the newest file and loses all its keys of records before the start of its recovery. Here a file
keeps its consistent units (csrc/store/index/index_file.h), and dispatch continues from there.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from ..control_block import fail
from ..files import Files
from ..formats.index_file import index_files, read_header

logger = logging.getLogger(__name__)


def repair_index(
    files: Files,
    directory: Path,
    hash_slot_num: int,
    index_num: int,
    synced_until_ms: int,
    phy_limit: int,
    *,
    has_failed_sync: bool = False,
) -> int | None:
    """Repair the files that may not have been on the disk completely, newest first.

    Args:
        phy_limit: keys of records from here on are indexed again; existing ones may belong to lost records.
        synced_until_ms: store time up to which the index is on the disk, by the checkpoint. has_failed_sync: a sync has
        failed, so later files may be in the page cache only, although the kernel marks them clean. They are removed: a
        file that looks complete now could lack units when it is read from the disk.
    Returns: the log offset from which keys may be missing; None if the index has and had no files.
    Raises:
        StoreError: a file cannot be read or written.
    """
    paths = index_files(files, directory)
    end = 0
    following: list[Path] = []
    for path in reversed(paths):
        is_lost = has_failed_sync and not _is_synced(files, path, synced_until_ms)
        found = None if is_lost else _repair(path, hash_slot_num, index_num, phy_limit)
        if found is None or found[1]:  # lost keys are added to the newest file: later files must go
            for later in following:
                files.remove(later)
            following, end = [], 0
        if found is None:
            if is_lost:
                logger.warning(
                    "index file %s removed: the last sync of it failed; its keys will be indexed again", path
                )
            files.remove(path)
            continue
        end = end if following else found[0]
        following.append(path)
        if _is_synced(files, path, synced_until_ms):
            break
    return end if paths else None


def _is_synced(files: Files, path: Path, synced_until_ms: int) -> bool:
    header = read_header(files, path)
    return header is not None and 0 < header.end_timestamp_ms <= synced_until_ms


def _repair(path: Path, hash_slot_num: int, index_num: int, phy_limit: int) -> tuple[int, bool] | None:
    """(log offset of its end, whether it was repaired), or None if no unit can be kept."""
    end, is_repaired = ffi.new("uint64_t *"), ffi.new("int *")
    status = lib.rp_index_repair(os.fsencode(path), hash_slot_num, index_num, phy_limit, end, is_repaired)
    if status == Status.EMPTY:
        logger.warning("index file %s removed: it is damaged; its keys will be indexed again", path)
        return None
    if status == Status.CORRUPT:
        return 0, False  # created with other sizes; opening it reports that
    if status != Status.OK:
        raise fail(f"cannot repair {path}", status)
    if is_repaired[0]:
        logger.warning("index file %s has lost entries: keys will be indexed again from log offset %d on", path, end[0])
    return int(end[0]), bool(is_repaired[0])
