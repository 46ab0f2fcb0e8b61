"""Finds the topics of the messages in a part of the log, dispatched or not.

A message with a delay level or a timer, and a half message, are stored in topics of the broker. The topic to which such
a message goes later stands in its properties, and is found as well.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator

import attrs

from rocketpy.message.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, known_topic_fault
from rocketpy.message.numbers import int_or
from rocketpy.message.properties import REAL_QID, REAL_TOPIC, find_property
from rocketpy.message.record import (
    FIXED_SIZE_V4,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_START,
    record_address,
    record_properties,
)

from .commitlog import CommitLog

CHUNK_BYTES = 1 << 16  # 1 to 3 ms
QUEUE_ID_MAX = 65_535
WAITING = frozenset({SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TIMER_TOPIC})
"""The messages of these topics go to other ones."""


@attrs.frozen
class TopicsInLog:
    """The topics that messages in a part of the log name."""

    used: dict[str, int]
    """Topic -> number of queues up to the last one that a message names."""
    until: int
    """The end of the part: a record begins there, or the log ends."""


def topics_in_log(log: CommitLog, begin: int, end: int, size_max: int) -> Generator[None, None, TopicsInLog]:
    """Find the topics of the messages from `begin` on, in steps of at most CHUNK_BYTES or one record.

    Args:
        begin: where a record begins. If a record cannot be read, the rest of its file is passed over.
        end: of the log. size_max: about how much of it to read.
    Raises:
        StoreError: a file of the log cannot be opened now.
    """
    used: dict[str, int] = {}
    begin = position = max(begin, log.control.min_phy_offset)
    while position < end and position - begin < size_max:
        addresses, position = _addresses(log, position, end)
        for topic, queue_id in addresses:
            if used.get(topic, 0) <= queue_id <= QUEUE_ID_MAX:
                used[topic] = queue_id + 1
        yield
    found = {topic: count for topic, count in used.items() if known_topic_fault(topic) is None}
    return TopicsInLog(found, position)


def _addresses(log: CommitLog, position: int, end: int) -> tuple[list[tuple[str, int]], int]:
    """Return the addresses of the records in one piece that is read, and the position of the next record."""
    found: list[tuple[str, int]] = []
    while position < end:
        file_end = min(end, position - position % log.file_size + log.file_size)
        size = _size_of(log.read(position, RECORD_START.size) or b"", 0)
        chunk = log.read(position, max(size, min(CHUNK_BYTES, file_end - position))) if size else None
        if chunk is None:  # the filler at the end of a file
            position = file_end
            continue
        at = 0
        while size and at + size <= len(chunk):
            found.extend(_of_record(chunk[at : at + size]))
            at += size
            size = _size_of(chunk, at)
        return found, position + at
    return found, position


def _size_of(image: bytes, at: int) -> int:
    """The size of the record at `at`; 0: there is none."""
    if at + RECORD_START.size > len(image):
        return 0
    size, magic = RECORD_START.unpack_from(image, at)
    return int(size) if magic in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2) and size >= FIXED_SIZE_V4 else 0


def _of_record(image: bytes) -> Iterator[tuple[str, int]]:
    try:
        topic, queue_id, properties_at = record_address(image)
        yield topic, queue_id
        if topic in WAITING:
            properties = record_properties(image, properties_at)
            real = find_property(properties, REAL_TOPIC.encode()) or b""
            text = find_property(properties, REAL_QID.encode()) or b"0"
            yield real.decode("utf-8", "replace"), int_or(text.decode("utf-8", "replace"), -1)
    except (struct.error, IndexError):  # damaged: dispatch says so
        return
