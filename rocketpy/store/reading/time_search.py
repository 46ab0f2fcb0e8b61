"""Finds queue offsets by store time: the nearest one, and the first one at or after a time.

`offset_by_time` is the answer to clients (RocketMQ 4.9 `ConsumeQueue#getOffsetInQueueByTime`): the nearest message, the
earlier of two at the same distance, and any of several with the same time. The file is chosen by its modification time,
so a time between two files belongs to the later one. Clients rely on these results of the reference.
"""

from __future__ import annotations

from collections.abc import Callable

from ..formats.unit import CQ_STORE_UNIT_SIZE, ConsumeQueueUnit, ReadUnits, next_unit

TimeOf = Callable[[ConsumeQueueUnit], int]  # store time, -1 if the record cannot be read


def choose_file(files: list[tuple[int, int]], timestamp_ms: int) -> int:
    """Start of the first file modified at or after the time, else of the last one."""
    for start, mtime_ms in files:
        if mtime_ms >= timestamp_ms:
            return start
    return files[-1][0]


def offset_by_time(
    files: list[tuple[int, int]],
    file_size: int,
    min_offset: int,
    max_offset: int,
    log_min_phy_offset: int,
    timestamp_ms: int,
    read: ReadUnits,
    time_of: TimeOf,
) -> int:
    """`files`: (start in bytes, mtime in ms), ascending.

    A pre-blank unit is passed over, to the next one that is none. The reference returns 0 when it meets one.
    """
    if not files or max_offset <= min_offset:
        return min_offset  # 0, unless everything has expired
    start = choose_file(files, timestamp_ms) // CQ_STORE_UNIT_SIZE
    low, high = max(start, min_offset), min(start + file_size // CQ_STORE_UNIT_SIZE, max_offset) - 1
    left = right = left_ms = right_ms = -1
    while high >= low:
        middle = (low + high) // 2
        at, unit = next_unit(read, middle, high + 1)
        if at > high:
            high = middle - 1
            continue
        if unit is None:
            return 0
        if unit.phy_offset < log_min_phy_offset:
            low, left = at + 1, at
            continue
        time_ms = time_of(unit)
        if time_ms < 0:
            return 0
        if time_ms == timestamp_ms:
            return at
        if time_ms > timestamp_ms:
            high, right, right_ms = middle - 1, at, time_ms
        else:
            low, left, left_ms = at + 1, at, time_ms
    if left_ms == -1:
        best = right
    elif right_ms == -1:
        best = left
    else:
        best = right if abs(timestamp_ms - left_ms) > abs(timestamp_ms - right_ms) else left
    return best if best >= 0 else max(0, start - 1)


def offset_since(
    min_offset: int, max_offset: int, log_min_phy_offset: int, timestamp_ms: int, read: ReadUnits, time_of: TimeOf
) -> int:
    """The first offset whose message was stored at or after the time; `max_offset` if there is none.

    Messages that cannot be read count as not older, so that none before them is passed over.
    """
    low, high = min_offset, max_offset
    while low < high:
        middle = (low + high) // 2
        at, unit = next_unit(read, middle, high)
        is_older = False
        if unit is not None:
            is_older = unit.phy_offset < log_min_phy_offset or 0 <= time_of(unit) < timestamp_ms
        if is_older:
            low = at + 1
        else:
            high = middle
    return high
