"""The consume queue unit: its bytes and its Python value; the delay levels, which decide the times in delay queues.

    0   i64  phy_offset   bytes from the start of the CommitLog
    8   i32  size         bytes of the record
    12  i64  tags_code    hash of the tags; delivery time (ms) in a delay queue

Unit n of a queue is at byte 20 n of it; a file is named by its first byte. A pre-blank unit (0, 0x7FFFFFFF, 0) fills
the place of no message: before the first unit of a queue that did not start at 0, or where messages were damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from rocketpy.errors import ConfigError
from rocketpy.message.numbers import int_or

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


ReadUnits = Callable[[int, int], bytes]
"""`read(offset, count)`: up to `count` units from `offset` on, of one file; nothing if the file is missing."""
BLANKS_MAX = 4096  # read at once
BLANKS = BLANK_UNIT * BLANKS_MAX


def first_unit_at(read: ReadUnits, low: int, high: int, phy_offset: int) -> int:
    """The first unit in [low, high) whose record is at or after `phy_offset`; `high` if there is none.

    Units of a missing file count as older ones.
    """
    end = high
    while low < high:
        middle = (low + high) // 2
        at, unit = next_unit(read, middle, high)
        if at == high:
            high = middle  # all blank
        elif unit is None or unit.phy_offset < phy_offset:
            low = at + 1
        else:
            high = middle
    return next_unit(read, low, end)[0]


def next_unit(read: ReadUnits, at: int, end: int) -> tuple[int, ConsumeQueueUnit | None]:
    """The first unit in [at, end) that is not pre-blank, and its offset; None: its file is missing. (end, None): all
    are pre-blank."""
    count = 1  # mostly the next one is it
    while at < end:
        data = read(at, min(end - at, count))
        if not data:
            return at, None
        count = min(16 * count, BLANKS_MAX)
        if not BLANKS.startswith(data):
            for unit in CQ_UNIT.iter_unpack(data):
                if unit[1] != BLANK_SIZE:
                    return at, ConsumeQueueUnit(*unit)
                at += 1
        else:
            at += len(data) // CQ_STORE_UNIT_SIZE
    return end, None


def rounded_file_size(size: int) -> int:
    """mappedFileSizeConsumeQueue, rounded up to whole units."""
    return -(-size // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE


UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> list[int]:
    """messageDelayLevel as milliseconds: the delay of level 1, 2, ...

    Dispatch needs it before the first delayed record: units of the delay topic hold the time of delivery.

    Raises:
        ConfigError: a piece that is not a number and one of s, m, h, d.
    """
    levels = []
    for piece in text.split():
        unit_ms = UNIT_MS.get(piece[-1], 0)
        number = int_or(piece[:-1], -1)
        if number < 0 or not unit_ms:
            reason = f"{piece[:40]!r} is not a delay; expected a number and one of s, m, h, d"
            raise ConfigError(reason, key="messageDelayLevel")
        levels.append(number * unit_ms)
    return levels
