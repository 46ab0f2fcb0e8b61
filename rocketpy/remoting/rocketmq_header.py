"""The ROCKETMQ serialisation of a header: binary, big-endian::

    code         2   signed
    language     1   LanguageCode
    version      2   signed
    opaque       4
    flag         4
    remark       4 + n   length, UTF-8; length 0 is "no remark"
    extFields    4 + n   length in bytes of all entries; 0 is "no map"; each entry:
                           key 2 + n, value 4 + n

A string of no bytes means null: an empty field cannot be told from a missing one. Codes beyond 16 bits exist in
JSON only.
"""

from __future__ import annotations

import struct

from rocketpy.codes import LanguageCode
from rocketpy.errors import HeaderInvalid, LocalProtocolError

from .frame import HeaderFields, language_or_none

FIXED = struct.Struct(
    ">h"  # code
    "B"  # language
    "h"  # version
    "i"  # opaque
    "i"  # flag
    "i"  # remark length
)
_LENGTH = struct.Struct(">i")
_KEY_LENGTH = struct.Struct(">h")
HEADER_SIZE_MIN = FIXED.size + _LENGTH.size
assert HEADER_SIZE_MIN == 21


def encode_header(fields: HeaderFields) -> bytes:
    """The bytes of a header.

    Raises:
        LocalProtocolError: code or version beyond 16 bits, or a key beyond 32767 bytes.
    """
    remark = (fields.remark or "").encode("utf-8", "replace")
    ext_fields = b"".join(_encode_entry(key, value) for key, value in (fields.ext_fields or {}).items())
    language = fields.language if fields.language is not None else LanguageCode.OTHER
    try:
        fixed = FIXED.pack(fields.code, language, fields.version, fields.opaque, fields.flag, len(remark))
    except struct.error as exc:
        raise LocalProtocolError(f"header does not fit the ROCKETMQ serialisation: {fields!r:.200}") from exc
    return b"".join((fixed, remark, _LENGTH.pack(len(ext_fields)), ext_fields))


def _encode_entry(key: str, value: str) -> bytes:
    key_bytes = key.encode("utf-8", "replace")
    value_bytes = value.encode("utf-8", "replace")
    try:
        return b"".join((_KEY_LENGTH.pack(len(key_bytes)), key_bytes, _LENGTH.pack(len(value_bytes)), value_bytes))
    except struct.error as exc:
        raise LocalProtocolError(f"extFields key of {len(key_bytes)} bytes, at most 32767 are allowed") from exc


def decode_header(header: bytes) -> HeaderFields:
    """Read a header; bytes behind its last field are ignored, as the reference does.

    Raises:
        HeaderInvalid: a length goes past its enclosing block, or a text is not UTF-8.
    """
    if len(header) < HEADER_SIZE_MIN:
        raise HeaderInvalid(f"ROCKETMQ header of {len(header)} bytes, at least {HEADER_SIZE_MIN} are needed")
    code, language, version, opaque, flag, remark_size = FIXED.unpack_from(header)
    remark, position = _take(header, FIXED.size, len(header) - _LENGTH.size, remark_size, "remark")
    (ext_fields_size,) = _LENGTH.unpack_from(header, position)
    position += _LENGTH.size
    if not 0 <= ext_fields_size <= len(header) - position:
        raise HeaderInvalid(f"extFields of {ext_fields_size} bytes, {len(header) - position} are left in the header")
    return HeaderFields(
        code=code,
        language=language_or_none(language),
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark,
        ext_fields=_decode_ext_fields(header, position, position + ext_fields_size),
    )


def _decode_ext_fields(header: bytes, position: int, end: int) -> dict[str, str] | None:
    if position == end:
        return None
    ext_fields: dict[str, str] = {}
    while position < end:
        if end - position < _KEY_LENGTH.size:
            raise HeaderInvalid("extFields end inside a key length")
        (key_size,) = _KEY_LENGTH.unpack_from(header, position)
        key, position = _take(header, position + _KEY_LENGTH.size, end - _LENGTH.size, key_size, "extFields key")
        (value_size,) = _LENGTH.unpack_from(header, position)
        value, position = _take(header, position + _LENGTH.size, end, value_size, "extFields value")
        if key is not None and value is not None:
            ext_fields[key] = value
    return ext_fields


def _take(header: bytes, position: int, end: int, size: int, what: str) -> tuple[str | None, int]:
    """The text of `size` bytes at `position` and where it ends; None when it has no bytes."""
    if size < 0 or position + size > end:
        raise HeaderInvalid(f"{what} of {size} bytes at {position}, the block ends at {end}")
    if size == 0:
        return None, position
    try:
        return header[position : position + size].decode("utf-8"), position + size
    except UnicodeDecodeError as exc:
        raise HeaderInvalid(f"{what} is not UTF-8: {exc}") from exc
