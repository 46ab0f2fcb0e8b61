"""A scan of a log: which records it selects, what it checks, and the rows and bad places that a step of it has found.

These values are the contract between the decoder and the code that finds rows. Records are selected one by one, before
anything is decoded.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import attrs

from rocketpy.errors import CompressionError
from rocketpy.message.compression import INFLATED_SIZE_MAX
from rocketpy.message.numbers import LONG_MAX, LONG_MIN
from rocketpy.native import Status

TIME_MIN_MS, TIME_MAX_MS = LONG_MIN, LONG_MAX
OFFSET_MIN, OFFSET_MAX = LONG_MIN, LONG_MAX
RECORD_SIZE_MAX = INFLATED_SIZE_MAX + (1 << 20)
BATCH_ROWS, BATCH_BYTES = 8192, 2 << 20
"""Default limits of a batch. PySpark and the JVM take 0.1 to 0.4 ms for one, however few rows it has. With 1 MiB
a scan of all columns took 15 % more CPU time; with 4 MiB no less, and the JVM had twice the page faults."""


@attrs.frozen(kw_only=True)
class Selection:
    """The wanted records; empty sets select all."""

    topics: frozenset[str] = frozenset()
    queue_ids: frozenset[int] = frozenset()
    tags: frozenset[str] = frozenset()
    condition: str | None = None  # SQL92
    store_time_from_ms: int = TIME_MIN_MS
    store_time_to_ms: int = TIME_MAX_MS  # exclusive
    queue_offset_from: int = OFFSET_MIN
    queue_offset_to: int = OFFSET_MAX  # exclusive
    committed_only: bool = False  # leave out half messages, their marks, and rolled back ones


@attrs.frozen(kw_only=True)
class Checks:
    """The checks of a record beside its structure, and the limits of a batch of rows."""

    crc: bool = False
    place: bool = False  # its own phy offset is its place
    record_size_max: int = RECORD_SIZE_MAX
    rows_max: int = BATCH_ROWS
    bytes_max: int = BATCH_BYTES
    decompress: bool = True


@attrs.frozen
class Found:
    """Rows, and why the step ended.

    `status`: OK at the stop; FULL: a batch is complete; END_OF_FILE: a blank; EMPTY: zeros; INCOMPLETE: the record at
    `position` goes beyond the image; CORRUPT: there is no valid record at `position`.
    """

    status: Status
    position: int  # in the image
    records: int  # looked at
    rows: int
    compressed: int  # rows with a compressed body


class Rows(Protocol):
    """A finder of rows, which also makes columns of them; native_rows.py describes the methods."""

    def image(self, data: Any) -> contextlib.AbstractContextManager[Any]: ...

    def find(self, image: Any, start: int, position: int, stop: int) -> Found: ...

    def resync(self, image: Any, start: int, position: int, stop: int) -> int | None: ...

    def inflate(self, row: int) -> tuple[int, CompressionError | None]: ...

    def forget(self, first: int, count: int) -> None: ...

    def arrange(self, first: int, order: Any) -> None: ...

    def column(self, name: str, first: int, count: int) -> Any: ...


@attrs.frozen
class BadPlace:
    """Bytes of the log, and why they are no message, or one whose body cannot be decompressed."""

    phy_offset: int
    size: int
    reason: str
