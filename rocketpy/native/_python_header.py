"""Specification of the header readers and the reply writers (csrc/wire/json_header.c, rocketmq_header.c, reply.c).

The fast readers know the form that clients write. What else may be good JSON is for a lenient parser: None.
"""

from __future__ import annotations

import json
import re
import struct
from typing import NamedTuple

from ..codes import LanguageCode
from ..errors import HeaderInvalid
from .abc import (
    FIELDS_MAX,
    LANGUAGE_UNKNOWN,
    SERIALIZE_JSON,
    SERIALIZE_ROCKETMQ,
    Buffer,
    ParsedHeader,
    PullReply,
    SendReply,
)

FLAG_RESPONSE = 1
ROCKETMQ_FIXED = struct.Struct(">hBhiiI")  # code, language, version, opaque, flag, remark size
LANGUAGES = {member.name.encode(): member.value for member in LanguageCode}
INT32_MAX = 0x7FFFFFFF
INT64_MAX = 0x7FFFFFFFFFFFFFFF

_SPACE = rb"[ \t\r\n]*"
_OPEN, _COLON, _COMMA, _CLOSE = (re.compile(_SPACE + re.escape(mark) + _SPACE) for mark in (b"{", b":", b",", b"}"))
_KEY = re.compile(rb'"([^"\\\x00-\x1f]*)"')
_SCALAR = re.compile(
    rb'"(?P<string>(?:[^"\\\x00-\x1f]|\\.)*)"|(?P<number>-?(?:0|[1-9][0-9]*))|(?P<word>true|false)|(?P<null>null)',
    re.DOTALL,
)
_ESCAPE = re.compile(
    rb'\\(?:(?P<simple>["\\/bfnrt])'
    rb"|u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|u(?![dD][89a-fA-F])(?P<unit>[0-9a-fA-F]{4})"
    rb"|(?P<bad>))"
)
_SIMPLE = dict(zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True))


class _NotUnderstood(Exception):
    """The header is not in the form that clients write."""


class _Value(NamedTuple):
    kind: str | None  # group of _SCALAR
    text: bytes


def header_parse(serialize_type: int, header: Buffer) -> ParsedHeader | None:
    parsers = {SERIALIZE_JSON: _json_header_parse, SERIALIZE_ROCKETMQ: _rocketmq_header_parse}
    if serialize_type not in parsers:
        raise HeaderInvalid(f"serialisation {serialize_type}")
    try:
        return parsers[serialize_type](bytes(header))
    except (_NotUnderstood, UnicodeDecodeError):
        return None


# --- JSON -------------------------------------------------------------------------------------------------------------


def _take(pattern: re.Pattern[bytes], text: bytes, at: int) -> tuple[re.Match[bytes], int]:
    match = pattern.match(text, at)
    if match is None:
        raise _NotUnderstood
    return match, match.end()


Members = list[tuple[bytes, "_Value | Members"]]


def _members(text: bytes, at: int, *, is_outer: bool) -> tuple[Members, int]:
    """The members, nulls included, of the object that opens at `at`, and where it ends."""
    members: Members = []
    _, at = _take(_OPEN, text, at)
    if empty := _CLOSE.match(text, at):
        return members, empty.end()
    while True:
        key, at = _take(_KEY, text, at)
        _, at = _take(_COLON, text, at)
        if is_outer and key[1] == b"extFields" and text.startswith(b"{", at):
            nested, at = _members(text, at, is_outer=False)
            members.append((key[1], nested))
        else:
            scalar, at = _take(_SCALAR, text, at)
            members.append((key[1], _Value(scalar.lastgroup, scalar[scalar.lastgroup or 0])))
        if (comma := _COMMA.match(text, at)) is None:
            _, at = _take(_CLOSE, text, at)
            return members, at
        at = comma.end()


def _text(value: _Value) -> str:
    try:
        return (json_unescape(value.text) if value.kind == "string" else value.text).decode()
    except HeaderInvalid as exc:
        raise _NotUnderstood from exc


def _ext_fields(members: Members) -> dict[str, str]:
    present = [(key, value) for key, value in members if isinstance(value, _Value) and value.kind != "null"]
    if len(present) > FIELDS_MAX:
        raise _NotUnderstood
    return {key.decode(): _text(value) for key, value in present}


def _number(value: _Value | None) -> int:
    if value is None:
        return 0
    if value.kind != "number":
        raise _NotUnderstood
    try:
        return parse_int32(value.text)
    except HeaderInvalid as exc:
        raise _NotUnderstood from exc


def _language(value: _Value | None) -> int:
    if value is None:
        return LANGUAGE_UNKNOWN
    if value.kind == "string":
        return LANGUAGES.get(value.text, LANGUAGE_UNKNOWN)
    try:
        number = parse_int32(value.text)
    except HeaderInvalid:
        return LANGUAGE_UNKNOWN
    return number if number in LANGUAGES.values() else LANGUAGE_UNKNOWN


def _json_header_parse(header: bytes) -> ParsedHeader:
    text = header.strip(b" \t\r\n")
    if len(text) < 2 or not (text.startswith(b"{") and text.endswith(b"}")):
        raise HeaderInvalid(f"JSON header of {len(header)} bytes is no object")
    text.decode()
    members, end = _members(text, 0, is_outer=True)
    keys = [key for key, _ in members]
    if end != len(text) or len(set(keys)) != len(keys):
        raise _NotUnderstood
    nested = {key: value for key, value in members if not isinstance(value, _Value)}
    values = {key: value for key, value in members if isinstance(value, _Value) and value.kind != "null"}
    remark, type_name = values.get(b"remark"), values.get(b"serializeTypeCurrentRPC")
    known = {b"code", b"extFields", b"flag", b"language", b"opaque", b"remark", b"serializeTypeCurrentRPC", b"version"}
    if not known.issuperset(keys) or not values.keys() >= {b"code", b"opaque"} or b"extFields" in values:
        raise _NotUnderstood
    if any(value is not None and value.kind != "string" for value in (remark, type_name)):
        raise _NotUnderstood
    return ParsedHeader(
        code=_number(values[b"code"]),
        version=_number(values.get(b"version")),
        opaque=_number(values[b"opaque"]),
        flag=_number(values.get(b"flag")),
        language=_language(values.get(b"language")),
        remark=None if remark is None else _text(remark),
        ext_fields=_ext_fields(nested.get(b"extFields", [])),
    )


def json_unescape(text: Buffer) -> bytes:
    def replace(match: re.Match[bytes]) -> bytes:
        if match["simple"]:
            return bytes([_SIMPLE[match["simple"][0]]])
        if match["unit"]:
            return chr(int(match["unit"], 16)).encode()
        if match["high"]:
            return bytes.fromhex((match["high"] + match["low"]).decode()).decode("utf-16-be").encode()
        raise HeaderInvalid(f"malformed JSON escape at {match.start()}")

    return _ESCAPE.sub(replace, bytes(text))


# --- ROCKETMQ ---------------------------------------------------------------------------------------------------------


def _sized(block: bytes, at: int, length_size: int) -> tuple[bytes, int]:
    """A big-endian length and that many bytes, and where they end. A negative length is beyond every block."""
    size = int.from_bytes(block[at : at + length_size], "big")
    start = at + length_size
    if start > len(block) or size > min(len(block) - start, (1 << 8 * length_size - 1) - 1):
        raise HeaderInvalid(f"{size} bytes at {start} of a block of {len(block)}")
    return block[start : start + size], start + size


def _rocketmq_header_parse(header: bytes) -> ParsedHeader:
    if len(header) < 21:
        raise HeaderInvalid(f"ROCKETMQ header of {len(header)} bytes")
    code, language, version, opaque, flag, _ = ROCKETMQ_FIXED.unpack_from(header)
    remark, at = _sized(header, 13, 4)
    if at + 4 > len(header):
        raise HeaderInvalid(f"remark of {len(remark)} bytes in a header of {len(header)}")
    remark_text = remark.decode() or None
    block, _ = _sized(header, at, 4)
    ext_fields: dict[str, str] = {}
    count = at = 0
    while at < len(block):
        key_bytes, at = _sized(block, at, 2)
        value_bytes, at = _sized(block, at, 4)
        key, value = key_bytes.decode(), value_bytes.decode()
        if not key or not value:
            continue
        if (count := count + 1) > FIELDS_MAX:
            raise _NotUnderstood
        ext_fields[key] = value
    known = language if language in LANGUAGES.values() else LANGUAGE_UNKNOWN
    return ParsedHeader(code, version, opaque, flag, known, remark_text, ext_fields)


# --- integers ---------------------------------------------------------------------------------------------------------


def _parse(text: Buffer, limit: int) -> int:
    match = re.fullmatch(rb"([+-]?)([0-9]+)", bytes(text))
    digits = match[2].lstrip(b"0") or b"0" if match else b""
    value = int(match[1] + digits) if match and len(digits) < 20 else limit + 1
    if match is None or not -limit - 1 <= value <= limit:
        raise HeaderInvalid(f"no integer up to {limit}: {bytes(text[:40])!r}")
    return value


def parse_int32(text: Buffer) -> int:
    return _parse(text, INT32_MAX)


def parse_int64(text: Buffer) -> int:
    return _parse(text, INT64_MAX)


# --- replies ----------------------------------------------------------------------------------------------------------


def _reply(reply: SendReply | PullReply, fields: dict[str, bytes], remark: bytes, body_size: int) -> bytes:
    present = {key: value for key, value in fields.items() if value}
    if reply.serialize_type == SERIALIZE_ROCKETMQ:
        block = b"".join(
            struct.pack(">h", len(key)) + key.encode() + struct.pack(">i", len(value)) + value
            for key, value in present.items()
        )
        fixed = (reply.code, LanguageCode.PYTHON, reply.version, reply.opaque, FLAG_RESPONSE, len(remark))
        header = ROCKETMQ_FIXED.pack(*fixed) + remark + struct.pack(">i", len(block)) + block
    else:
        members: dict[str, object] = {
            "code": reply.code,
            "extFields": {key: value.decode() for key, value in present.items()},
            "flag": FLAG_RESPONSE,
            "language": "PYTHON",
            "opaque": reply.opaque,
            **({"remark": remark.decode()} if remark else {}),
            "serializeTypeCurrentRPC": "JSON",
            "version": reply.version,
        }
        header = json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()
    return struct.pack(">II", 4 + len(header) + body_size, reply.serialize_type << 24 | len(header)) + header


def send_reply_encode(reply: SendReply) -> bytes:
    fields = {
        "msgId": reply.message_ids,
        "queueId": b"%d" % reply.queue_id,
        "queueOffset": b"%d" % reply.queue_offset,
        "MSG_REGION": reply.region,
        "TRACE_ON": b"true" if reply.trace_on else b"false",
    }
    return _reply(reply, fields, b"", 0)


def pull_reply_encode(reply: PullReply) -> bytes:
    fields = {
        "suggestWhichBrokerId": b"%d" % reply.suggest_which_broker_id,
        "nextBeginOffset": b"%d" % reply.next_begin_offset,
        "minOffset": b"%d" % reply.min_offset,
        "maxOffset": b"%d" % reply.max_offset,
    }
    return _reply(reply, fields, reply.remark, reply.body_size)
