"""Reads the index from keys to CommitLog offsets. csrc/store/index/index_file.c writes it; its header describes the
layout.

The index has hashes only: `accepts` of a query compares topic and key. File names are local creation times.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import attrs

from rocketpy.errors import StoreError
from rocketpy.message.tags import index_hash

from ..files import Files, translated

INDEX_HEADER = struct.Struct(
    ">q"  # begin timestamp  ms
    "q"  # end timestamp
    "q"  # begin phy offset
    "q"  # end phy offset    records below it are in this file or an older one
    "i"  # slots in use
    "i"  # index count       number of the next unit: 1 in an empty file, unit 0 is never used
)
INDEX_SLOT = struct.Struct(">i")  # newest unit of the chain, 0: none
INDEX_UNIT = struct.Struct(
    ">i"  # hash of topic#key
    "q"  # phy offset
    "i"  # seconds since the file's begin timestamp
    "i"  # previous unit of the chain, 0: none
)
END_PHY_OFFSET_AT = 24
INDEX_NAME_DIGITS = 17  # yyyyMMddHHmmssSSS
UNITS_PER_STEP = 500  # of a chain, about half a microsecond each
REJECTED_MAX = 4096  # records with the hash of a key that do not have it, in a query: each is read
assert (INDEX_HEADER.size, INDEX_SLOT.size, INDEX_UNIT.size) == (40, 4, 20)


@attrs.frozen
class IndexHeader:
    """The first 40 bytes of a file: the range of its units in time and in the log, and their number."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_phy_offset: int
    end_phy_offset: int
    slot_count: int
    index_count: int

    @classmethod
    def parse(cls, data: bytes) -> IndexHeader:
        begin_ms, end_ms, begin, end, slots, count = INDEX_HEADER.unpack_from(data)
        return cls(begin_ms, end_ms, begin, end, slots, max(count, 1))

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return self.begin_timestamp_ms <= end_ms and self.end_timestamp_ms >= begin_ms


@attrs.frozen
class IndexQuery:
    """Result of a query: offsets, newest first, and the end of the index."""

    phy_offsets: list[int]
    last_update_timestamp_ms: int
    last_update_phy_offset: int


@attrs.define
class _Search:
    """One query, and what it has found."""

    key_hash: int
    max_num: int
    begin_ms: int
    end_ms: int
    accepts: Callable[[int], bool]
    found: list[int] = attrs.field(init=False, factory=list)
    rejected: set[int] = attrs.field(init=False, factory=set)

    @property
    def is_over(self) -> bool:
        return len(self.found) >= self.max_num or len(self.rejected) >= REJECTED_MAX

    def is_new(self, time_ms: int, unit_hash: int, phy_offset: int) -> bool:
        """Return True if the unit may be of a record that has not been looked at."""
        if unit_hash != self.key_hash or time_ms > self.end_ms:
            return False
        return phy_offset not in self.found and phy_offset not in self.rejected

    def look(self, phy_offset: int) -> None:
        if self.accepts(phy_offset):
            self.found.append(phy_offset)
        else:
            self.rejected.add(phy_offset)


def index_files(files: Files, directory: Path) -> list[Path]:
    """The index files, oldest first; other names are ignored."""
    infos = [info for info in files.entries(directory) if info.name.isdecimal() and not info.is_directory]
    return [directory / info.name for info in sorted(infos, key=lambda info: int(info.name))]


def read_header(files: Files, path: Path) -> IndexHeader | None:
    """The header, or None if the file is too short to have one."""
    data = files.read(path, 0, INDEX_HEADER.size)
    return IndexHeader.parse(data) if len(data) == INDEX_HEADER.size else None


def index_end(files: Files, directory: Path) -> int:
    """Offset of the last record in the index, from the newest file that has one; 0 if there is none."""
    headers = (read_header(files, path) for path in reversed(index_files(files, directory)))
    return next((header.end_phy_offset for header in headers if header and header.end_phy_offset > 0), 0)


def check_newest_index(files: Files, directory: Path, hash_slot_num: int, index_num: int) -> None:
    """Check that the newest file can be appended to.

    Raises:
        StoreError: it is larger than a new file would be. (A smaller one is extended, as in the reference.)
    """
    paths = index_files(files, directory)
    info = files.info(paths[-1]) if paths else None
    size = INDEX_HEADER.size + hash_slot_num * INDEX_SLOT.size + index_num * INDEX_UNIT.size
    if info is not None and info.size > size:
        raise StoreError(
            f"{paths[-1]} has {info.size} bytes, {size} are configured: maxHashSlotNum and maxIndexNum must be what "
            "the store was created with"
        )


def limit_index(files: Files, directory: Path, phy_offset: int) -> None:
    """Limit the end offset of the newest file to `phy_offset`, so that later records are indexed (again)."""
    paths = index_files(files, directory)
    header = read_header(files, paths[-1]) if paths else None
    if header and not 0 <= header.end_phy_offset <= phy_offset:
        files.write(paths[-1], END_PHY_OFFSET_AT, struct.pack(">q", phy_offset))


class Index:
    """Query side. Files are mapped for the length of one query."""

    def __init__(self, directory: Path, hash_slot_num: int, index_num: int, files: Files) -> None:
        self.directory = directory
        self.hash_slot_num = hash_slot_num
        self.index_num = index_num
        self.units_at = INDEX_HEADER.size + hash_slot_num * INDEX_SLOT.size
        self.file_size = self.units_at + index_num * INDEX_UNIT.size
        self._files = files

    def query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int, accepts: Callable[[int], bool]
    ) -> Generator[None, None, IndexQuery]:
        """Offsets of records whose key has the hash of `key`, stored within the times, as far as `accepts` returns True
        for the offset. The query ends early after REJECTED_MAX others.

        Yields after each step and each call of `accepts`: one chain may hold all units of a file, 20 million by
        default, and take seconds.

        Source: RocketMQ 4.9 `IndexService#queryOffset`. Times are stored as whole seconds from the first one,
        so a message may seem up to 999 ms older than it is.
        """
        search = _Search(index_hash(f"{topic}#{key}"), max_num, begin_ms, end_ms, accepts)
        newest: IndexHeader | None = None
        for path in reversed(index_files(self._files, self.directory)):
            header = read_header(self._files, path)
            if header is None:
                continue
            newest = newest or header
            if header.overlaps(begin_ms, end_ms):
                yield from self._select(path, header, search)
            yield
            if header.begin_timestamp_ms < begin_ms or search.is_over:
                break
        return IndexQuery(
            search.found, newest.end_timestamp_ms if newest else 0, newest.end_phy_offset if newest else 0
        )

    def _select(self, path: Path, header: IndexHeader, search: _Search) -> Generator[None, None, None]:
        with translated(path, "read"), path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < self.file_size:
                return
            with mmap.mmap(file.fileno(), self.file_size, prot=mmap.PROT_READ) as image:
                chain = self._chain(image, header, search.key_hash)
                while step := list(itertools.islice(chain, UNITS_PER_STEP)):
                    for time_ms, unit_hash, phy_offset in step:
                        if search.is_over or time_ms < search.begin_ms:
                            return
                        if search.is_new(time_ms, unit_hash, phy_offset):
                            search.look(phy_offset)
                            yield
                    yield

    def _chain(self, image: mmap.mmap, header: IndexHeader, key_hash: int) -> Iterator[tuple[int, int, int]]:
        """(time, hash, offset) of the units in the key's slot, newest first. Unit numbers must decrease, so there is no
        endless loop."""
        slot_at = INDEX_HEADER.size + key_hash % self.hash_slot_num * INDEX_SLOT.size
        (unit,) = INDEX_SLOT.unpack_from(image, slot_at)
        bound = min(header.index_count, self.index_num)
        while 0 < unit < bound:
            unit_hash, phy_offset, seconds, previous = INDEX_UNIT.unpack_from(image, self.units_at + unit * 20)
            if seconds < 0:
                return
            yield header.begin_timestamp_ms + seconds * 1000, unit_hash, phy_offset
            unit, bound = previous, unit
