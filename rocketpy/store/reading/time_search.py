"""Finds the queue offset nearest to a time (RocketMQ 4.9 `ConsumeQueue#getOffsetInQueueByTime`).

The result is the nearest message, the earlier of two at the same distance, and not the first message at or after the
time. The file is chosen by its modification time, so a time between two files belongs to the later one. Clients rely on
these results of the reference.
"""

from __future__ import annotations

from collections.abc import Callable

from ..formats.unit import CQ_STORE_UNIT_SIZE, ConsumeQueueUnit

UnitAt = Callable[[int], ConsumeQueueUnit | None]  # by byte position in the queue
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
    unit_at: UnitAt,
    time_of: TimeOf,
) -> int:
    """`files`: (start in bytes, mtime in ms), ascending."""
    if not files or max_offset <= min_offset:
        return min_offset  # 0, unless everything has expired
    start = choose_file(files, timestamp_ms)
    low = max(0, min_offset * CQ_STORE_UNIT_SIZE - start)
    high = min(file_size, max_offset * CQ_STORE_UNIT_SIZE - start) - CQ_STORE_UNIT_SIZE
    left = right = left_ms = right_ms = -1
    while high >= low:
        middle = (low + high) // (2 * CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE
        unit = unit_at(start + middle)
        if unit is None:
            return 0
        if unit.phy_offset < log_min_phy_offset:
            low, left = middle + CQ_STORE_UNIT_SIZE, middle
            continue
        time_ms = time_of(unit)
        if time_ms < 0:
            return 0
        if time_ms == timestamp_ms:
            return (start + middle) // CQ_STORE_UNIT_SIZE
        if time_ms > timestamp_ms:
            high, right, right_ms = middle - CQ_STORE_UNIT_SIZE, middle, time_ms
        else:
            low, left, left_ms = middle + CQ_STORE_UNIT_SIZE, middle, time_ms
    if left_ms == -1:
        best = right
    elif right_ms == -1:
        best = left
    else:
        best = right if abs(timestamp_ms - left_ms) > abs(timestamp_ms - right_ms) else left
    return max(0, start + best) // CQ_STORE_UNIT_SIZE
