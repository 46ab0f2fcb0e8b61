"""Looks for keys of records that the index lacks: a query by such a key does not find its message.

An index file covers the log from the first record in it up to the first one in the next file. The keys of these records
are collected in C (csrc/store/recovery/rebuild.h), as a rebuild of the index would. A sound index has them in the same
order, so most batches are compared as bytes.
"""

from __future__ import annotations

import bisect
import struct
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import compress, count, islice
from operator import gt
from pathlib import Path
from typing import Any, Self

import attrs

from rocketpy.errors import StoreError
from rocketpy.message.properties import decode_properties
from rocketpy.message.tags import index_hash, index_keys
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from ..formats.index_file import INDEX_HEADER, INDEX_UNIT, IndexHeader
from .reader import StoreReader

UNIT_OFFSET = struct.Struct(">4xq")
UNIT_WORDS, UNIT_COLUMNS = 5, (0, 1, 2)  # of 4 bytes: hash, phy offset
KEY_WORDS, KEY_COLUMNS = 6, (4, 1, 0)  # of rp_index_key, little-endian
STEP = 1 << 16  # units whose order is looked at together
assert (INDEX_UNIT.size, ffi.sizeof("rp_index_key")) == (4 * UNIT_WORDS, 4 * KEY_WORDS)

Columns = list["array[int]"]
"""Hashes, and both halves of the phy offsets."""


@attrs.frozen
class MissingKeys:
    """The keys of a file's range that are in no unit: their number, and the first of them."""

    count: int
    phy_offset: int
    key_hash: int

    def describe(self, reader: StoreReader) -> str:
        record = reader.record_at(self.phy_offset)
        properties = decode_properties(record.properties.decode("utf-8", "replace")) if record else {}
        keys = index_keys(record.topic, properties) if record else []
        named = next((key for key in keys if index_hash(key) == self.key_hash), f"of hash {self.key_hash}")
        text = f"{self.count} keys of records have no unit; the first is {named} of the record at offset"
        return f"{text} {self.phy_offset}"


@attrs.frozen(eq=False)
class IndexUnits:
    """The units of a mapped index file. They follow the order of the log, except where the log was cut after a power
    failure: `runs` has the numbers of the first unit of each ascending run, and the end."""

    view: memoryview
    runs: list[int]

    @classmethod
    def of(cls, image: Any, units_at: int) -> Self:
        """Find the runs of an image; `units_at` is the position of unit 0."""
        room = max(1, (len(image) - units_at) // INDEX_UNIT.size)
        end = min(IndexHeader.parse(image[: INDEX_HEADER.size]).index_count, room)
        view = memoryview(image)[units_at : units_at + end * INDEX_UNIT.size]
        runs = [1]
        for at in range(1, end, STEP):
            offsets = _phy_offsets(view[at * INDEX_UNIT.size : (at + STEP + 1) * INDEX_UNIT.size].cast("I"))
            runs += compress(count(at + 1), map(gt, offsets, islice(offsets, 1, None)))
        return cls(view, [*runs, end])

    def phy_offset(self, unit: int) -> int:
        return int(UNIT_OFFSET.unpack_from(self.view, unit * INDEX_UNIT.size)[0])

    @property
    def first(self) -> int | None:
        """The lowest phy offset; None without units."""
        return min((self.phy_offset(unit) for unit in self.runs[:-1] if unit < self.runs[-1]), default=None)

    @property
    def last(self) -> int:
        """The phy offset of the newest unit."""
        return self.phy_offset(self.runs[-1] - 1)

    def between(self, begin: int, last: int) -> Iterator[Columns]:
        """The units of records from the phy offset `begin` up to and including `last`, run by run."""
        for at, end in zip(self.runs, self.runs[1:], strict=False):
            low = bisect.bisect_left(range(at, end), begin, key=self.phy_offset) + at
            high = bisect.bisect_right(range(at, end), last, key=self.phy_offset) + at
            if low < high:
                words = self.view[low * INDEX_UNIT.size : high * INDEX_UNIT.size].cast("I")
                columns = _columns(words, UNIT_WORDS, UNIT_COLUMNS)
                for column in columns:
                    column.byteswap()
                yield columns


def missing_keys(reader: StoreReader, path: Path, units_at: int, log_begin: int) -> MissingKeys | None:
    """Look for keys that the index file `path` should have.

    Args:
        units_at: where unit 0 is, in this file and its neighbours.
        log_begin: phy offset of the first record that the log still has.
    """
    paths = [path for path, header in reader.index_headers() if header is not None]
    number = paths.index(path)
    with ExitStack() as stack:
        opened: list[IndexUnits | None] = []
        for neighbour in (number - 1, number, number + 1):
            image = stack.enter_context(reader.image(paths[neighbour])) if 0 <= neighbour < len(paths) else None
            opened.append(IndexUnits.of(image, units_at) if image is not None else None)
        for one in opened:
            if one is not None:
                stack.callback(one.view.release)  # before its image is closed
        before, units, after = opened
        if units is None or units.first is None:
            return None
        end = after.first if after is not None and after.first is not None else units.last + 1
        found: MissingKeys | None = None
        for keys in _keys(reader, max(units.first, log_begin), end):
            missing = _missing(keys, [one for one in (before, units) if one is not None])
            found = _joined(found, missing)
        return found


def _missing(keys: Columns, files: list[IndexUnits]) -> list[tuple[int, int]]:
    """(phy offset, hash) of the keys that are in none of the files, which may share a record."""
    first, last = (keys[1][at] << 32 | keys[2][at] for at in (0, -1))
    known = [columns for units in files for columns in units.between(first, last)]
    if known == [keys]:
        return []
    unknown = set(zip(*keys, strict=True)).difference(*(zip(*columns, strict=True) for columns in known))
    return sorted((high << 32 | low, key_hash) for key_hash, high, low in unknown)


def _joined(found: MissingKeys | None, missing: list[tuple[int, int]]) -> MissingKeys | None:
    if found is not None:
        return attrs.evolve(found, count=found.count + len(missing))
    return MissingKeys(len(missing), *missing[0]) if missing else None


def _keys(reader: StoreReader, begin: int, end: int) -> Iterator[Columns]:
    """The keys of the records from `begin` on and before `end`, in batches."""
    no_levels = ffi.new("int64_t[]", 1)  # borrowed until close
    rebuild = lib.rp_rebuild_open(no_levels, 0, True)
    if rebuild == ffi.NULL:
        raise StoreError("not enough memory to check an index")
    try:
        for info in reader.log_files():
            start = int(info.name)
            if start < end and begin < start + info.size:
                with reader.image(reader.paths.commitlog / info.name) as image:
                    if image is not None:
                        yield from _keys_of_file(rebuild, image, start, max(begin, start), end)
    finally:
        lib.rp_rebuild_close(rebuild)


def _keys_of_file(rebuild: Any, image: Any, start: int, begin: int, end: int) -> Iterator[Columns]:
    """Damaged places are passed: the check of the log names them."""
    size = len(image)
    stop, position = min(end, start + size), ffi.new("uint64_t *", begin)
    with ffi.from_buffer("uint8_t[]", image) as view:
        while position[0] < stop:
            status = lib.rp_rebuild_log(rebuild, view, size, start, position, stop)
            if status == Status.NO_MEMORY:
                raise StoreError("not enough memory to check an index")
            if status not in (Status.OK, Status.FULL, Status.END_OF_FILE):
                at = position[0] - start
                position[0] += lib.rp_recovery_resync(view + at, size - at, position[0])
            if keys := rebuild.totals.batch_keys:
                words = memoryview(ffi.buffer(rebuild.keys, keys * 4 * KEY_WORDS)).cast("I")
                yield _columns(words, KEY_WORDS, KEY_COLUMNS)
            lib.rp_rebuild_clear(rebuild)


def _phy_offsets(units: memoryview) -> array[int]:
    """In one array, as unpacking each unit takes longer than all else."""
    _, high, low = UNIT_COLUMNS
    pairs = memoryview(bytearray(8 * len(units) // UNIT_WORDS)).cast("I")
    pairs[0::2], pairs[1::2] = units[high::UNIT_WORDS], units[low::UNIT_WORDS]
    offsets = array("Q", pairs.tobytes())
    offsets.byteswap()
    return offsets


def _columns(words: memoryview, width: int, columns: tuple[int, ...]) -> Columns:
    return [array("I", words[column::width].tobytes()) for column in columns]
