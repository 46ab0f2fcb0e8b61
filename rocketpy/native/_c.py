"""The compiled twin: converts arguments, keeps buffers alive for the length of a call, and maps status codes once.

A buffer made by `from_buffer` or `new` lives as long as its Python object, so each is held in a local until the call
returns; the structs of csrc only borrow. cffi releases the GIL in every call.
"""

from __future__ import annotations

from typing import Any

from ..errors import FrameTooLarge, HeaderInvalid, MessageInvalid, RecordCorrupt, RocketError
from .abc import (
    Buffer,
    FrameCut,
    FrameIncomplete,
    Host,
    NoRecord,
    ParsedHeader,
    PullReply,
    Record,
    RecordView,
    SendReply,
    Status,
)
from .core import ffi, lib

NAME = "c"

# What a status becomes: itself as a value where it is an expected outcome, else the error it is raised as.
_ERRORS: dict[Status, type[RocketError]] = {
    Status.INVALID: HeaderInvalid,
    Status.TOO_LARGE: FrameTooLarge,
}
REPLY_OVERHEAD_MAX = 512  # a reply without its ids, region and remark: JSON text and numbers at their longest


def _outcome(code: int, what: str) -> Status:
    status = Status(code)
    if status in _ERRORS:
        raise _ERRORS[status](f"{what}: {status.name}")
    return status


def _view(data: Buffer) -> Any:
    return ffi.from_buffer("uint8_t[]", data)


def crc32(data: Buffer, crc: int = 0) -> int:
    view = _view(data)
    return int(lib.rp_crc32(crc, view, len(view)))


# --- records ----------------------------------------------------------------------------------------------------------


def _put_host(host: Host, target: Any) -> None:
    target.family = 6 if len(host.address) == 16 else 4
    target.port = host.port
    ffi.memmove(target.address, host.address, len(host.address))


def _take_host(host: Any) -> Host:
    return Host(bytes(ffi.buffer(host.address, 16 if host.family == 6 else 4)), int(host.port))


def _bytes(pointer: Any, size: int) -> bytes:
    return bytes(ffi.buffer(pointer, size)) if size else b""


def _c_record(record: Record) -> tuple[Any, list[Any]]:
    """The struct, and what it borrows."""
    target = ffi.new("rp_record *")
    held = []
    for name in ("body", "topic", "properties", "properties_tail"):
        value = getattr(record, name)
        held.append(_view(value))
        setattr(target, name, held[-1])
        setattr(target, f"{name}_size", len(value))
    for name in (
        "queue_id",
        "flag",
        "queue_offset",
        "phy_offset",
        "sys_flag",
        "reconsume_times",
        "born_timestamp_ms",
        "store_timestamp_ms",
        "prepared_transaction_offset",
    ):
        setattr(target, name, getattr(record, name))
    _put_host(record.born_host, target.born_host)
    _put_host(record.store_host, target.store_host)
    return target, held


def record_size(record: Record) -> int:
    target, _held = _c_record(record)
    return int(lib.rp_record_size(target))


def record_encode(record: Record) -> bytes:
    target, _held = _c_record(record)
    size = lib.rp_record_size(target)
    if size == 0:
        raise MessageInvalid(f"topic of {len(record.topic)} or properties of {len(record.properties)} bytes")
    out = ffi.new("uint8_t[]", size)
    return _bytes(out, lib.rp_record_encode(target, out))


def record_decode(image: Buffer, *, check_crc: bool, phy_offset: int = 0) -> RecordView | NoRecord:
    data = _view(image)
    view = ffi.new("rp_record_view *")
    status = Status(lib.rp_record_decode(data, len(data), check_crc, view))
    if status is Status.CORRUPT:
        raise RecordCorrupt(phy_offset, "its magic, a length or the body CRC does not hold")
    if status is not Status.OK:
        return NoRecord(status, int(view.size))
    return RecordView(
        size=view.size,
        magic=view.magic,
        body_crc=view.body_crc,
        queue_id=view.queue_id,
        flag=view.flag,
        queue_offset=view.queue_offset,
        phy_offset=view.phy_offset,
        sys_flag=view.sys_flag,
        born_timestamp_ms=view.born_timestamp_ms,
        born_host=_take_host(view.born_host),
        store_timestamp_ms=view.store_timestamp_ms,
        store_host=_take_host(view.store_host),
        reconsume_times=view.reconsume_times,
        prepared_transaction_offset=view.prepared_transaction_offset,
        body=_bytes(view.body, view.body_size),
        topic=_bytes(view.topic, view.topic_size),
        properties=_bytes(view.properties, view.properties_size),
    )


# --- frames and headers -----------------------------------------------------------------------------------------------


def frame_cut(data: Buffer, frame_size_max: int) -> FrameCut | FrameIncomplete:
    view = _view(data)
    frame = ffi.new("rp_frame *")
    status = _outcome(lib.rp_frame_cut(view, len(view), frame_size_max, frame), "frame")
    if status is Status.INCOMPLETE:
        return FrameIncomplete(int(frame.size))
    return FrameCut(int(frame.size), int(frame.serialize_type), int(frame.header_size))


def header_parse(serialize_type: int, header: Buffer) -> ParsedHeader | None:
    view = _view(header)
    parsed = ffi.new("rp_header *")
    status = _outcome(lib.rp_header_parse(serialize_type, view, len(view), parsed), "header")
    if status is Status.UNSUPPORTED:
        return None
    try:
        return ParsedHeader(
            code=parsed.code,
            version=parsed.version,
            opaque=parsed.opaque,
            flag=parsed.flag,
            language=parsed.language,
            remark=_text(parsed.remark, parsed.remark_size, parsed.remark_escaped) if parsed.remark else None,
            ext_fields={
                _text(field.key, field.key_size, 0): _text(field.value, field.value_size, field.escaped)
                for field in parsed.fields[0 : parsed.field_count]
            },
        )
    except HeaderInvalid:  # a bad escape: the fast reader leaves those to whoever uses the value
        return None


def _text(pointer: Any, size: int, escaped: int) -> str:
    text = _bytes(pointer, size)
    return (json_unescape(text) if escaped else text).decode()


def json_unescape(text: Buffer) -> bytes:
    view = _view(text)
    out = ffi.new("uint8_t[]", len(view))
    size = lib.rp_json_unescape(view, len(view), out)
    if size < 0:
        raise HeaderInvalid("malformed JSON escape")
    return _bytes(out, size)


def _parse(function: Any, text: Buffer, value: Any) -> int:
    view = _view(text)
    _outcome(function(view, len(view), value), "integer")
    return int(value[0])


def parse_int32(text: Buffer) -> int:
    return _parse(lib.rp_parse_int32, text, ffi.new("int32_t *"))


def parse_int64(text: Buffer) -> int:
    return _parse(lib.rp_parse_int64, text, ffi.new("int64_t *"))


# --- replies ----------------------------------------------------------------------------------------------------------


def _reply(
    encode: Any, reply: SendReply | PullReply, target: Any, numbers: tuple[str, ...], texts: tuple[str, ...]
) -> bytes:
    """Fill the struct by name and have it encoded; texts are borrowed until then."""
    held = []
    for name in ("serialize_type", "opaque", "code", "version", *numbers):
        setattr(target, name, getattr(reply, name))
    for name in texts:
        held.append(_view(getattr(reply, name)))
        setattr(target, name, held[-1])
        setattr(target, f"{name}_size", len(held[-1]))
    capacity = REPLY_OVERHEAD_MAX + sum(map(len, held))
    out = ffi.new("uint8_t[]", capacity)
    size = encode(target, out, capacity)
    assert size > 0, f"a reply needs more than {capacity} bytes"
    return _bytes(out, size)


def send_reply_encode(reply: SendReply) -> bytes:
    numbers = ("queue_id", "queue_offset", "trace_on")
    return _reply(lib.rp_send_reply_encode, reply, ffi.new("rp_send_reply *"), numbers, ("message_ids", "region"))


def pull_reply_encode(reply: PullReply) -> bytes:
    numbers = ("suggest_which_broker_id", "next_begin_offset", "min_offset", "max_offset", "body_size")
    return _reply(lib.rp_pull_reply_encode, reply, ffi.new("rp_pull_reply *"), numbers, ("remark",))


# --- keys -------------------------------------------------------------------------------------------------------------


def string_hash(text: Buffer) -> int:
    view = _view(text)
    return int(lib.rp_string_hash(view, len(view)))


def index_hash(key: Buffer) -> int:
    view = _view(key)
    return int(lib.rp_index_hash(view, len(view)))


def property_find(properties: Buffer, name: bytes) -> bytes | None:
    view, name_view = _view(properties), _view(name)
    value, size = ffi.new("const uint8_t **"), ffi.new("uint32_t *")
    status = _outcome(lib.rp_property_find(view, len(view), name_view, len(name_view), value, size), "property")
    return _bytes(value[0], size[0]) if status is Status.OK else None


def message_id(store_host: Host, phy_offset: int) -> str:
    host = ffi.new("rp_host *")
    _put_host(store_host, host)
    out = ffi.new("uint8_t[]", 56)
    return _bytes(out, lib.rp_message_id(host, phy_offset, out)).decode()
