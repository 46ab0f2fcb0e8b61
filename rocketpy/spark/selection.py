"""Which records a query wants. It is decided record by record, before anything is decoded."""

from __future__ import annotations

import attrs

from rocketpy.message.compression import INFLATED_SIZE_MAX
from rocketpy.message.numbers import LONG_MAX, LONG_MIN

TIME_MIN_MS, TIME_MAX_MS = LONG_MIN, LONG_MAX
OFFSET_MIN, OFFSET_MAX = LONG_MIN, LONG_MAX
RECORD_SIZE_MAX = INFLATED_SIZE_MAX + (1 << 20)


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
    rows_max: int = 4096
    bytes_max: int = 1 << 20
    decompress: bool = True
