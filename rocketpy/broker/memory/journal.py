"""A table of keys and values in shared memory that survives its owner: after kill -9 the restarted process reads it.

The owner appends one record per change to the active half of a mapping. When that half fills up, the live entries are
copied to the other half, a few with every append, while changes go to both; then the other half becomes the active one.
A restarted owner reads the active half and appends after its last record.

    mapping  head of 8 cells of 8 bytes, then the two halves
    cells    0 magic   1 layout version << 32 | bytes of a half   2..3 owner (a boot id)   4..7 reserved
    half     4 cells: check, generation, salt, end (bytes of records that are complete); then the records
    record   crc (4), size of the key (4), size of the value or REMOVED (4), key, value; native byte order

The crc of a record includes the crc of the record before it; the first one includes the salt. So old bytes of an
earlier use of the half cannot look like a record. `end` moves when a record is complete, so a death in the middle of a
record leaves nothing of it. Cells are stored by single instructions; a half is valid if its `check` cell matches its
generation and salt, and the valid half with the higher generation is the active one.

Bounds: live entries may take LIVE_SHARE of a half. While a table is larger, the journal is marked as lost, and a
restarted owner starts with an empty table. It is written again when the table has shrunk to RESUME_SHARE. A journal
that is also saved to a file drops its entries when lost, and starts again after a complete save. One append copies at
most COPY_FACTOR times its own size and one record, which is enough to finish a copy before the active half is full.
"""

from __future__ import annotations

import enum
import logging
import os
import struct
import zlib
from collections import ChainMap
from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

MAGIC = int.from_bytes(b"RPTABLE\0", "little")
LAYOUT = 1
CELL = 8
HEAD_CELLS = 8
HALF_CELLS = 4
CHECK, GENERATION, SALT, END = range(HALF_CELLS)
CRC = struct.Struct("=I")
SIZES = struct.Struct("=II")  # of key and value
RECORD_HEAD = CRC.size + SIZES.size
REMOVED = 0xFFFF_FFFF
LIVE_SHARE = 0.75
RESUME_SHARE = 0.5
COPY_FACTOR = 16
HALF_BYTES_MIN = 4096


class Found(enum.Enum):
    """Result of reading a journal at the start of its owner."""

    WHOLE = "whole"
    LOST = "lost"  # damaged, another layout, or marked as lost because the table was too large


class JournalFull(Exception):
    """A record does not fit into the free part of a half; never leaves this module."""


class _Half:
    """One half of the mapping: appending to it and reading it."""

    def __init__(self, memory: memoryview, first_cell: int, bytes_: int) -> None:
        start = first_cell * CELL
        self._cells = memory[start : start + HALF_CELLS * CELL].cast("Q")
        self._bytes = memory[start + HALF_CELLS * CELL : start + bytes_]
        self.capacity = len(self._bytes)
        self.position = 0
        self._crc = 0

    @property
    def generation(self) -> int:
        """0: not valid."""
        check, generation, salt, _ = self._cells
        return generation if check == _check(generation, salt) else 0

    def start(self, salt: int) -> None:
        """Make the half empty; it is not valid until `seal`."""
        _store_cell(self._cells, CHECK, 0)
        _store_cell(self._cells, SALT, salt)
        _store_cell(self._cells, END, 0)
        self.position, self._crc = 0, _crc_of_salt(salt)

    def append(self, tail: bytes) -> None:
        """`tail`: a record without its crc. Raises: JournalFull."""
        end = self.position + CRC.size + len(tail)
        if end > self.capacity:
            raise JournalFull
        crc = zlib.crc32(tail, self._crc)
        _store_bytes(self._bytes, self.position, CRC.pack(crc) + tail)
        _store_cell(self._cells, END, end)  # publishes the record
        self.position, self._crc = end, crc

    def seal(self, generation: int) -> None:
        """Make the half valid, with this generation."""
        _store_cell(self._cells, GENERATION, generation)
        _store_cell(self._cells, CHECK, _check(generation, self._cells[SALT]))

    def give_up(self) -> None:
        _store_cell(self._cells, CHECK, 0)

    def read(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Every complete record; the value is None for a removal. Afterwards records are appended after them.

        Raises:
            ValueError: the records are damaged.
        """
        end = self._cells[END]
        self.position, self._crc = 0, _crc_of_salt(self._cells[SALT])
        if end > self.capacity:
            raise ValueError(f"records end at {end} in a half of {self.capacity} bytes")
        while self.position < end:
            key, value = self._read_one(end)
            yield key, value

    def _read_one(self, end: int) -> tuple[bytes, bytes | None]:
        start = self.position
        if end - start < RECORD_HEAD:
            raise ValueError(f"{end - start} bytes are left for the record at {start}")
        (crc,) = CRC.unpack_from(self._bytes, start)
        key_size, value_size = SIZES.unpack_from(self._bytes, start + CRC.size)
        key_end = start + RECORD_HEAD + key_size
        record_end = key_end + (0 if value_size == REMOVED else value_size)
        if record_end > end or zlib.crc32(self._bytes[start + CRC.size : record_end], self._crc) != crc:
            raise ValueError(f"the record at {start} does not fit its checksum")
        self.position, self._crc = record_end, crc
        key = bytes(self._bytes[start + RECORD_HEAD : key_end])
        return key, None if value_size == REMOVED else bytes(self._bytes[key_end:record_end])


class Journal:
    """The owner's end; one process at a time. Not thread-safe.

    `begin_save` and `end_save` are for a table that is also saved to a file: entries that were put before a save began
    are dropped when that save has succeeded. Entries of such a table are never removed, because the file would still
    have them.
    """

    def __init__(
        self,
        name: str,
        memory: memoryview,
        salt: Callable[[], int] = lambda: int.from_bytes(os.urandom(8), "little"),
        *,
        is_saved: bool = False,
        remedy: str = "raise sharedMemoryMax",
    ) -> None:
        """Read the entries of the previous owner.

        Args:
            name: what the table holds, for the log.
            memory: a shared mapping that `format_memory` has prepared; borrowed for the life of the journal.
            is_saved: the entries also go to a file.
            remedy: what the log tells the operator to do when the table outgrows its memory.
        """
        half_bytes = half_bytes_of(memory)
        self._name = name
        self._remedy = remedy
        self._salt = salt
        self._halves = [_Half(memory, HEAD_CELLS + n * (half_bytes // CELL), half_bytes) for n in (0, 1)]
        self._entries: dict[bytes, bytes] = {}
        self._saving: dict[bytes, bytes] = {}  # put before the current save
        self._is_saved = is_saved
        self._is_deaf = False  # lost, and no save has begun since
        self._live_bytes = 0  # of both
        self._generation = 0
        self._active: _Half | None = None
        self._copy: _Half | None = None
        self._left: Iterator[bytes] = iter(())
        self._live_max = int(self._halves[0].capacity * LIVE_SHARE)
        self.found = self._recover(memory, half_bytes)

    @classmethod
    def private(cls, name: str, *, is_saved: bool = False) -> Journal:
        """A journal in private memory, which no other process inherits."""
        memory = memoryview(bytearray(1 << 16))
        format_memory(memory)
        return cls(name, memory, is_saved=is_saved)

    # -- records of the previous manager

    def _recover(self, memory: memoryview, half_bytes: int) -> Found:
        half = max(self._halves, key=lambda half: half.generation)
        try:
            if not is_formatted(memory, half_bytes):
                raise ValueError("the layout of the memory differs")
            if half.generation == 0:
                raise ValueError("they did not fit into the shared memory")
            for key, value in half.read():
                self._apply(key, value)
        except ValueError as exc:
            logger.warning("cannot restore the %s of the previous manager: %s; starting without them", self._name, exc)
            self._entries.clear()
            self._live_bytes = 0
            format_memory(memory, owner=owner_of(memory), salt=self._salt())
            self._active, self._generation = self._halves[0], 1
            list(self._active.read())
            return Found.LOST
        self._active, self._generation = half, half.generation
        return Found.WHOLE

    def _apply(self, key: bytes, value: bytes | None) -> None:
        before = self._entries.pop(key, None)
        if before is not None:
            self._live_bytes -= _record_bytes(key, before)
        if value is not None:
            self._entries[key] = value
            self._live_bytes += _record_bytes(key, value)

    # -- changes

    @property
    def entries(self) -> dict[bytes, bytes]:
        """The entries; directly after construction those of the previous owner."""
        return dict(ChainMap(self._entries, self._saving)) if self._saving else self._entries

    @property
    def live_bytes(self) -> int:
        return self._live_bytes

    @property
    def live_max(self) -> int:
        """Largest size of the live entries in bytes; a larger table is marked as lost."""
        return self._live_max

    @property
    def is_lost(self) -> bool:
        """Return True if the table is too large: a restarted owner would start without it."""
        return self._active is None

    def put(self, key: bytes, value: bytes) -> None:
        """Enter or replace; complete when it returns."""
        if self._is_deaf or self._entries.get(key) == value:
            return
        self._apply(key, value)
        self._append(SIZES.pack(len(key), len(value)) + key + value)

    def remove(self, key: bytes) -> None:
        if key in self._entries:
            self._apply(key, None)
            self._append(SIZES.pack(len(key), REMOVED) + key)

    def begin_save(self) -> None:
        """A save of all entries begins. After a failed save, the next one covers both."""
        self._is_deaf = False
        if not self._saving:
            self._saving, self._entries = self._entries, {}

    def end_save(self) -> None:
        """The save has succeeded: entries that were put before it began are dropped, because the file has them."""
        self._live_bytes -= sum(_record_bytes(key, value) for key, value in self._saving.items())
        self._saving = {}
        if self._active is None and not self._is_deaf:
            self._begin_copy()
            self._go_on_copying(COPY_FACTOR)
        else:
            self._resume_if_small()

    # -- writing

    def _append(self, tail: bytes) -> None:
        if self._live_bytes > self._live_max:
            self._lose()
            return
        try:
            if self._copy is not None:
                self._copy.append(tail)
            if self._active is not None:
                self._active.append(tail)
        except JournalFull:
            self._finish_copy()  # a record larger than the reserve; the copy already has it or takes it from the table
            return
        self._resume_if_small()
        self._go_on_copying(COPY_FACTOR * len(tail))

    def _resume_if_small(self) -> None:
        if self._copy is not None:
            return
        if self._active is None:
            if not self._is_saved and self._live_bytes <= self._halves[0].capacity * RESUME_SHARE:
                self._begin_copy()
        elif self._active.capacity - self._active.position <= self._live_bytes // 8 + RECORD_HEAD:
            self._begin_copy()

    def _begin_copy(self) -> None:
        self._copy = self._halves[1] if self._active is self._halves[0] else self._halves[0]
        self._copy.start(self._salt())
        self._left = iter([*self._entries, *(key for key in self._saving if key not in self._entries)])

    def _go_on_copying(self, budget_bytes: int) -> None:
        if self._copy is None:
            return
        for key in self._left:
            value = self._entries.get(key, self._saving.get(key))
            if value is None:
                continue
            try:
                self._copy.append(SIZES.pack(len(key), len(value)) + key + value)
            except JournalFull:  # too many changes during the copy: begin again
                self._begin_copy()
                return
            budget_bytes -= _record_bytes(key, value)
            if budget_bytes <= 0:
                return
        self._generation += 1
        self._copy.seal(self._generation)
        if self._active is None:
            logger.warning("shared memory has room again for %s: a restarted manager will restore them", self._name)
        self._active, self._copy = self._copy, None

    def _finish_copy(self) -> None:
        self._begin_copy()
        self._go_on_copying(self._halves[0].capacity)
        assert self._copy is None, "live entries fit a half"

    def _lose(self) -> None:
        if self._active is not None:
            logger.error(
                "shared memory is too small for %s of %d bytes: a restarted manager will start without them; %s",
                self._name,
                self._live_bytes,
                self._remedy,
            )
        for half in self._halves:
            half.give_up()
        self._active = self._copy = None
        if self._is_saved:
            self._entries, self._saving, self._live_bytes, self._is_deaf = {}, {}, 0, True


# -- the mapping


def format_memory(memory: memoryview, *, owner: bytes = bytes(16), salt: int = 0) -> None:
    """Create an empty table in any memory. `owner`: 16 bytes that identify the owner, see `owner_of`."""
    assert len(owner) == 2 * CELL
    half_bytes = half_bytes_of(memory)
    cells = memory[: HEAD_CELLS * CELL].cast("Q")
    cells[0] = 0
    memory[2 * CELL : 4 * CELL] = owner
    halves = [_Half(memory, HEAD_CELLS + n * (half_bytes // CELL), half_bytes) for n in (0, 1)]
    for half in halves:
        half.start(salt)
    halves[0].seal(1)
    cells[1] = LAYOUT << 32 | half_bytes
    cells[0] = MAGIC


def is_formatted(memory: memoryview, half_bytes: int) -> bool:
    """Return True if the mapping is a journal in this layout and of this size."""
    cells = memory[: HEAD_CELLS * CELL].cast("Q")
    return bool(cells[0] == MAGIC and cells[1] == LAYOUT << 32 | half_bytes)


def owner_of(memory: memoryview) -> bytes:
    """The 16 bytes that `format_memory` was given."""
    return bytes(memory[2 * CELL : 4 * CELL])


def half_bytes_of(memory: memoryview) -> int:
    """Size of each half of a mapping, in bytes."""
    half_bytes = (len(memory) - HEAD_CELLS * CELL) // 2 // CELL * CELL
    assert half_bytes >= HALF_BYTES_MIN, f"{len(memory)} bytes are too few"
    return half_bytes


def _store_cell(cells: memoryview, index: int, value: int) -> None:
    """Store an aligned word atomically."""
    cells[index] = value


def _store_bytes(memory: memoryview, start: int, data: bytes) -> None:
    """Copy bytes; not atomic."""
    memory[start : start + len(data)] = data


def _check(generation: int, salt: int) -> int:
    return 1 << 32 | zlib.crc32(struct.pack("=QQI", generation, salt, LAYOUT)) if generation else 0


def _crc_of_salt(salt: int) -> int:
    return zlib.crc32(salt.to_bytes(CELL, "little"))


def _record_bytes(key: bytes, value: bytes) -> int:
    return RECORD_HEAD + len(key) + len(value)
