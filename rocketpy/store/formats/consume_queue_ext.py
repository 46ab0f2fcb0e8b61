"""Extension units of consume queues (ConsumeQueueExt), as values; csrc/store/queues/consume_queue_ext.c writes them.

With enableConsumeQueueExt the third field of a queue's unit is the address of one of these:

    0   i16  size            of the unit: 20 and the filter bits
    2   i64  tags_code       hash of the tags; delivery time (ms) in a delay queue
    10  i64  store_timestamp_ms
    18  i16  bitmap size     in bytes
    20  -    bitmap          filter bits; Java brokers write them for SQL filters

The address is the offset over all files of the queue + the smallest i64. No tags code is that small. Files lie in
`consumequeue_ext/{topic}/{queue}`; existing ones are read even if the option is off.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from ..files import Files, file_name, numbered_files

ADDRESS_MAX = -(1 << 31) - 1
ADDRESS_BASE = -(1 << 63)
EXT_END_SIZE = 4  # kept free at the end of a file
EXT_UNIT = struct.Struct(
    ">h"  # size         of the whole unit
    "q"  # tags_code     hash of the tag; delivery time (ms) in a delay queue
    "q"  # store_timestamp_ms
    "h"  # bitmap size   bytes that follow
)
assert EXT_UNIT.size == 20


class ExtUnit(NamedTuple):
    tags_code: int
    store_timestamp_ms: int
    bitmap: bytes


def is_ext_address(field: int) -> bool:
    """Return True if the third field of a queue's unit is an address."""
    return field <= ADDRESS_MAX


def real_offset(address: int) -> int:
    """Offset of the unit in the queue's extension files."""
    return address - ADDRESS_BASE


def read_ext_unit(files: Files, directory: Path, file_size: int, address: int) -> ExtUnit | None:
    """The unit at an address of the queue whose extension files are in `directory`; None if it is missing or damaged.

    For tools, which do not need the compiled core.
    """
    number, at = divmod(real_offset(address), file_size)
    path = directory / file_name(number * file_size)
    if not is_ext_address(address) or files.info(path) is None:
        return None
    data = files.read(path, at, EXT_UNIT.size)
    if len(data) < EXT_UNIT.size:
        return None
    size, tags_code, store_timestamp_ms, bitmap_size = EXT_UNIT.unpack(data)
    if bitmap_size < 0 or size < EXT_UNIT.size + bitmap_size or at + size + EXT_END_SIZE > file_size:
        return None
    return ExtUnit(tags_code, store_timestamp_ms, files.read(path, at + EXT_UNIT.size, bitmap_size))


def check_ext_files(files: Files, directory: Path, file_size: int) -> None:
    """Check the sizes and names of the extension files of one queue.

    Raises:
        StoreError: a file has another size than configured, or an unexpected name.
    """
    for topic in files.entries(directory):
        for queue in files.entries(directory / topic.name) if topic.is_directory else []:
            if numbered_files(files, directory / topic.name / queue.name, file_size):
                return


def remove_ext_files(files: Files, directory: Path, below: int | None = None) -> int:
    """Remove the extension files of a queue: all, or only files that end at or before `below`. Returns their number."""
    removed = 0
    for info in files.entries(directory):
        if below is None or (info.name.isdecimal() and int(info.name) + info.size <= below):
            files.remove(directory / info.name)
            removed += 1
    if below is None and files.info(directory) is not None:
        files.remove(directory)
    return removed
