"""The compiled formats with the types of `rocketpy.message` and `rocketpy.remoting`, for tests that compare the two.

Each function takes and gives what its counterpart in Python does, and raises the same class of error. A buffer made by
`from_buffer` or `new` lives as long as its Python object, so each is held in a local until the call returns.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rocketpy.codes import OUR_VERSION
from rocketpy.errors import FrameTooLarge, HeaderInvalid, MessageInvalid, NumberInvalid, RecordCorrupt
from rocketpy.message.host import Host, pack_host, unpack_host
from rocketpy.message.numbers import PhyOffset, QueueOffset
from rocketpy.message.record import BLANK_MAGIC_CODE, StoredRecord
from rocketpy.native import Status
from rocketpy.remoting.frame import HeaderFields
from rocketpy.remoting.headers.pull import PullMessageResponseHeader
from rocketpy.remoting.headers.send import SendMessageResponseHeader

core = pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
ffi, lib = core.ffi, core.lib

Buffer = bytes | bytearray | memoryview
REPLY_OVERHEAD_MAX = 512  # a reply without its ids, region and remark: JSON text and numbers at their longest


def view_of(data: Buffer) -> Any:
    return ffi.from_buffer("uint8_t[]", data)


def bytes_at(pointer: Any, size: int) -> bytes:
    return bytes(ffi.buffer(pointer, size)) if size else b""


def put_texts(target: Any, **texts: bytes) -> list[Any]:
    """Set `name` and `name_size` of a struct. Returns what the struct borrows: keep it as long as the struct."""
    held = []
    for name, text in texts.items():
        held.append(view_of(text))
        setattr(target, name, held[-1])
        setattr(target, f"{name}_size", len(text))
    return held


# --- records (message/record.py) --------------------------------------------------------------------------------------


def put_host(host: Host, target: Any) -> None:
    address = pack_host(host)[:-4]
    target.family = 6 if len(address) == 16 else 4
    target.port = host[1]
    ffi.memmove(target.address, address, len(address))


def host_of(host: Any) -> Host:
    address = bytes(ffi.buffer(host.address, 16 if host.family == 6 else 4))
    return unpack_host(address + int(host.port).to_bytes(4, "big"))


def _c_record(fields: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The struct, and what it borrows."""
    numbers = dict(fields)
    target = ffi.new("rp_record *")
    held = put_texts(
        target,
        topic=numbers.pop("topic").encode(),
        **{name: numbers.pop(name, b"") for name in ("body", "properties", "properties_tail")},
    )
    put_host(numbers.pop("born_host"), target.born_host)
    put_host(numbers.pop("store_host"), target.store_host)
    for name, value in numbers.items():
        setattr(target, name, value)
    return target, held


def record_size(**fields: Any) -> int:
    """Of the arguments of `encode_record`; 0 for what does not fit the format."""
    target, _held = _c_record(fields)
    return int(lib.rp_record_size(target))


def encode_record(**fields: Any) -> bytes:
    """Also takes `properties_tail`, which C joins to the properties as `join_properties` does."""
    target, _held = _c_record(fields)
    size = lib.rp_record_size(target)
    if size == 0:
        raise MessageInvalid("topic or properties are beyond the limits of the format")
    out = ffi.new("uint8_t[]", size)
    return bytes_at(out, lib.rp_record_encode(target, out))


def record_status(image: Buffer, *, check_crc: bool = True) -> tuple[Status, int]:
    """What C finds at the start of `image`, and the size that it read there."""
    data, view = view_of(image), ffi.new("rp_record_view *")
    status = Status(lib.rp_record_decode(data, len(data), check_crc, view))
    return status, int(view.size)


def decode_record(image: Buffer, phy_offset: int = 0, *, check_crc: bool = False) -> StoredRecord | None:
    """C takes the rest of a whole file. A filler that is cut short is therefore INCOMPLETE; Python takes its start for
    the end of the file, and so does this."""
    data, view = view_of(image), ffi.new("rp_record_view *")
    status = Status(lib.rp_record_decode(data, len(data), check_crc, view))
    if status is Status.OK:
        return _stored_record(view)
    is_blank = bytes(image[4:8]) == BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True)
    is_zero = len(image) < 8 and not any(image)
    if status in (Status.EMPTY, Status.END_OF_FILE) or (status is Status.INCOMPLETE and (is_blank or is_zero)):
        return None
    assert status in (Status.INCOMPLETE, Status.CORRUPT), status
    raise RecordCorrupt(phy_offset, status.name)


def _stored_record(view: Any) -> StoredRecord:
    numbers = (
        "size",
        "magic",
        "body_crc",
        "queue_id",
        "flag",
        "sys_flag",
        "born_timestamp_ms",
        "store_timestamp_ms",
        "reconsume_times",
        "prepared_transaction_offset",
    )
    return StoredRecord(
        **{name: getattr(view, name) for name in numbers},
        queue_offset=QueueOffset(view.queue_offset),
        phy_offset=PhyOffset(view.phy_offset),
        born_host=host_of(view.born_host),
        store_host=host_of(view.store_host),
        body=bytes_at(view.body, view.body_size),
        topic=bytes_at(view.topic, view.topic_size).decode("utf-8", "replace"),
        properties=bytes_at(view.properties, view.properties_size),
    )


# --- hashes, properties, ids (message/tags.py, properties.py, message_id.py) ------------------------------------------


def crc32(data: Buffer, crc: int = 0) -> int:
    view = view_of(data)
    return int(lib.rp_crc32(crc, view, len(view)))


def string_hash(text: bytes) -> int:
    """Of UTF-8; a malformed sequence counts as U+FFFD."""
    view = view_of(text)
    return int(lib.rp_string_hash(view, len(view)))


def index_hash(key: bytes) -> int:
    view = view_of(key)
    return int(lib.rp_index_hash(view, len(view)))


def find_property(properties: bytes, name: bytes) -> bytes | None:
    view, value = view_of(properties), ffi.new("const uint8_t **")
    size = lib.rp_property_find(view, len(view), name, value)
    return bytes_at(value[0], size) if size else None


def index_keys(topic: str, properties: bytes) -> list[str]:
    """As the index enters them: `topic#key`."""
    view, keys = view_of(properties), ffi.new("rp_keys *")
    key, size = ffi.new("const uint8_t **"), ffi.new("uint32_t *")
    lib.rp_keys_begin(keys, view, len(view))
    found = []
    while lib.rp_keys_next(keys, key, size):
        found.append(f"{topic}#{bytes_at(key[0], size[0]).decode()}")
    return found


def encode_offset_message_id(store_host: Host, phy_offset: int) -> str:
    host = ffi.new("rp_host *")
    put_host(store_host, host)
    out = ffi.new("uint8_t[]", 56)
    return bytes_at(out, lib.rp_message_id(host, phy_offset, out)).decode()


def parse_int(text: bytes) -> int:
    return _parse(lib.rp_parse_int32, text, ffi.new("int32_t *"))


def parse_long(text: bytes) -> int:
    return _parse(lib.rp_parse_int64, text, ffi.new("int64_t *"))


def _parse(function: Any, text: bytes, value: Any) -> int:
    view = view_of(text)
    status = Status(function(view, len(view), value))
    if status is Status.INVALID:
        raise NumberInvalid(f"{text[:40]!r}")
    assert status is Status.OK
    return int(value[0])


# --- frames and headers (remoting/frame.py, json_header.py, rocketmq_header.py) ---------------------------------------


@attrs.frozen
class FrameStart:
    """What C knows of the first frame: its size (0: not even that) and, of a whole one, the parts."""

    size: int
    serialize_type: int | None = None
    header: bytes | None = None
    body: bytes | None = None


def cut_frame(data: Buffer, frame_size_max: int) -> FrameStart:
    """Raises FrameTooLarge, HeaderInvalid."""
    view, frame = view_of(data), ffi.new("rp_frame *")
    status = Status(lib.rp_frame_cut(view, len(view), frame_size_max, frame))
    if status is Status.TOO_LARGE:
        raise FrameTooLarge(status.name)
    if status is Status.INVALID:
        raise HeaderInvalid(status.name)
    if status is Status.INCOMPLETE:
        return FrameStart(int(frame.size))
    header, body = bytes_at(frame.header, frame.header_size), bytes_at(frame.body, frame.body_size)
    return FrameStart(int(frame.size), int(frame.serialize_type), header, body)


def decode_header(serialize_type: int, header: Buffer) -> HeaderFields | None:
    """None: the fast reader leaves this header to the lenient one. It skips the language, which is None here.

    Raises:
        HeaderInvalid: malformed.
    """
    view, parsed = view_of(header), ffi.new("rp_header *")
    status = Status(lib.rp_header_parse(serialize_type, view, len(view), parsed))
    if status is Status.INVALID:
        raise HeaderInvalid(status.name)
    if status is Status.UNSUPPORTED:
        return None
    try:
        remark = _text(parsed.remark, parsed.remark_size, parsed.remark_escaped) if parsed.remark else None
        ext_fields = {
            _text(field.key, field.key_size, 0): _text(field.value, field.value_size, field.escaped)
            for field in parsed.fields[0 : parsed.field_count]
        }
    except HeaderInvalid:  # a malformed escape is found by who uses the value; then it is for the lenient reader
        return None
    return HeaderFields(
        code=parsed.code,
        language=None,
        version=parsed.version,
        opaque=parsed.opaque,
        flag=parsed.flag,
        remark=remark,
        ext_fields=ext_fields,
    )


def _text(pointer: Any, size: int, escaped: int) -> str:
    text = bytes_at(pointer, size)
    return (unescape_json(text) if escaped else text).decode()


def unescape_json(text: bytes) -> bytes:
    """Raises HeaderInvalid: an unknown or unfinished escape, or half a surrogate pair."""
    view, out = view_of(text), ffi.new("uint8_t[]", len(text))
    size = lib.rp_json_unescape(view, len(view), out)
    if size < 0:
        raise HeaderInvalid("malformed JSON escape")
    return bytes_at(out, size)


# --- replies (remoting/command.py with remoting/headers/send.py and pull.py) ------------------------------------------


def encode_send_reply(serialize_type: int, opaque: int, code: int, header: SendMessageResponseHeader) -> bytes:
    """The whole frame."""
    target = ffi.new("rp_send_reply *")
    target.serialize_type, target.opaque, target.code, target.version = serialize_type, opaque, code, OUR_VERSION
    target.queue_id, target.queue_offset, target.trace_on = header.queue_id, header.queue_offset, bool(header.trace_on)
    held = put_texts(target, message_ids=header.msg_id.encode(), region=(header.region or "").encode())
    return _encoded(lib.rp_send_reply_encode, target, held)


def encode_pull_reply(
    serialize_type: int, opaque: int, code: int, header: PullMessageResponseHeader, remark: str, body_size: int
) -> bytes:
    """The frame up to its body."""
    target = ffi.new("rp_pull_reply *")
    target.serialize_type, target.opaque, target.code, target.version = serialize_type, opaque, code, OUR_VERSION
    for name in ("suggest_which_broker_id", "next_begin_offset", "min_offset", "max_offset"):
        setattr(target, name, getattr(header, name))
    target.body_size = body_size
    return _encoded(lib.rp_pull_reply_encode, target, put_texts(target, remark=remark.encode()))


def encode_error_reply(
    serialize_type: int, opaque: int, code: int, remark: str, region: str | None = None, *, trace_on: bool = False
) -> bytes:
    """The whole frame."""
    texts = [ffi.NULL if text is None else ffi.new("char[]", text.encode()) for text in (remark, region)]
    target = ffi.new("rp_error_reply *", {"opaque": opaque, "code": code, "version": OUR_VERSION})
    target.serialize_type, target.trace_on = serialize_type, trace_on
    target.remark, target.region = texts
    out = ffi.new("uint8_t[]", lib.RP_ERROR_REPLY_MAX)
    return bytes_at(out, lib.rp_error_reply_encode(target, out))


def _encoded(encode: Any, target: Any, held: list[Any]) -> bytes:
    capacity = REPLY_OVERHEAD_MAX + sum(map(len, held))
    out = ffi.new("uint8_t[]", capacity)
    size = encode(target, out, capacity)
    assert size > 0, f"a reply needs more than {capacity} bytes"
    return bytes_at(out, size)
