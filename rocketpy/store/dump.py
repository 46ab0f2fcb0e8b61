"""A store directory made readable and checked, for `rocketpy store dump|verify|stats DIR`.

Reads any 4.x directory, a Java broker's as well, and never writes. Needs neither the compiled core nor the lock; a
directory in use may change between two reads, so what `verify` then finds at the very end may be no damage.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import attrs

from rocketpy.errors import RecordCorrupt, StoreError
from rocketpy.message.properties import DELAY, TAGS, decode_properties
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.message.tags import tags_code

from .consume_queue_ext import ExtUnit, is_ext_address, read_ext_unit, real_offset
from .files import DiskFiles, FileInfo, Files, StorePaths
from .index_file import index_files, read_header
from .unit import BLANK_SIZE, CQ_STORE_UNIT_SIZE, CQ_UNIT, ConsumeQueueUnit

BLANK_MAGIC = 0xCBD43194
HEAD = struct.Struct(">iI")  # size, magic
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


@attrs.frozen
class Problem:
    """Something that does not hold, and where."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@attrs.frozen
class QueueDump:
    topic: str
    queue_id: int
    path: Path


@attrs.frozen
class StoreStats:
    log_begin: int
    log_end: int
    records: int
    body_bytes: int
    first_store_timestamp_ms: int
    last_store_timestamp_ms: int
    queues: int
    units: int
    index_files: int
    index_keys: int
    is_open: bool  # `abort` is there: in use, or not closed in order


@attrs.frozen
class VerifyReport:
    records: int
    units: int
    log_end: int
    problems: list[Problem]


class StoreDump:
    """One directory."""

    def __init__(self, root: Path, commitlog: str | Path = "", files: Files | None = None) -> None:
        """
        Raises:
            StoreError: no such directory.
        """
        self.paths = StorePaths.of(root, commitlog)
        self._files = files or DiskFiles()
        if not self.paths.root.is_dir():
            raise StoreError(f"{root} is not a directory")

    # --- the log ---

    def log_files(self) -> list[FileInfo]:
        return [info for info in self._files.entries(self.paths.commitlog) if info.name.isdecimal() and info.size > 0]

    def records(self, from_phy_offset: int = 0, *, check_crc: bool = False) -> Iterator[StoredRecord]:
        """Every record from the file that holds `from_phy_offset` on; those before it are left out.

        Raises:
            RecordCorrupt: in the middle of the log.
        """
        for info in self.log_files():
            start = int(info.name)
            if start + info.size <= from_phy_offset:
                continue
            ended_at = start
            with (self.paths.commitlog / info.name).open("rb") as file:
                image = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                for record in _records_of(image, start, check_crc=check_crc):
                    ended_at = record.phy_offset + record.size
                    if record.phy_offset >= from_phy_offset:
                        yield record
                if not _ends_with_blank(image, ended_at - start):
                    return

    def record_at(self, phy_offset: int) -> StoredRecord | None:
        """The record that starts at an offset; None if there is no such file.

        Raises:
            RecordCorrupt: there is no record.
        """
        for info in self.log_files():
            start = int(info.name)
            if start <= phy_offset < start + info.size:
                size = info.size - (phy_offset - start)
                head = self._files.read(self.paths.commitlog / info.name, phy_offset - start, HEAD.size)
                size = min(size, HEAD.unpack(head)[0]) if len(head) == HEAD.size else size
                image = self._files.read(self.paths.commitlog / info.name, phy_offset - start, max(size, HEAD.size))
                return decode_record(image, phy_offset)
        return None

    # --- the queues ---

    def queues(self) -> Iterator[QueueDump]:
        for topic in self._files.entries(self.paths.consumequeue):
            directory = self.paths.consumequeue / topic.name
            for queue in self._files.entries(directory) if topic.is_directory else []:
                if queue.is_directory and queue.name.isdecimal():
                    yield QueueDump(topic.name, int(queue.name), directory / queue.name)

    def ext_unit(self, queue: QueueDump, unit: ConsumeQueueUnit) -> ExtUnit | None:
        """The extension of a unit; None if it has none, or if it is lost (the third field is an address then)."""
        directory = self.paths.consumequeue_ext / queue.topic / str(queue.queue_id)
        sizes = {info.size for info in self._files.entries(directory)}
        if len(sizes) != 1 or not is_ext_address(unit.tags_code):
            return None
        return read_ext_unit(self._files, directory, max(*sizes, 1), unit.tags_code)

    def units(self, queue: QueueDump) -> Iterator[tuple[int, ConsumeQueueUnit]]:
        """(queue offset, unit) of every message of a queue; pre-blank units are left out."""
        for info in self._files.entries(queue.path):
            data = self._files.read(queue.path / info.name, 0, info.size)
            base = int(info.name) // CQ_STORE_UNIT_SIZE
            whole = data[: len(data) - len(data) % CQ_STORE_UNIT_SIZE]
            for index, fields in enumerate(CQ_UNIT.iter_unpack(whole)):
                unit = ConsumeQueueUnit(*fields)
                if unit.size <= 0:
                    return
                if unit.size != BLANK_SIZE:
                    yield base + index, unit

    # --- judgement ---

    def stats(self) -> StoreStats:
        records = body_bytes = 0
        first_ms = last_ms = -1
        infos = self.log_files()
        end = begin = int(infos[0].name) if infos else 0
        for record in self.records():
            records += 1
            body_bytes += len(record.body)
            first_ms = record.store_timestamp_ms if first_ms < 0 else first_ms
            last_ms = record.store_timestamp_ms
            end = record.phy_offset + record.size
        queues = list(self.queues())
        headers = [read_header(self._files, path) for path in index_files(self._files, self.paths.index)]
        return StoreStats(
            log_begin=begin,
            log_end=end,
            records=records,
            body_bytes=body_bytes,
            first_store_timestamp_ms=first_ms,
            last_store_timestamp_ms=last_ms,
            queues=len(queues),
            units=sum(1 for queue in queues for _ in self.units(queue)),
            index_files=len(headers),
            index_keys=sum(header.index_count - 1 for header in headers if header),
            is_open=self._files.info(self.paths.abort) is not None,
        )

    def verify(self) -> VerifyReport:
        """Every record and every unit: CRC, own offset, order; and that each record has its unit and the reverse."""
        problems: list[Problem] = []
        counted: dict[tuple[str, int], int] = {}
        records, end = self._verify_log(problems, counted)
        units = 0
        for queue in self.queues():
            units += self._verify_queue(queue, problems, end, counted.pop((queue.topic, queue.queue_id), None))
        problems += [Problem(f"{topic}/{queue_id}", "has records but no queue") for topic, queue_id in counted]
        return VerifyReport(records, units, end, problems)

    def _verify_log(self, problems: list[Problem], counted: dict[tuple[str, int], int]) -> tuple[int, int]:
        """Fills `counted` with the next offset of each queue, by its records. Returns (records, end of the log)."""
        infos = self.log_files()
        end, count = int(infos[0].name) if infos else 0, 0
        position = end
        try:
            for record in self.records(check_crc=True):
                own = record.phy_offset
                if record.sys_flag & 0xC in (0, 8):
                    key = (record.topic, record.queue_id)
                    expected = counted.get(key, record.queue_offset)
                    if record.queue_offset != expected:
                        problems.append(
                            Problem(f"log {own}", f"queue offset {record.queue_offset} of {key}, expected {expected}")
                        )
                    counted[key] = record.queue_offset + 1
                position, count = own + record.size, count + 1
        except RecordCorrupt as exc:
            problems.append(Problem(f"log {exc.phy_offset}", exc.reason))
        return count, position

    def _verify_queue(self, queue: QueueDump, problems: list[Problem], log_end: int, expected_end: int | None) -> int:
        place, count, end = f"{queue.topic}/{queue.queue_id}", 0, None
        log_begin = int(infos[0].name) if (infos := self.log_files()) else 0
        for offset, unit in self.units(queue):
            count, end = count + 1, offset + 1
            if unit.phy_offset < log_begin:
                continue  # its record was deleted
            text = self._judge_unit(queue, offset, unit, log_end)
            if text:
                problems.append(Problem(f"{place} unit {offset}", text))
        if expected_end is not None and end != expected_end:
            problems.append(Problem(place, f"ends at offset {end}, its records at {expected_end}"))
        return count

    def _judge_unit(self, queue: QueueDump, offset: int, unit: ConsumeQueueUnit, log_end: int) -> str | None:
        if unit.phy_offset + unit.size > log_end:
            return f"names {unit.size} bytes at {unit.phy_offset}, behind the log's end"
        try:
            record = self.record_at(unit.phy_offset)
        except RecordCorrupt as exc:
            return str(exc)
        if record is None:
            return f"names offset {unit.phy_offset}, where there is no file"
        found = (record.topic, record.queue_id, record.queue_offset, record.size)
        if found != (queue.topic, queue.queue_id, offset, unit.size):
            return f"names the record {found}"
        properties = decode_properties(record.properties.decode("utf-8", "replace"))
        is_delayed = record.topic == SCHEDULE_TOPIC and DELAY in properties
        expected = tags_code(properties.get(TAGS))
        code = unit.tags_code
        if is_ext_address(code):
            ext = self.ext_unit(queue, unit)
            if ext is None:
                return f"names an extension unit at {real_offset(code)}, where there is none"
            if ext.store_timestamp_ms != record.store_timestamp_ms:
                return f"its extension unit has store time {ext.store_timestamp_ms}, not {record.store_timestamp_ms}"
            code = ext.tags_code
        if not is_delayed and code != expected:
            return f"tags code {code}, expected {expected}"
        return None


def _records_of(image: mmap.mmap, start: int, *, check_crc: bool) -> Iterator[StoredRecord]:
    """The records of one file, up to its blank or the first zeros."""
    position = 0
    while position < len(image):
        head = image[position : position + HEAD.size]
        size = HEAD.unpack(head)[0] if len(head) == HEAD.size else 0
        end = min(position + max(size, HEAD.size), len(image))
        record = decode_record(image[position:end], start + position, check_crc=check_crc)
        if record is None:
            return
        if record.phy_offset != start + position:
            raise RecordCorrupt(start + position, f"the record says that it is at {record.phy_offset}")
        yield record
        position += record.size


def _ends_with_blank(image: mmap.mmap, position: int) -> bool:
    """Whether the log goes on in the next file."""
    head = image[position : position + HEAD.size]
    return len(head) == HEAD.size and HEAD.unpack(head) == (len(image) - position, BLANK_MAGIC)


def describe_record(record: StoredRecord) -> str:
    """One line."""
    properties = decode_properties(record.properties.decode("utf-8", "replace"))
    text = " ".join(f"{name}={value}" for name, value in properties.items())
    return (
        f"{record.phy_offset:>12} {record.size:>7} {record.topic}/{record.queue_id}@{record.queue_offset} "
        f"stored={record.store_timestamp_ms} flags=0x{record.sys_flag & 0xFFFFFFFF:x} body={len(record.body)} {text}"
    ).rstrip()
