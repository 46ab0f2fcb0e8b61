"""The specification of the compiled functions, short and obvious; also what runs where there is no compiled core.

Records, frames and keys are here, headers and replies in `_python_header.py`. Table of the record:
`csrc/store/record.c`.
"""

from __future__ import annotations

import struct
import zlib

from ..errors import FrameTooLarge, HeaderInvalid, MessageInvalid, RecordCorrupt
from ._python_header import (
    header_parse,
    json_unescape,
    parse_int32,
    parse_int64,
    pull_reply_encode,
    send_reply_encode,
)
from .abc import (
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    PROPERTIES_SIZE_MAX,
    SERIALIZE_ROCKETMQ,
    TOPIC_SIZE_MAX,
    Buffer,
    FrameCut,
    FrameIncomplete,
    Host,
    NoRecord,
    Record,
    RecordView,
    Status,
)

__all__ = [
    "NAME",
    "crc32",
    "frame_cut",
    "header_parse",
    "index_hash",
    "json_unescape",
    "message_id",
    "parse_int32",
    "parse_int64",
    "property_find",
    "pull_reply_encode",
    "record_decode",
    "record_encode",
    "record_size",
    "send_reply_encode",
    "string_hash",
]

NAME = "python"

CRC_MASK = 0x7FFFFFFF
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
RECORD_SIZE_MIN = 91
BLANK_SIZE_MIN = 8
HEAD = struct.Struct(
    ">i"  # total size
    "i"  # magic
    "I"  # body CRC
    "i"  # queue id
    "i"  # flag
    "Q"  # queue offset
    "Q"  # physical offset
    "i"  # sys flag
    "q"  # born timestamp
)
TAIL = struct.Struct(">iq")  # reconsume times, prepared transaction offset
TIMESTAMP = struct.Struct(">q")
assert HEAD.size == 48


def crc32(data: Buffer, crc: int = 0) -> int:
    return zlib.crc32(data, crc)


def _properties(record: Record) -> bytes:
    head, tail = record.properties, record.properties_tail
    separator = b"\x02" if head and tail and not head.endswith(b"\x02") else b""
    return head + separator + tail


def record_size(record: Record) -> int:
    properties = _properties(record)
    if len(record.topic) > TOPIC_SIZE_MAX or len(properties) > PROPERTIES_SIZE_MAX:
        return 0
    addresses = len(record.born_host.address) + len(record.store_host.address)
    size = RECORD_SIZE_MIN - 8 + addresses + len(record.body) + len(record.topic) + len(properties)
    return size if size <= 0x7FFFFFFF else 0


def _host(host: Host) -> bytes:
    return host.address + struct.pack(">I", host.port)


def record_encode(record: Record) -> bytes:
    size = record_size(record)
    if size == 0:
        raise MessageInvalid(f"topic of {len(record.topic)} or properties of {len(_properties(record))} bytes")
    sys_flag = record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 if len(record.born_host.address) == 16 else 0
    sys_flag |= STORE_HOST_V6 if len(record.store_host.address) == 16 else 0
    head = HEAD.pack(
        size,
        MESSAGE_MAGIC_CODE,
        zlib.crc32(record.body) & CRC_MASK,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.phy_offset,
        sys_flag,
        record.born_timestamp_ms,
    )
    properties = _properties(record)
    parts = (
        head,
        _host(record.born_host),
        TIMESTAMP.pack(record.store_timestamp_ms),
        _host(record.store_host),
        TAIL.pack(record.reconsume_times, record.prepared_transaction_offset),
        struct.pack(">i", len(record.body)) + record.body,
        struct.pack(">B", len(record.topic)) + record.topic,
        struct.pack(">H", len(properties)) + properties,
    )
    return b"".join(parts)


class _Reader:
    """Takes fields off a record; runs past its end are corruption."""

    def __init__(self, record: bytes, position: int, phy_offset: int) -> None:
        self.record = record
        self.position = position
        self.phy_offset = phy_offset

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.record) - self.position:
            raise RecordCorrupt(self.phy_offset, f"{size} bytes at {self.position} of {len(self.record)}")
        self.position += size
        return self.record[self.position - size : self.position]

    def take_sized(self, length_format: str) -> bytes:
        """A signed length and that many bytes."""
        (size,) = struct.unpack(length_format, self.take(struct.calcsize(length_format)))
        return self.take(size)

    def take_host(self, is_v6: int) -> Host:
        address = self.take(16 if is_v6 else 4)
        return Host(address, int.from_bytes(self.take(4), "big") & 0xFFFF)


def record_decode(image: Buffer, *, check_crc: bool, phy_offset: int = 0) -> RecordView | NoRecord:
    if len(image) < BLANK_SIZE_MIN:
        return NoRecord(Status.INCOMPLETE, 0)
    size, magic = struct.unpack_from(">ii", image)
    if size == 0 and magic == 0:
        return NoRecord(Status.EMPTY, 0)
    if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, BLANK_MAGIC_CODE):
        raise RecordCorrupt(phy_offset, f"magic {magic}")
    if size < (BLANK_SIZE_MIN if magic == BLANK_MAGIC_CODE else RECORD_SIZE_MIN):
        raise RecordCorrupt(phy_offset, f"size {size}")
    if size > len(image):
        return NoRecord(Status.INCOMPLETE, size)
    if magic == BLANK_MAGIC_CODE:
        return NoRecord(Status.END_OF_FILE, size)
    return _decode(bytes(image[:size]), phy_offset, check_crc=check_crc)


def _decode(record: bytes, phy_offset: int, *, check_crc: bool) -> RecordView:
    size, magic, body_crc, queue_id, flag, queue_offset, own_offset, sys_flag, born_timestamp_ms = HEAD.unpack_from(
        record
    )
    reader = _Reader(record, HEAD.size, phy_offset)
    born_host = reader.take_host(sys_flag & BORN_HOST_V6)
    (store_timestamp_ms,) = TIMESTAMP.unpack(reader.take(TIMESTAMP.size))
    store_host = reader.take_host(sys_flag & STORE_HOST_V6)
    reconsume_times, prepared_transaction_offset = TAIL.unpack(reader.take(TAIL.size))
    body = reader.take_sized(">i")
    topic = reader.take_sized(">h" if magic == MESSAGE_MAGIC_CODE_V2 else ">b")
    properties = reader.take_sized(">h")
    if reader.position != size:
        raise RecordCorrupt(phy_offset, f"size {size}, its parts end at {reader.position}")
    if check_crc and body and zlib.crc32(body) & CRC_MASK != body_crc:  # the reference ignores that of an empty body
        raise RecordCorrupt(phy_offset, f"body CRC {zlib.crc32(body) & CRC_MASK:#x}, stored {body_crc:#x}")
    return RecordView(
        size=size,
        magic=magic,
        body_crc=body_crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        phy_offset=own_offset,
        sys_flag=sys_flag,
        born_timestamp_ms=born_timestamp_ms,
        born_host=born_host,
        store_timestamp_ms=store_timestamp_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=body,
        topic=topic,
        properties=properties,
    )


def frame_cut(data: Buffer, frame_size_max: int) -> FrameCut | FrameIncomplete:
    if len(data) < 4:
        return FrameIncomplete(0)
    size = int.from_bytes(data[:4], "big") + 4
    if size > frame_size_max:
        raise FrameTooLarge(f"frame of {size} bytes, at most {frame_size_max} are allowed")
    if size < 8:
        raise HeaderInvalid(f"frame of {size} bytes")
    if len(data) < 8:
        return FrameIncomplete(size)
    serialize_type, header_size = data[4], int.from_bytes(data[5:8], "big")
    if serialize_type > SERIALIZE_ROCKETMQ or header_size > size - 8:
        raise HeaderInvalid(f"frame of {size} bytes, serialisation {serialize_type}, header of {header_size} bytes")
    return FrameCut(size, serialize_type, header_size) if len(data) >= size else FrameIncomplete(size)


def string_hash(text: Buffer) -> int:
    units = bytes(text).decode("utf-8", "replace").encode("utf-16-be")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x100000000 if value >= 0x80000000 else value


def index_hash(key: Buffer) -> int:
    value = abs(string_hash(key))
    return 0 if value == 0x80000000 else value


def property_find(properties: Buffer, name: bytes) -> bytes | None:
    found = None
    for piece in bytes(properties).split(b"\x02"):
        key, _, value = piece.partition(b"\x01")
        if key and value and key == name:
            found = value
    return found


def message_id(store_host: Host, phy_offset: int) -> str:
    return (_host(store_host) + struct.pack(">Q", phy_offset)).hex().upper()
