"""Reads a store directory of any 4.x broker, also of a Java broker; it never writes.

It needs neither the lock nor the compiled core (verify needs the core). A directory in use may change meanwhile: files
that disappear are skipped.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from rocketpy.errors import RecordCorrupt, StoreError
from rocketpy.message.record import (
    BLANK_MAGIC_CODE,
    MAGIC_AT,
    MESSAGE_MAGIC_CODE,
    PHY_OFFSET_AT,
    RECORD_START,
    StoredRecord,
    decode_record,
)

from ..files import DiskFiles, FileInfo, Files, StorePaths, translated
from ..formats.consume_queue_ext import ExtUnit, is_ext_address, read_ext_unit
from ..formats.index_file import INDEX_HEADER, INDEX_SLOT, INDEX_UNIT, IndexHeader, index_files, read_header
from ..formats.unit import BLANK_SIZE, CQ_STORE_UNIT_SIZE, CQ_UNIT, ConsumeQueueUnit

MESSAGE_MAGIC = MESSAGE_MAGIC_CODE.to_bytes(4, "big", signed=True)
OWN_OFFSET = struct.Struct(">q")
READ_UNITS_MIN, READ_UNITS_MAX = 200, 25_600  # per read; the file of a small queue is mostly a hole
DEFAULT_SLOTS = 5_000_000
DEFAULT_INDEX_SIZE = 40 + 4 * DEFAULT_SLOTS + 20 * 20_000_000
BYTES_PER_SLOT = 84  # of an index file with the default four units per slot
STORE_ENTRIES = ("commitlog", "consumequeue", "checkpoint", "abort", "index")


@attrs.frozen
class Damage:
    """Bytes of the log where a record was expected."""

    phy_offset: int
    size: int  # up to the next valid record, or to the end of the file
    reason: str
    is_last: bool  # no valid record follows in the file


@attrs.frozen
class QueueDirectory:
    """The directory of one queue."""

    topic: str
    queue_id: int
    path: Path

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.queue_id}"


@attrs.frozen
class IndexEntry:
    """A unit of an index file, and its number."""

    number: int
    key_hash: int
    phy_offset: int
    time_ms: int  # as decoded: up to 999 ms early
    previous: int


class StoreReader:
    """Reads the files of one store directory; nothing is written."""

    def __init__(self, root: Path, commitlog: str | Path = "", files: Files | None = None) -> None:
        """Check that there is a store; its files are read when they are asked for.

        Raises:
            StoreError: the directory is missing, or is no store; or a log outside of it is missing.
        """
        self.paths = StorePaths.of(root, commitlog)
        self.files = files or DiskFiles()
        places = [self.paths.root]
        if self.paths.commitlog != self.paths.root / "commitlog":
            places.append(self.paths.commitlog)
        for place in places:
            info = self.files.info(place)
            if info is None or not info.is_directory:
                raise StoreError(f"{place} is not a directory")
        if not commitlog and not any(self.files.info(self.paths.root / name) for name in STORE_ENTRIES):
            raise StoreError(f"{root} is no store: it has no {', '.join(STORE_ENTRIES[:-1])} or {STORE_ENTRIES[-1]}")

    # --- the log ---

    def log_files(self) -> list[FileInfo]:
        """The files of the log, in order."""
        infos = [info for info in self.files.entries(self.paths.commitlog) if info.name.isdecimal() and info.size > 0]
        return sorted(infos, key=lambda info: int(info.name))

    @contextmanager
    def image(self, path: Path) -> Iterator[mmap.mmap | None]:
        """Map a file for reading; None if it is missing or empty."""
        with translated(path, "read"):
            try:
                with path.open("rb") as file:
                    image = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            except (FileNotFoundError, ValueError):
                yield None
                return
        with image:
            yield image

    def walk(self, from_phy_offset: int = 0, *, check_crc: bool = False) -> Iterator[StoredRecord | Damage]:
        """Records and damage from `from_phy_offset` on. After damage the walk continues at the next valid record."""
        for info in self.log_files():
            start = int(info.name)
            if start + info.size <= from_phy_offset:
                continue
            with self.image(self.paths.commitlog / info.name) as image:
                if image is None:
                    continue
                walk = _FileWalk(image, start, check_crc)
                yield from walk.run(from_phy_offset)
                if not walk.goes_on:
                    return

    def records(self, from_phy_offset: int = 0, *, check_crc: bool = False) -> Iterator[StoredRecord]:
        """Every record from the first at or after `from_phy_offset`.

        Raises:
            RecordCorrupt: in the middle of the log.
        """
        for found in self.walk(from_phy_offset, check_crc=check_crc):
            if isinstance(found, Damage):
                raise RecordCorrupt(found.phy_offset, found.reason)
            yield found

    def record_at(self, phy_offset: int, infos: list[FileInfo] | None = None) -> StoredRecord | None:
        """The record that starts at an offset; None if there is none, or no such file.

        Args:
            infos: the files of the log; saves time if many records are read.

        Raises:
            RecordCorrupt: the bytes there are no record.
        """
        for info in self.log_files() if infos is None else infos:
            start = int(info.name)
            if start <= phy_offset < start + info.size:
                path, position = self.paths.commitlog / info.name, phy_offset - start
                head = self.files.read(path, position, RECORD_START.size)
                size = RECORD_START.unpack(head)[0] if len(head) == RECORD_START.size else RECORD_START.size
                return decode_record(
                    self.files.read(path, position, min(max(size, RECORD_START.size), info.size - position)), phy_offset
                )
        return None

    # --- the queues ---

    def queues(self, topic: str | None = None, queue_id: int | None = None) -> Iterator[QueueDirectory]:
        """Queue directories ordered by topic and number; the names of one topic are in memory at a time."""
        for info in self.files.entries(self.paths.consumequeue):
            if not info.is_directory or topic not in (None, info.name):
                continue
            directory = self.paths.consumequeue / info.name
            names = [entry.name for entry in self.files.entries(directory) if entry.is_directory]
            for number in sorted(int(name) for name in names if name.isdecimal() and name.isascii()):
                if queue_id in (None, number):
                    yield QueueDirectory(info.name, number, directory / str(number))

    def queue_files(self, queue: QueueDirectory) -> list[FileInfo]:
        infos = [info for info in self.files.entries(queue.path) if info.name.isdecimal() and not info.is_directory]
        return sorted(infos, key=lambda info: int(info.name))

    def unit_runs(self, queue: QueueDirectory, from_offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """(queue offset, raw units): the used parts of the queue's files, up to the zeros in each."""
        for info in self.queue_files(queue):
            base, count = int(info.name) // CQ_STORE_UNIT_SIZE, info.size // CQ_STORE_UNIT_SIZE
            at, step = max(0, from_offset - base), READ_UNITS_MIN
            while at < count:
                try:
                    path = queue.path / info.name
                    data = self.files.read(path, at * CQ_STORE_UNIT_SIZE, min(step, count - at) * CQ_STORE_UNIT_SIZE)
                except StoreError:
                    return  # deleted meanwhile
                if not data:
                    return
                yield base + at, data[: len(data) - len(data) % CQ_STORE_UNIT_SIZE]
                if not any(data[-CQ_STORE_UNIT_SIZE:]):
                    return
                at, step = at + step, min(step * 4, READ_UNITS_MAX)

    def units(
        self, queue: QueueDirectory, from_offset: int = 0, *, blanks: bool = False
    ) -> Iterator[tuple[int, ConsumeQueueUnit]]:
        """(queue offset, unit) of every message of a queue; pre-blank units are left out unless asked for."""
        for base, data in self.unit_runs(queue, from_offset):
            for index, fields in enumerate(CQ_UNIT.iter_unpack(data)):
                unit = ConsumeQueueUnit(*fields)
                if unit.size <= 0 or unit.phy_offset < 0:
                    return
                if blanks or unit.size != BLANK_SIZE:
                    yield base + index, unit

    def ext_unit(self, queue: QueueDirectory, unit: ConsumeQueueUnit) -> ExtUnit | None:
        """The extension of a unit; None if it has none, or if it is lost (the third field is an address then)."""
        directory = self.paths.consumequeue_ext / queue.topic / str(queue.queue_id)
        sizes = {info.size for info in self.files.entries(directory)} if is_ext_address(unit.tags_code) else set()
        return read_ext_unit(self.files, directory, sizes.pop(), unit.tags_code) if len(sizes) == 1 else None

    # --- the index ---

    def index_headers(self) -> list[tuple[Path, IndexHeader | None]]:
        paths = index_files(self.files, self.paths.index)
        return [(path, read_header(self.files, path)) for path in paths]

    def index_entries(self, path: Path, slots: int) -> Iterator[IndexEntry]:
        """The units of an index file with this number of slots."""
        with self.image(path) as image:
            if image is None or len(image) < INDEX_HEADER.size:
                return
            header = IndexHeader.parse(image[: INDEX_HEADER.size])
            units_at = INDEX_HEADER.size + slots * INDEX_SLOT.size
            room = (len(image) - units_at) // INDEX_UNIT.size
            for number in range(1, min(header.index_count, room)):
                unit = INDEX_UNIT.unpack_from(image, units_at + number * INDEX_UNIT.size)
                key_hash, phy_offset, seconds, previous = unit
                yield IndexEntry(number, key_hash, phy_offset, header.begin_timestamp_ms + seconds * 1000, previous)


def guess_slots(size: int) -> int | None:
    """Number of slots of an index file of `size` bytes, if it has the reference's four units per slot. The file does
    not contain it: if only maxHashSlotNum was changed, it must be given."""
    if size == DEFAULT_INDEX_SIZE:
        return DEFAULT_SLOTS
    slots, rest = divmod(size - INDEX_HEADER.size, BYTES_PER_SLOT)
    return slots if rest == 0 and slots > 0 else None


def next_record(image: mmap.mmap, position: int, start: int) -> int:
    """Position of the next record after `position` that carries its own offset; the size of the file if there is
    none."""
    while True:
        at = image.find(MESSAGE_MAGIC, position + 1 + MAGIC_AT) - MAGIC_AT
        if at < 0 or at + PHY_OFFSET_AT + OWN_OFFSET.size > len(image):
            return len(image)
        if OWN_OFFSET.unpack_from(image, at + PHY_OFFSET_AT)[0] == start + at:
            try:
                if decode_record(record_bytes(image, at), start + at, check_crc=True) is not None:
                    return at
            except RecordCorrupt:
                pass
        position = at


def record_bytes(image: mmap.mmap, position: int) -> bytes:
    """As many bytes as the record at `position` says that it has; its start, if that says less."""
    head = image[position : position + RECORD_START.size]
    size = RECORD_START.unpack(head)[0] if len(head) == RECORD_START.size else RECORD_START.size
    return image[position : min(position + max(size, RECORD_START.size), len(image))]


def ends_with_blank(image: mmap.mmap, position: int) -> bool:
    """Return True if a blank fills the rest of the file, so that the log continues in the next one."""
    head = image[position : position + RECORD_START.size]
    return len(head) == RECORD_START.size and RECORD_START.unpack(head) == (len(image) - position, BLANK_MAGIC_CODE)


class _FileWalk:
    """Walks from record to record through one file."""

    def __init__(self, image: mmap.mmap, start: int, check_crc: bool) -> None:
        self._image = image
        self._start = start
        self._check_crc = check_crc
        self.goes_on = False  # in the next file

    def run(self, from_phy_offset: int) -> Iterator[StoredRecord | Damage]:
        position = self._skip_to(from_phy_offset - self._start)
        while position < len(self._image):
            phy_offset = self._start + position
            try:
                record = decode_record(record_bytes(self._image, position), phy_offset, check_crc=self._check_crc)
                if record is not None and record.phy_offset != phy_offset:
                    raise RecordCorrupt(phy_offset, f"the record says that it is at {record.phy_offset}")
            except RecordCorrupt as exc:
                following = next_record(self._image, position, self._start)
                yield Damage(phy_offset, following - position, exc.reason, following == len(self._image))
                position = following
                continue
            if record is None:
                self.goes_on = ends_with_blank(self._image, position)
                return
            yield record
            position += record.size
        self.goes_on = True

    def _skip_to(self, wanted: int) -> int:
        """Position of the first record at or after `wanted`, found by record sizes only."""
        position = 0
        while position < wanted and position + RECORD_START.size <= len(self._image):
            size, magic = RECORD_START.unpack_from(self._image, position)
            if magic != MESSAGE_MAGIC_CODE or size < RECORD_START.size:
                break
            position += size
        return position
