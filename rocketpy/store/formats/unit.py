"""The consume queue unit: its bytes and its Python value.

    0   i64  phy_offset   bytes from the start of the CommitLog
    8   i32  size         bytes of the record
    12  i64  tags_code    hash of the tags; delivery time (ms) in a delay queue

Unit n of a queue is at byte 20 n of it; a file is named by its first byte. A pre-blank unit (0, 0x7FFFFFFF, 0) fills
the place of no message: before the first unit of a queue that did not start at 0.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

CQ_STORE_UNIT_SIZE = 20
CQ_UNIT = struct.Struct(
    ">q"  # phy_offset  bytes from the start of the CommitLog
    "i"  # size        bytes of the record
    "q"  # tags_code   hash of the tag; delivery time (ms) in a delay queue
)
assert CQ_UNIT.size == CQ_STORE_UNIT_SIZE
BLANK_SIZE = 0x7FFFFFFF
BLANK_UNIT = CQ_UNIT.pack(0, BLANK_SIZE, 0)


class ConsumeQueueUnit(NamedTuple):
    phy_offset: int
    size: int
    tags_code: int


def rounded_file_size(size: int) -> int:
    """mappedFileSizeConsumeQueue, rounded up to whole units."""
    return -(-size // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE
