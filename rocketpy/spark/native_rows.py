"""Rows and columns by the compiled core (csrc/arrow)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rocketpy.errors import CompressionError
from rocketpy.filter.parser import parse
from rocketpy.filter.program import compile_program
from rocketpy.message.compression import decompress
from rocketpy.native import Status
from rocketpy.native.core import ffi, lib

from .columns import COLUMNS, NUMBERS, PROPERTIES, TIMES
from .scan import Checks, Found, Selection

NUMBER_COLUMNS = {
    "queueId": lib.RP_COLUMN_QUEUE_ID,
    "flag": lib.RP_COLUMN_FLAG,
    "sysFlag": lib.RP_COLUMN_SYS_FLAG,
    "reconsumeTimes": lib.RP_COLUMN_RECONSUME_TIMES,
    "storeSize": lib.RP_COLUMN_STORE_SIZE,
    "bodyCRC": lib.RP_COLUMN_BODY_CRC,
    "queueOffset": lib.RP_COLUMN_QUEUE_OFFSET,
    "physicalOffset": lib.RP_COLUMN_PHY_OFFSET,
    "preparedTransactionOffset": lib.RP_COLUMN_PREPARED_OFFSET,
    "bornTimestamp": lib.RP_COLUMN_BORN_TIME,
    "storeTimestamp": lib.RP_COLUMN_STORE_TIME,
}
TEXT_COLUMNS = {
    "body": lib.RP_COLUMN_BODY,
    "topic": lib.RP_COLUMN_TOPIC,
    "tags": lib.RP_COLUMN_TAGS,
    "keys": lib.RP_COLUMN_KEYS,
    "msgId": lib.RP_COLUMN_MSG_ID,
    "offsetMsgId": lib.RP_COLUMN_OFFSET_MSG_ID,
    "bornHost": lib.RP_COLUMN_BORN_HOST,
    "storeHost": lib.RP_COLUMN_STORE_HOST,
}
OF_PROPERTIES = frozenset({"topic", "tags", "keys", "msgId", "properties"})
SYS_FLAG_AT = 36  # in a record
MAGIC_AT, MAGIC = 4, re.compile(re.escape(b"\xda\xa3\x20\xa7"))
ROW_BYTES = ffi.sizeof("rp_row")
ZEROS = bytes(1 << 16)
RESYNC_CHAIN = 8
"""Records that must follow each other before `resync` takes the first for one."""


class NativeRows:
    """Finds rows in an image and makes columns of them; one image after the other, not for several threads."""

    def __init__(self, selection: Selection, checks: Checks, columns: tuple[str, ...]) -> None:
        self._checks = checks
        self._rows = ffi.new("rp_row[]", checks.rows_max)
        self._valid = ffi.new("uint8_t[]", (checks.rows_max + 7) // 8)  # bitmap of one column after the other
        self._scan = scan = ffi.new("rp_rows_scan *")
        scan.rows_max, scan.bytes_max = checks.rows_max, checks.bytes_max
        scan.record_size_max = checks.record_size_max
        scan.store_time_from, scan.store_time_to = selection.store_time_from_ms, selection.store_time_to_ms
        scan.queue_offset_from, scan.queue_offset_to = selection.queue_offset_from, selection.queue_offset_to
        self._borrowed = [*_put_texts(scan.topics, selection.topics), *_put_texts(scan.tags, selection.tags)]
        if selection.queue_ids:
            self._borrowed.append(queue_ids := ffi.new("int32_t[]", sorted(selection.queue_ids)))
            scan.queue_ids, scan.queue_id_count = queue_ids, len(queue_ids)
        scan.flags = (
            lib.RP_ROWS_CRC * checks.crc
            | lib.RP_ROWS_PLACE * checks.place
            | lib.RP_ROWS_COMMITTED * selection.committed_only
            | lib.RP_ROWS_PROPERTIES * bool(selection.tags or OF_PROPERTIES & set(columns))
        )
        if selection.condition is not None:
            self._borrowed.append(compiled := _compiled(selection.condition))
            scan.filter = compiled
        self._inflated: dict[int, Any] = {}  # by row

    @contextlib.contextmanager
    def image(self, data: Any) -> Iterator[Any]:
        """Give the argument of `find` and `resync`: the bytes of `data`, borrowed until the end of the block."""
        with ffi.from_buffer("uint8_t[]", data) as view:
            yield view

    def find(self, image: Any, start: int, position: int, stop: int) -> Found:
        """Find the next rows among the records from `position` to `stop`; `start` is the phy offset of the image."""
        self._inflated.clear()
        scan = self._scan
        scan.start, scan.position = start, position
        status = Status(lib.rp_rows_find(image, len(image), stop, scan, self._rows))
        return Found(status, int(scan.position), int(scan.records), int(scan.rows), int(scan.compressed))

    def resync(self, image: Any, start: int, position: int, stop: int) -> int | None:
        """Return the place of the first record at or after `position`; None if there is none before `stop`.

        It is in its own place, and is followed by RESYNC_CHAIN valid ones, or by fewer and the end of the log. CRCs are
        not compared.
        """
        data = ffi.buffer(image)
        for magic in MAGIC.finditer(data, _after_zeros(data, position, stop) + MAGIC_AT, stop + MAGIC_AT + 3):
            if self._begins_chain(image, start, magic.start() - MAGIC_AT):
                return magic.start() - MAGIC_AT
        return None

    def _begins_chain(self, image: Any, start: int, position: int) -> bool:
        record = ffi.new("rp_record_view *")
        for number in range(RESYNC_CHAIN + 1):
            if number and position == len(image):
                return True
            status = lib.rp_record_decode(image + position, len(image) - position, 0, record)
            if number and status in (Status.END_OF_FILE, Status.EMPTY):
                return True
            is_sound = status == Status.OK and record.size <= self._checks.record_size_max
            if not is_sound or record.phy_offset != start + position:
                return False
            position += record.size
        return True

    def inflate(self, row: int) -> tuple[int, CompressionError | None]:
        """Inflate the body of a row if it is compressed. Returns its size now, and what prevented it."""
        target = self._rows[row]
        if not target.flags & lib.RP_ROW_COMPRESSED:
            return int(target.body_size), None
        sys_flag = int.from_bytes(ffi.buffer(target.record + SYS_FLAG_AT, 4), "big")
        try:
            body = decompress(bytes(ffi.buffer(target.body, target.body_size)), sys_flag >> 8 & 7)
        except CompressionError as error:
            return int(target.body_size), error
        self._inflated[row] = view = ffi.from_buffer("uint8_t[]", body)
        target.body, target.body_size = view, len(body)
        return len(body), None

    def forget(self, first: int, count: int) -> None:
        """Free the inflated bodies of these rows, which are not looked at again."""
        for row in range(first, first + count):
            self._rows[row].body_size = 0
            self._inflated.pop(row, None)

    def arrange(self, first: int, order: Any) -> None:
        """Put the rows from `first` on in another order: an Arrow array of their numbers, counted from `first`."""
        rows = ffi.buffer(self._rows + first, len(order) * ROW_BYTES)
        found = pa.Array.from_buffers(pa.binary(ROW_BYTES), len(order), [None, pa.py_buffer(rows)])
        rows[:] = found.take(order).buffers()[1]

    def column(self, name: str, first: int, count: int) -> Any:
        """The Arrow array of a column for the rows from `first` on."""
        rows = self._rows + first
        if name in NUMBERS or name in TIMES:
            return _numbers(COLUMNS[name].arrow, NUMBER_COLUMNS[name], rows, count, self._valid)
        if name == "properties":
            return _pairs(rows, count)
        return _texts(COLUMNS[name].arrow, TEXT_COLUMNS[name], rows, count, self._valid)


def _after_zeros(data: Any, position: int, stop: int) -> int:
    """Return the first place at which a record may begin, after the blocks of zeros from `position` on.

    A gigabyte of zeros may follow the last record of a log. To compare blocks is ten times as fast as to search for the
    magic of a record.
    """
    first = position
    while position + len(ZEROS) <= stop and data[position : position + len(ZEROS)] == ZEROS:
        position += len(ZEROS)
    return max(first, position - MAGIC_AT)  # the size of a record begins with up to three bytes of zero


def _compiled(condition: str) -> Any:
    """A condition as a program of the core."""
    program = compile_program(parse(condition))
    compiled = lib.rp_filter_open(ffi.from_buffer("uint8_t[]", program), len(program))
    assert compiled != ffi.NULL, "a program of our compiler is sound"
    return ffi.gc(compiled, lib.rp_filter_release)


def _put_texts(target: Any, texts: frozenset[str]) -> list[Any]:
    """Fill an rp_text_set. Returns what it borrows."""
    if not texts:
        return []
    encoded = sorted(text.encode() for text in texts)
    ends, end = [], 0
    for text in encoded:
        ends.append(end := end + len(text))
    borrowed = [ffi.from_buffer("uint8_t[]", b"".join(encoded)), ffi.new("uint32_t[]", ends)]
    target.bytes, target.ends = borrowed
    target.count = len(encoded)
    return borrowed


def _buffer(size: int, ctype: str = "uint8_t") -> tuple[Any, Any]:
    """A new Arrow buffer of `size` bytes, and its address for C; keep the first as long as the second."""
    buffer = pa.allocate_buffer(size)
    return buffer, ffi.cast(f"{ctype} *", buffer.address)


def _numbers(kind: Any, column: int, rows: Any, count: int, valid: Any) -> Any:
    data, data_at = _buffer(count * kind.bit_width // 8)
    nulls = lib.rp_column_numbers(column, rows, count, data_at, valid)
    return pa.Array.from_buffers(kind, count, [_copied(valid, count, nulls), data], nulls)


def _texts(kind: Any, column: int, rows: Any, count: int, valid: Any) -> Any:
    room = lib.rp_column_texts_room(column, rows, count)
    data, data_at = _buffer(room)
    offsets, offsets_at = _buffer(4 * (count + 1), "int32_t")
    nulls = ffi.new("uint32_t *")
    status = lib.rp_column_texts(column, rows, count, offsets_at, data_at, room, valid, nulls)
    assert status == Status.OK, f"{count} rows need {room} bytes"  # batches are cut well below 2 GiB
    return pa.Array.from_buffers(kind, count, [_copied(valid, count, nulls[0]), offsets, data], nulls[0])


def _copied(valid: Any, count: int, nulls: int) -> Any:
    """The bitmap for an array; a column without nulls has none."""
    return pa.py_buffer(bytes(ffi.buffer(valid, (count + 7) // 8))) if nulls else None


def _pairs(rows: Any, count: int) -> Any:
    room = ffi.new("rp_pairs_room *")
    lib.rp_column_pairs_room(rows, count, room)
    offsets, offsets_at = _buffer(4 * (count + 1), "int32_t")
    names, names_at = _buffer(room.bytes)
    values, values_at = _buffer(room.bytes)
    name_offsets, name_offsets_at = _buffer(4 * (room.pairs + 1), "int32_t")
    value_offsets, value_offsets_at = _buffer(4 * (room.pairs + 1), "int32_t")
    total = ffi.new("uint64_t *")
    status = lib.rp_column_pairs(
        rows, count, room, offsets_at, name_offsets_at, names_at, value_offsets_at, values_at, total
    )
    assert status == Status.OK, f"{count} rows need {room.bytes} bytes of properties"
    pairs = total[0]
    entries = pa.StructArray.from_arrays(
        [
            pa.Array.from_buffers(pa.string(), pairs, [None, name_offsets, names], 0),
            pa.Array.from_buffers(pa.string(), pairs, [None, value_offsets, values], 0),
        ],
        fields=[PROPERTIES.key_field, PROPERTIES.item_field],
    )
    return pa.Array.from_buffers(PROPERTIES, count, [None, offsets], 0, children=[entries])
