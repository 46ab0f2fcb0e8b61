"""One message as it lies in the CommitLog and as it goes to consumers. Big-endian, no padding::

    offset        size    field
    0             4       size, this field included
    4             4       magic: V1, V2 (5.x, topic length of 2 bytes; read but never written), or blank
    8             4       body CRC-32, low 31 bits
    12            4       queue id
    16            4       flag, the user's
    20            8       queue offset
    28            8       phy offset: of this record in the CommitLog
    36            4       sys flag
    40            8       born timestamp, ms
    48            B       born host: address 4 or 16 (sys flag 0x10), port 4
    48+B          8       store timestamp, ms
    56+B          S       store host: address 4 or 16 (sys flag 0x20), port 4
    56+B+S        4       reconsume times
    60+B+S        8       prepared transaction offset
    68+B+S        4 + n   body
    72+B+S+n      1 + t   topic (UTF-8)
    73+B+S+n+t    2 + p   properties (UTF-8)

The filler at the end of a file is the remaining size (4), the blank magic (4), and whatever follows.
csrc/store/log/record.c writes and reads the same; tests/property/test_compiled_formats.py compares the two.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import attrs

from rocketpy.errors import MessageInvalid, RecordCorrupt
from rocketpy.message.numbers import PhyOffset, QueueOffset

from . import sys_flag as flags
from .host import HOST_SIZE_V4, HOST_SIZE_V6, Host, pack_host, unpack_host
from .names import TOPIC_LENGTH_MAX
from .properties import PROPERTIES_SIZE_MAX

MESSAGE_MAGIC_CODE = -626843481  # DA A3 20 A7
MESSAGE_MAGIC_CODE_V2 = -626843477  # DA A3 20 AB
BLANK_MAGIC_CODE = -875286124  # CB D4 31 94
END_FILE_MIN_BLANK_LENGTH = 8
_MAGIC_CODES = (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2)
CRC_MASK = 0x7FFFFFFF

_HEAD = struct.Struct(
    ">i"  # size
    "i"  # magic
    "I"  # body CRC
    "i"  # queue id
    "i"  # flag
    "q"  # queue offset
    "q"  # phy offset
    "i"  # sys flag
    "q"  # born timestamp
)
_STORE_TIMESTAMP = struct.Struct(">q")
_MIDDLE = struct.Struct(
    ">i"  # reconsume times
    "q"  # prepared transaction offset
    "i"  # body size
)
_FIXED = {  # all fields up to the body, by the bits of the hosts in sys flag
    born_v6 | store_v6: struct.Struct(f"{_HEAD.format}{born_size}sq{store_size}s{_MIDDLE.format[1:]}")
    for born_v6, born_size in ((0, HOST_SIZE_V4), (flags.BORN_HOST_V6, HOST_SIZE_V6))
    for store_v6, store_size in ((0, HOST_SIZE_V4), (flags.STORE_HOST_V6, HOST_SIZE_V6))
}
_LOOKED_AT = {  # some of them, which a consumer needs of each message: size, magic, queue, offset, sys flag, body size
    hosts: struct.Struct(f">ii4xi4xq8xi{fixed.size - 44}xi") for hosts, fixed in _FIXED.items()
}
assert all(some.size == _FIXED[hosts].size for hosts, some in _LOOKED_AT.items())
_made = tuple.__new__  # of a named tuple: the class itself takes three times as long
_SYS_FLAG_LOW_AT, _HOSTS_V6 = 39, flags.BORN_HOST_V6 | flags.STORE_HOST_V6
RECORD_START = struct.Struct(">ii")  # size, magic
MAGIC_AT, PHY_OFFSET_AT = 4, 28
_SHORT = struct.Struct(">h")
assert _HEAD.size == 48
FIXED_SIZE_V4 = _HEAD.size + _STORE_TIMESTAMP.size + _MIDDLE.size + 2 * HOST_SIZE_V4 + 1 + 2
assert FIXED_SIZE_V4 == 91
RECORD_HEAD_MAX = _HEAD.size + HOST_SIZE_V6 + _STORE_TIMESTAMP.size
"""Bytes of a record up to its store timestamp, at the most."""


@attrs.frozen
class StoredRecord:
    """The fields of a record. Body and properties are as stored: perhaps compressed, still one string."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: QueueOffset
    phy_offset: PhyOffset
    sys_flag: int
    born_timestamp_ms: int
    born_host: Host
    store_timestamp_ms: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes


class FixedFields(NamedTuple):
    """The fields of a record up to its body, as they lie in it: hosts packed."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: QueueOffset
    phy_offset: PhyOffset
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_size: int


ReceivedRecord: TypeAlias = tuple[int, bytes, int, QueueOffset, int, bytes, bytes, bytes]
"""A record for readers of many: where it ends, its fixed fields encoded, and decoded the queue id, queue offset and sys
flag; body, topic and properties."""


def store_timestamp_of(head: bytes) -> int | None:
    """Store time (ms) of a message from the first RECORD_HEAD_MAX bytes of its record; None: they are no message's."""
    if len(head) < _HEAD.size:
        return None
    _, magic, *_, sys_flag, _ = _HEAD.unpack_from(head)
    at = _HEAD.size + (HOST_SIZE_V6 if sys_flag & flags.BORN_HOST_V6 else HOST_SIZE_V4)
    if magic not in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2) or len(head) < at + _STORE_TIMESTAMP.size:
        return None
    return int(_STORE_TIMESTAMP.unpack_from(head, at)[0])


def queue_offset_of(head: bytes) -> int:
    """Queue offset of a message, from the bytes that `store_timestamp_of` reads."""
    return int(_HEAD.unpack_from(head)[5])


def record_address(image: bytes) -> tuple[str, int, int]:
    """Topic and queue of a record, and where its properties begin: much faster than decode_record.

    Raises:
        struct.error, IndexError: its fields go past its end.
    """
    _, magic, _, queue_id, *_, sys_flag, _ = _HEAD.unpack_from(image)
    at = _HEAD.size + (HOST_SIZE_V6 if sys_flag & flags.BORN_HOST_V6 else HOST_SIZE_V4) + _STORE_TIMESTAMP.size
    at += HOST_SIZE_V6 if sys_flag & flags.STORE_HOST_V6 else HOST_SIZE_V4
    at += _MIDDLE.size + int(_MIDDLE.unpack_from(image, at)[2])
    if magic == MESSAGE_MAGIC_CODE_V2:
        topic_at, topic_size = at + _SHORT.size, int(_SHORT.unpack_from(image, at)[0])
    else:
        topic_at, topic_size = at + 1, image[at]
    topic_end = topic_at + topic_size
    return image[topic_at:topic_end].decode("utf-8", "replace"), queue_id, topic_end


def record_properties(image: bytes, at: int) -> bytes:
    """Return the properties of a record. `at`: where they begin, from record_address. Raises: struct.error."""
    (size,) = _SHORT.unpack_from(image, at)
    return image[at + _SHORT.size : at + _SHORT.size + max(0, size)]


def body_crc(body: bytes | memoryview) -> int:
    """CRC-32 of the body as records carry it: 31 bits, 0 for no body."""
    return zlib.crc32(body) & CRC_MASK


def record_size(*, body_size: int, topic_size: int, properties_size: int, hosts_size: int = 2 * HOST_SIZE_V4) -> int:
    """Bytes of an encoded V1 record; `hosts_size` is that of both host fields together."""
    return FIXED_SIZE_V4 - 2 * HOST_SIZE_V4 + hosts_size + body_size + topic_size + properties_size


def encode_record(
    *,
    topic: str,
    queue_id: int,
    body: bytes,
    properties: bytes,
    born_timestamp_ms: int,
    born_host: Host,
    store_timestamp_ms: int,
    store_host: Host,
    queue_offset: int,
    phy_offset: int,
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """Return a V1 record. The IPv6 bits of `sys_flag` are set from the hosts.

    Raises:
        MessageInvalid: topic beyond 127 bytes, properties beyond 32767, or a number beyond its field.
    """
    topic_bytes = topic.encode("utf-8", "replace")
    if len(topic_bytes) > TOPIC_LENGTH_MAX:
        raise MessageInvalid(f"topic of {len(topic_bytes)} bytes, at most {TOPIC_LENGTH_MAX} can be stored")
    if len(properties) > PROPERTIES_SIZE_MAX:
        raise MessageInvalid(f"properties of {len(properties)} bytes, at most {PROPERTIES_SIZE_MAX} can be stored")
    born, store = pack_host(born_host), pack_host(store_host)
    hosts_size = len(born) + len(store)
    size = record_size(
        body_size=len(body), topic_size=len(topic_bytes), properties_size=len(properties), hosts_size=hosts_size
    )
    try:
        return b"".join(
            (
                _HEAD.pack(
                    size,
                    MESSAGE_MAGIC_CODE,
                    body_crc(body),
                    queue_id,
                    flag,
                    queue_offset,
                    phy_offset,
                    _with_hosts(sys_flag, born, store),
                    born_timestamp_ms,
                ),
                born,
                _STORE_TIMESTAMP.pack(store_timestamp_ms),
                store,
                _MIDDLE.pack(reconsume_times, prepared_transaction_offset, len(body)),
                body,
                bytes((len(topic_bytes),)),
                topic_bytes,
                _SHORT.pack(len(properties)),
                properties,
            )
        )
    except struct.error as exc:
        raise MessageInvalid(f"a number of the message does not fit its field: {exc}") from exc


def _with_hosts(sys_flag: int, born: bytes, store: bytes) -> int:
    sys_flag &= ~(flags.BORN_HOST_V6 | flags.STORE_HOST_V6)
    sys_flag |= flags.BORN_HOST_V6 if len(born) == HOST_SIZE_V6 else 0
    return sys_flag | (flags.STORE_HOST_V6 if len(store) == HOST_SIZE_V6 else 0)


def encode_blank(size: int) -> bytes:
    """The first bytes of the filler of `size` bytes that ends a file."""
    assert size >= END_FILE_MIN_BLANK_LENGTH
    return RECORD_START.pack(size, BLANK_MAGIC_CODE)


def decode_record(image: bytes | memoryview, phy_offset: int = 0, *, check_crc: bool = False) -> StoredRecord | None:
    """Decode the record that starts `image`.

    A record declares its own size, so the end of a file (blank magic, zeros) is told from damage.

    Args:
        image: from the record on, to the end of the file or of what was received; borrowed, never kept.
        phy_offset: where `image` starts in the log; used in errors only.
        check_crc: also compare the body with its stored CRC; not an empty one, as in the reference.
    Returns: the record, or None at the end of the file: blank, zeros, or nothing left.
    Layout: table at the top of this module.
    Raises:
        RecordCorrupt: size, magic, an inner length or the CRC does not hold.
    Source: RocketMQ 4.9 `CommitLog#checkMessageAndReturnSize`, `MessageDecoder#decode`.
    """
    return _decode_at(image, 0, phy_offset, check_crc=check_crc)


def decode_records(
    image: bytes | memoryview, phy_offset: int = 0, *, check_crc: bool = False
) -> Iterator[StoredRecord]:
    """The records that follow each other in `image`, up to its end or the end of the file.

    Raises:
        RecordCorrupt: as decode_record; the records before it have been given.
    """
    position = 0
    while position < len(image):
        record = _decode_at(image, position, phy_offset + position, check_crc=check_crc)
        if record is None:
            return
        yield record
        position += record.size


def read_records(image: bytes | memoryview) -> Iterator[ReceivedRecord]:
    """As decode_records, of an answer: without the conversions and most fields, which take longer than the rest."""
    image, position = bytes(image), 0
    while position < len(image):
        record = _read_sound(image, position) or _read_received(image, position)
        if record is None:
            return
        yield record
        position = record[0]


def fixed_fields(encoded: bytes) -> FixedFields:
    """Decode the fixed fields of a ReceivedRecord."""
    return _made(FixedFields, _FIXED[encoded[_SYS_FLAG_LOW_AT] & _HOSTS_V6].unpack(encoded))


def _decode_at(image: bytes | memoryview, at: int, phy_offset: int, *, check_crc: bool) -> StoredRecord | None:
    found = _read(image, at, phy_offset)
    if found is None:
        return None
    fields, body, topic, properties = found
    if check_crc and body and body_crc(body) != fields.body_crc:
        raise RecordCorrupt(phy_offset, f"body CRC is 0x{body_crc(body):08x}, 0x{fields.body_crc:08x} was stored")
    return StoredRecord(
        size=fields.size,
        magic=fields.magic,
        body_crc=fields.body_crc,
        queue_id=fields.queue_id,
        flag=fields.flag,
        queue_offset=fields.queue_offset,
        phy_offset=fields.phy_offset,
        sys_flag=fields.sys_flag,
        born_timestamp_ms=fields.born_timestamp_ms,
        born_host=unpack_host(fields.born_host),
        store_timestamp_ms=fields.store_timestamp_ms,
        store_host=unpack_host(fields.store_host),
        reconsume_times=fields.reconsume_times,
        prepared_transaction_offset=fields.prepared_transaction_offset,
        body=body,
        topic=topic.decode("utf-8", "replace"),
        properties=properties,
    )


def _read_sound(image: bytes, at: int) -> ReceivedRecord | None:
    """Read a V1 record whose sizes hold, in a third of the time of `_read`; None: `_read` decides about it."""
    try:
        looked_at = _LOOKED_AT[image[at + _SYS_FLAG_LOW_AT] & _HOSTS_V6]
        size, magic, queue_id, queue_offset, sys_flag, body_size = looked_at.unpack_from(image, at)
        body_at, end = at + looked_at.size, at + size
        body_end = body_at + body_size
        topic_at = body_end + 1
        topic_end = topic_at + image[body_end]
        size_high, size_low = image[topic_end], image[topic_end + 1]
    except (struct.error, IndexError):
        return None
    properties_at = topic_end + _SHORT.size
    if (
        magic != MESSAGE_MAGIC_CODE
        or not body_at <= body_end < end <= len(image)
        or topic_end - topic_at > TOPIC_LENGTH_MAX
        or size_high > 0x7F
        or properties_at + (size_high << 8 | size_low) != end
    ):
        return None
    body, topic, properties = image[body_at:body_end], image[topic_at:topic_end], image[properties_at:end]
    return end, image[at:body_at], queue_id, queue_offset, sys_flag, body, topic, properties


def _read_received(image: bytes, at: int) -> ReceivedRecord | None:
    """Read the record at `at`, of any version; None at the end."""
    found = _read(image, at, at)
    if found is None:
        return None
    fields, body, topic, properties = found
    encoded = image[at : at + _FIXED[fields.sys_flag & _HOSTS_V6].size]
    return at + fields.size, encoded, fields.queue_id, fields.queue_offset, fields.sys_flag, body, topic, properties


def _read(image: bytes | memoryview, at: int, phy_offset: int) -> tuple[FixedFields, bytes, bytes, bytes] | None:
    """Read the record at `at`: its fixed fields, body, topic and properties; None at the end."""
    left = len(image) - at
    if left < RECORD_START.size:
        if any(image[at:]):
            raise RecordCorrupt(phy_offset, f"only {left} bytes are there")
        return None
    size, magic = RECORD_START.unpack_from(image, at)
    if magic not in _MAGIC_CODES:
        _check_end(size, magic, phy_offset)
        return None
    if not FIXED_SIZE_V4 <= size <= left:
        raise RecordCorrupt(phy_offset, f"size is {size}, {left} bytes are there")
    if not isinstance(image, bytes):
        image, at = bytes(image[at : at + size]), 0
    fixed, end = _FIXED[image[at + _SYS_FLAG_LOW_AT] & _HOSTS_V6], at + size
    body_at = at + fixed.size
    if body_at > end:
        raise _past_size(size, phy_offset)
    fields = fixed.unpack_from(image, at)
    body_end = body_at + fields[-1]
    if not body_at <= body_end < end:
        raise RecordCorrupt(phy_offset, f"body of {fields[-1]} bytes in a record of {size}")
    if magic == MESSAGE_MAGIC_CODE:
        topic_size, topic_at = image[body_end], body_end + 1
        if topic_size > TOPIC_LENGTH_MAX:
            raise RecordCorrupt(phy_offset, f"topic length byte is {topic_size}, at most {TOPIC_LENGTH_MAX}")
    else:
        topic_size, topic_at = _size_at(image, body_end, end, size, phy_offset)
    topic_end = topic_at + topic_size
    if not topic_at <= topic_end <= end:
        raise RecordCorrupt(phy_offset, f"topic of {topic_size} bytes in a record of {size}")
    properties_size, properties_at = _size_at(image, topic_end, end, size, phy_offset)
    if properties_size < 0 or properties_at + properties_size != end:
        needed = f"{properties_at - (end - size)} + {properties_size}"
        raise RecordCorrupt(phy_offset, f"size is {size}, its fields need {needed} bytes")
    texts = image[body_at:body_end], image[topic_at:topic_end], image[properties_at:end]
    return FixedFields._make(fields), *texts


def _size_at(image: bytes, at: int, end: int, size: int, phy_offset: int) -> tuple[int, int]:
    """A size of two bytes, and where what it is the size of begins."""
    if at + _SHORT.size > end:
        raise _past_size(size, phy_offset)
    return _SHORT.unpack_from(image, at)[0], at + _SHORT.size


def _past_size(size: int, phy_offset: int) -> RecordCorrupt:
    return RecordCorrupt(phy_offset, f"its fields go past its size of {size} bytes")


def _check_end(size: int, magic: int, phy_offset: int) -> None:
    """See that a file ends where no record begins."""
    if magic == BLANK_MAGIC_CODE:
        if size < END_FILE_MIN_BLANK_LENGTH:
            raise RecordCorrupt(phy_offset, f"filler of {size} bytes, at least {END_FILE_MIN_BLANK_LENGTH} are needed")
    elif size or magic:
        raise RecordCorrupt(phy_offset, f"magic is 0x{magic & 0xFFFFFFFF:08x}")
