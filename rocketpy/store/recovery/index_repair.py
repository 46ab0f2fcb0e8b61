"""Repairs the index after a power failure, and finds the log offset from which keys must be indexed again.

The reference removes the newest file and loses all its keys of records before the start of its recovery. Here a file
keeps its leading units that are consistent (csrc/store/index/index_file.h), and dispatch continues from there.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
from array import array
from pathlib import Path

from rocketpy.native.core import ffi, lib

from ..files import Files, translated
from ..formats.index_file import INDEX_HEADER, INDEX_SLOT, INDEX_UNIT, index_files, read_header

logger = logging.getLogger(__name__)

BEGIN_TIMESTAMP_AT, END_TIMESTAMP_AT, END_PHY_OFFSET_AT, SLOT_COUNT_AT, INDEX_COUNT_AT = 0, 8, 24, 32, 36
PAGE = 4096
STEP = 1 << 20
WHOLE = (1 << 64) - 1


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
    size = INDEX_HEADER.size + hash_slot_num * INDEX_SLOT.size + index_num * INDEX_UNIT.size
    with translated(path, "repair"), path.open("r+b") as file:
        if not hash_slot_num or os.fstat(file.fileno()).st_size != size:
            return 0, False  # created with other sizes; opening it reports that
        with mmap.mmap(file.fileno(), size) as image:
            is_repaired = repair_image(image, hash_slot_num, index_num, phy_limit)
            end = int.from_bytes(image[END_PHY_OFFSET_AT:SLOT_COUNT_AT], "big")
    if is_repaired is None:
        logger.warning("index file %s removed: it is damaged; its keys will be indexed again", path)
        return None
    if is_repaired:
        logger.warning("index file %s has lost entries: keys will be indexed again from log offset %d on", path, end)
    return end, is_repaired


def repair_image(image: mmap.mmap, hash_slot_num: int, index_num: int, phy_limit: int) -> bool | None:
    """Keep the leading units that are consistent, and make slots and header fit them.

    A slot that names the next unit to be written is inconsistent too: that unit may be lost, or may be used by another
    slot. Returns: whether anything had to be changed; None if no unit can be kept.
    """
    count = int.from_bytes(image[INDEX_COUNT_AT : INDEX_HEADER.size], "big")
    if not 0 < count <= index_num:
        return None
    newest = array("I", bytes(hash_slot_num * INDEX_SLOT.size))
    with ffi.from_buffer("uint8_t[]", image) as units, ffi.from_buffer("uint8_t[]", newest) as slots:
        kept = lib.rp_index_follow(units, hash_slot_num, count, phy_limit, slots)
    wrong = _wrong_slots(image, memoryview(newest).cast("B"))
    if kept == count and not wrong:
        return False
    if kept == 1:
        return None
    for at, data in wrong:
        image[at : at + len(data)] = data
    if kept < count:
        _drop_units(image, INDEX_HEADER.size + hash_slot_num * INDEX_SLOT.size, kept, count)
    struct.pack_into(">II", image, SLOT_COUNT_AT, hash_slot_num - newest.count(0), kept)
    image.flush()
    return True


def _wrong_slots(image: mmap.mmap, newest: memoryview) -> list[tuple[int, bytes]]:
    """(place, right bytes) of each page of slots that is not as `newest`; the others stay as they are, holes too."""
    wrong, end = [], INDEX_HEADER.size + len(newest)
    for page in range(0, end, PAGE):
        low, high = max(page, INDEX_HEADER.size), min(page + PAGE, end)
        right = bytes(newest[low - INDEX_HEADER.size : high - INDEX_HEADER.size])
        if image[low:high] != right:
            wrong.append((low, right))
    return wrong


def _drop_units(image: mmap.mmap, units_at: int, kept: int, count: int) -> None:
    """Zero the units from `kept` on, and let the header end with the one before it."""
    _, phy_offset, seconds, _ = struct.unpack_from(">IQII", image, units_at + (kept - 1) * INDEX_UNIT.size)
    (begin_ms,) = struct.unpack_from(">Q", image, BEGIN_TIMESTAMP_AT)
    struct.pack_into(">Q", image, END_PHY_OFFSET_AT, phy_offset)
    struct.pack_into(">Q", image, END_TIMESTAMP_AT, (begin_ms + seconds * 1000) & WHOLE)
    end = units_at + count * INDEX_UNIT.size
    for at in range(units_at + kept * INDEX_UNIT.size, end, STEP):
        image[at : min(at + STEP, end)] = bytes(min(STEP, end - at))
