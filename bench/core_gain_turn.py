"""Turns of bench.core_gain: times of a piece of work, and the records that both sides get."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

import attrs

from tests.support.records import Record
from tests.support.store_writer import BORN_HOST, STORE_HOST

FILE_SIZE, CQ_FILE_SIZE = 1 << 26, 20 * 300_000
START_MS = 1_700_000_000_000
BODY = bytes(range(256)) * 4
PROPERTIES = b"KEYS\x01order-1\x02UNIQ_KEY\x010A00000100002A9F00000000000000AA\x02TAGS\x01TagA"
POSITION = Struct(">q")
HEAD = Struct(">iiIiiqqi")  # of a record, up to the sys flag
SIZE, SHORT = Struct(">i"), Struct(">h")


@attrs.frozen
class Turn:
    """CPU nanoseconds of one turn on either side."""

    c_ns: int
    python_ns: int


def spent(work: Callable[[], Any]) -> int:
    """Return the CPU nanoseconds of this thread in `work`."""
    begun = time.thread_time_ns()
    work()
    return time.thread_time_ns() - begun


def repeated(call: Callable[..., Any], *arguments: Any, times: int) -> int:
    """Return the nanoseconds of `times` calls."""

    def loop() -> None:
        for _ in range(times):
            call(*arguments)

    return spent(loop)


def image_file(path: Path, size: int) -> mmap.mmap:
    """Make a new file and map it; its pages are in memory, as those of a prepared log file are."""
    path.write_bytes(bytes(size))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), size)


def prepare_log(root: Path) -> None:
    """Create the first log file as the broker does before it is needed: with its pages in memory."""
    (root / "commitlog").mkdir()
    (root / "commitlog" / f"{0:020d}").write_bytes(bytes(FILE_SIZE))


def fields_of(log: Any, at: int) -> tuple[int, int, int, int, bytes, bytes]:
    """Size, queue id, queue offset, body CRC, topic and properties of the record at `at`, as dispatch needs them."""
    size, _magic, crc, queue_id, _flag, queue_offset, _at, _sys_flag = HEAD.unpack_from(log, at)
    body_at = at + 88
    topic_at = body_at + SIZE.unpack_from(log, body_at - 4)[0] + 1
    properties_at = topic_at + log[topic_at - 1]
    properties_size = SHORT.unpack_from(log, properties_at)[0]
    topic = bytes(log[topic_at:properties_at])
    return (
        size, queue_id, queue_offset, crc, topic, bytes(log[properties_at + 2 : properties_at + 2 + properties_size]),
    )  # fmt: skip


def message(number: int, body: bytes = BODY) -> Record:
    properties = b"KEYS\x01order-%d\x02TAGS\x01Tag%s" % (number, b"AB"[number % 2 : number % 2 + 1])
    return Record(
        topic="TopicTest", body=body, properties=properties, queue_id=number % 8, born_timestamp_ms=START_MS,
        born_host=BORN_HOST, store_timestamp_ms=START_MS, store_host=STORE_HOST,
    )  # fmt: skip
