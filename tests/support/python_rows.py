"""Rows and columns by the codecs of `rocketpy.message`, which say what records mean: tests compare with them what the
compiled core makes of the same images."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pyarrow as pa

from rocketpy.errors import CompressionError, RecordCorrupt
from rocketpy.filter.evaluate import matches
from rocketpy.filter.parser import parse
from rocketpy.message import properties as names
from rocketpy.message.compression import decompress_body
from rocketpy.message.host import format_host, pack_host
from rocketpy.message.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketpy.message.properties import find_property
from rocketpy.message.record import (
    BLANK_MAGIC_CODE,
    END_FILE_MIN_BLANK_LENGTH,
    FIXED_SIZE_V4,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_START,
    StoredRecord,
    decode_record,
)
from rocketpy.message.sys_flag import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    is_compressed,
)
from rocketpy.native import Status
from rocketpy.spark.columns import COLUMNS
from rocketpy.spark.scan import Checks, Found, Selection

CHAIN = 8  # RP_RESYNC_CHAIN
MAGIC = MESSAGE_MAGIC_CODE.to_bytes(4, "big", signed=True)
UNCOMMITTED_TOPICS = frozenset({TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC})
UNCOMMITTED_TYPES = frozenset({TRANSACTION_PREPARED, TRANSACTION_ROLLBACK})
YEAR_1_MS, YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000


class PythonRows:
    """As NativeRows."""

    def __init__(self, selection: Selection, checks: Checks, columns: tuple[str, ...]) -> None:
        self._selection = selection
        self._checks = checks
        self._tags = {tag.encode() for tag in selection.tags}
        self._condition = None if selection.condition is None else parse(selection.condition)
        self._rows: list[StoredRecord] = []

    @contextlib.contextmanager
    def image(self, data: Any) -> Iterator[memoryview]:
        with memoryview(data) as view:
            yield view

    def find(self, image: memoryview, start: int, position: int, stop: int) -> Found:
        self._rows.clear()
        size = records = compressed = 0
        status = Status.OK
        while position < min(stop, len(image)):
            if len(self._rows) == self._checks.rows_max or size >= self._checks.bytes_max:
                status = Status.FULL
                break
            status, record = self._take(image, start, position)
            if record is None:
                break
            if self._is_wanted(record):
                self._rows.append(record)
                size += record.size
                compressed += is_compressed(record.sys_flag)
            records += 1
            position += record.size
        return Found(status, position, records, len(self._rows), compressed)

    def _take(self, image: memoryview, start: int, position: int) -> tuple[Status, StoredRecord | None]:
        left = len(image) - position
        if left < END_FILE_MIN_BLANK_LENGTH:
            return Status.INCOMPLETE, None
        size, magic = RECORD_START.unpack_from(image, position)
        if size == 0 and magic == 0:
            return Status.EMPTY, None
        if magic == BLANK_MAGIC_CODE and size >= END_FILE_MIN_BLANK_LENGTH:
            return (Status.END_OF_FILE if size <= left else Status.INCOMPLETE), None
        if magic in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2) and size >= FIXED_SIZE_V4 and size > left:
            return Status.INCOMPLETE, None
        try:
            with image[position : position + max(size, RECORD_START.size)] as part:
                record = decode_record(part, start + position, check_crc=self._checks.crc)
        except RecordCorrupt:
            return Status.CORRUPT, None
        if record is None or record.size > self._checks.record_size_max:
            return Status.CORRUPT, None
        if self._checks.place and record.phy_offset != start + position:
            return Status.CORRUPT, None
        return Status.OK, record

    def _is_wanted(self, record: StoredRecord) -> bool:
        selection = self._selection
        return (
            selection.store_time_from_ms <= record.store_timestamp_ms < selection.store_time_to_ms
            and selection.queue_offset_from <= record.queue_offset < selection.queue_offset_to
            and (not selection.queue_ids or record.queue_id in selection.queue_ids)
            and (not selection.topics or record.topic in selection.topics)
            and not (selection.committed_only and _is_uncommitted(record))
            and (not self._tags or find_property(record.properties, b"TAGS") in self._tags)
            and (self._condition is None or matches(self._condition, dict(_pairs(record))))
        )

    def resync(self, image: memoryview, start: int, position: int, stop: int) -> int | None:
        asked, self._checks = self._checks, attrs.evolve(self._checks, place=True, crc=False)
        try:
            for candidate in _magics(image, position, min(stop, len(image))):
                if self._begins_chain(image, start, candidate):
                    return candidate
            return None
        finally:
            self._checks = asked

    def _begins_chain(self, image: memoryview, start: int, position: int) -> bool:
        for number in range(CHAIN + 1):
            if number and position == len(image):
                return True
            status, record = self._take(image, start, position)
            if number and status in (Status.END_OF_FILE, Status.EMPTY):
                return True
            if record is None:
                return False
            position += record.size
        return True

    def inflate(self, row: int) -> tuple[int, CompressionError | None]:
        record = self._rows[row]
        try:
            body, _ = decompress_body(record.body, record.sys_flag)
        except CompressionError as error:
            return len(record.body), error
        self._rows[row] = attrs.evolve(record, body=body)
        return len(body), None

    def forget(self, first: int, count: int) -> None:
        for row in range(first, first + count):
            self._rows[row] = attrs.evolve(self._rows[row], body=b"")

    def arrange(self, first: int, order: Any) -> None:
        self._rows[first : first + len(order)] = [self._rows[first + row] for row in order.to_pylist()]

    def column(self, name: str, first: int, count: int) -> Any:
        value = VALUES[name]
        return pa.array([value(record) for record in self._rows[first : first + count]], COLUMNS[name].arrow)


def _is_uncommitted(record: StoredRecord) -> bool:
    return record.topic in UNCOMMITTED_TOPICS or record.sys_flag & TRANSACTION_MASK in UNCOMMITTED_TYPES


def _magics(image: memoryview, position: int, stop: int) -> Iterator[int]:
    """Where a record may begin, in pieces: an image is as large as a log file."""
    step = 1 << 20
    while position < stop:
        piece = bytes(image[position : position + step + 7])
        found = piece.find(MAGIC, 4)
        while found >= 0 and position + found - 4 < stop:
            yield position + found - 4
            found = piece.find(MAGIC, found + 1)
        position += step


def _property(name: str) -> Callable[[StoredRecord], str | None]:
    encoded = name.encode()

    def find(record: StoredRecord) -> str | None:
        value = find_property(record.properties, encoded)
        return None if value is None else value.decode("utf-8", "replace")

    return find


def _offset_msg_id(record: StoredRecord) -> str:
    address, port = record.store_host
    packed = pack_host((address, 0))[:-4]
    if ":" in address and len(packed) == 4:  # an IPv4 address in an IPv6 field keeps its form
        packed = bytes(10) + b"\xff\xff" + packed
    number = record.phy_offset & 0xFFFFFFFFFFFFFFFF
    return (packed + port.to_bytes(4, "big", signed=True) + number.to_bytes(8, "big")).hex().upper()


def _pairs(record: StoredRecord) -> list[tuple[str, str]]:
    """Of several values of one name the last counts, at its place."""
    values: dict[bytes, bytes] = {}
    for piece in record.properties.split(b"\x02"):
        name, _, value = piece.partition(b"\x01")
        if name and value:
            values.pop(name, None)
            values[name] = value
    return [(name.decode("utf-8", "replace"), value.decode("utf-8", "replace")) for name, value in values.items()]


def _time_us(time_ms: int) -> int | None:
    return time_ms * 1000 if YEAR_1_MS <= time_ms < YEAR_10000_MS else None


_unique_key = _property(names.UNIQ_KEY)
VALUES: dict[str, Callable[[StoredRecord], object]] = {
    "topic": lambda record: record.topic,
    "queueId": lambda record: record.queue_id,
    "queueOffset": lambda record: record.queue_offset,
    "physicalOffset": lambda record: record.phy_offset,
    "msgId": lambda record: _unique_key(record) or _offset_msg_id(record),
    "keys": _property(names.KEYS),
    "tags": _property(names.TAGS),
    "body": lambda record: record.body,
    "properties": _pairs,
    "bornTimestamp": lambda record: _time_us(record.born_timestamp_ms),
    "storeTimestamp": lambda record: _time_us(record.store_timestamp_ms),
    "flag": lambda record: record.flag,
    "sysFlag": lambda record: record.sys_flag,
    "reconsumeTimes": lambda record: record.reconsume_times,
    "storeSize": lambda record: record.size,
    "bodyCRC": lambda record: record.body_crc - ((record.body_crc & 0x80000000) << 1),
    "bornHost": lambda record: format_host(record.born_host),
    "storeHost": lambda record: format_host(record.store_host),
    "preparedTransactionOffset": lambda record: record.prepared_transaction_offset,
    "offsetMsgId": _offset_msg_id,
}
