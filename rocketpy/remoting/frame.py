"""Cut frames out of a byte stream, name the fields of their headers, and convert languages and booleans in them.

Layout, big-endian::

    length      4   bytes that follow this field = 4 + header size + body size
    descriptor  4   top byte: serialize type (0 JSON, 1 ROCKETMQ); low 24 bits: header size
    header      header size
    body        the rest; no bytes means no body
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from rocketpy.codes import LanguageCode
from rocketpy.errors import FrameTooLarge, HeaderInvalid, LocalProtocolError

LENGTH = struct.Struct(">i")
PREFIX = struct.Struct(
    ">i"  # length
    "I"  # descriptor
)
LENGTH_SIZE = 4
PREFIX_SIZE = 8
assert LENGTH.size == LENGTH_SIZE and PREFIX.size == PREFIX_SIZE

FRAME_SIZE_MAX = 16_777_216
"""Bytes of a frame with its length field. The first byte of a frame is therefore 0 (0x16 there is a TLS hello)."""

OTHER_PROTOCOLS = {b"\x16\x03": "a TLS handshake", b"HTTP": "an HTTP response", b"GET ": "an HTTP request"}
"""The first bytes of peers that speak no RocketMQ, or not at this port."""

HEADER_SIZE_MAX = 0xFFFFFF

PART_SIZE_MIN = 4_096
"""Bytes of a part of a frame that is kept by itself; smaller ones are put together."""

REQUEST_HEADER_SIZE_MAX = 256 * 1024
"""Bytes of a request's header that a server reads in Python: twice what 32 KB of properties can become. A header of
16 MB in a million fields would take seconds to read, in which nobody else is served."""


class SerializeType(IntEnum):
    """The serialisation of a header. Each frame declares its own: the two directions of a connection may differ."""

    JSON = 0
    ROCKETMQ = 1


_made = tuple.__new__  # of a named tuple: the class itself takes three times as long
SERIALIZE_TYPES = tuple(SerializeType)  # by number: a call of the class takes ten times as long


class Frame(NamedTuple):
    """One frame, cut but not read."""

    serialize_type: SerializeType
    header: bytes
    body: bytes | None


def encode_frame(serialize_type: SerializeType, header: bytes, body: bytes | None) -> bytes:
    """Return the bytes of one frame.

    Raises:
        LocalProtocolError: the frame would be larger than any peer accepts.
    """
    body = body or b""
    length = 4 + len(header) + len(body)
    if LENGTH_SIZE + length > FRAME_SIZE_MAX:
        raise LocalProtocolError(f"frame of {LENGTH_SIZE + length} bytes, at most {FRAME_SIZE_MAX} are allowed")
    return b"".join((PREFIX.pack(length, serialize_type << 24 | len(header)), header, body))


def _check_length(length: int, frame_size_max: int) -> None:
    if length < 0 or LENGTH_SIZE + length > frame_size_max:
        field = LENGTH.pack(length)
        other = next(
            (f"; these bytes begin {name}" for start, name in OTHER_PROTOCOLS.items() if field.startswith(start)), ""
        )
        raise FrameTooLarge(f"length field 0x{field.hex()}, frames have at most {frame_size_max} bytes{other}")
    if length < 4:
        raise HeaderInvalid(f"length field {length}, at least 4 is needed for the header descriptor")


class FrameCutter:
    """Bytes in, frames out; holds what is not yet a whole frame.

    Parts of a large frame are kept as they came, and joined once. An error is final: what follows in the stream cannot
    be told apart any more, the connection is to be closed.
    """

    def __init__(self, *, frame_size_max: int = FRAME_SIZE_MAX, header_size_max: int = HEADER_SIZE_MAX) -> None:
        self._frame_size_max = frame_size_max
        self._header_size_max = header_size_max
        self._buffer: bytes | bytearray = b""  # bytes received and not yet cut; empty while `_parts` has any
        self._start = 0  # where the next frame begins in `_buffer`; bytes before it have been cut
        self._parts: list[bytes | bytearray] = []  # of one incomplete frame, from its first byte on; else empty
        self._parts_size = 0  # bytes of all parts
        self._wanted = 0  # bytes that the incomplete frame will have

    @property
    def buffered_size(self) -> int:
        """Bytes held back for frames that are not complete."""
        return self._parts_size or len(self._buffer) - self._start

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes as they came from the peer."""
        if self._parts:
            self._add_part(data)
        elif self._start == len(self._buffer):
            self._buffer, self._start = bytes(data), 0
        else:
            self._buffer, self._start = self._buffer[self._start :] + data, 0

    def _add_part(self, data: bytes | bytearray | memoryview) -> None:
        """Keep it; small ones in one object, since each object takes memory of its own."""
        last = self._parts[-1]
        if len(data) >= PART_SIZE_MIN:
            self._parts.append(bytes(data))
        elif isinstance(last, bytearray):
            last += data
        else:
            self._parts.append(bytearray(data))
        self._parts_size += len(data)

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None: more bytes are needed.

        Raises:
            FrameTooLarge: the length is beyond the limit, known as soon as four bytes are there.
            HeaderInvalid: the descriptor contradicts the length or names no serialisation.
        """
        if self._parts:
            if self._parts_size < self._wanted:
                return None
            if self._parts_size - self._wanted <= len(self._parts[-1]):
                return self._joined()
            self._buffer, self._start = b"".join(self._parts), 0  # more came before anybody asked for a frame
            self._parts, self._parts_size = [], 0
        buffer, start = self._buffer, self._start
        if len(buffer) - start < LENGTH_SIZE:
            self._buffer, self._start = buffer[start:], 0  # without the frames before it
            return None
        (length,) = LENGTH.unpack_from(buffer, start)
        if not 4 <= length <= self._frame_size_max - LENGTH_SIZE:
            _check_length(length, self._frame_size_max)
        end = start + LENGTH_SIZE + length
        if len(buffer) < end:
            self._parts, self._parts_size, self._wanted = [buffer[start:]], len(buffer) - start, end - start
            self._buffer, self._start = b"", 0
            return None
        frame = _frame_between(buffer, start, end, self._header_size_max)
        if end == len(buffer):
            self._buffer, self._start = b"", 0  # a connection that waits holds nothing
        else:
            self._start = end
        return frame

    def _joined(self) -> Frame:
        """Return the frame whose parts are all there; what follows it goes to the buffer.

        Raises:
            HeaderInvalid: as `next_frame`.
        """
        parts, first, last = self._parts, self._parts[0], self._parts[-1]
        end = len(last) - (self._parts_size - self._wanted)  # of the frame, in the last part
        self._parts, self._parts_size = [], 0
        self._buffer, self._start = (last, end) if end < len(last) else (b"", 0)
        if len(parts) > 1 and len(first) >= PREFIX_SIZE:
            kind, body_begin = _kind_and_body(first, 0, self._header_size_max)
            if body_begin <= len(first):
                header = bytes(first[PREFIX_SIZE:body_begin])
                body = b"".join((memoryview(first)[body_begin:], *parts[1:-1], memoryview(last)[:end]))
                return _made(Frame, (kind, header, body or None))
        return _frame_between(b"".join(parts), 0, self._wanted, self._header_size_max)


def cut_frame(
    image: bytes | memoryview, *, frame_size_max: int = FRAME_SIZE_MAX, header_size_max: int = HEADER_SIZE_MAX
) -> Frame:
    """Return the one frame that `image` is.

    Raises:
        FrameTooLarge: the length is beyond the limit.
        HeaderInvalid: lengths contradict each other, or the serialisation is unknown.
    """
    if len(image) < PREFIX_SIZE:
        raise HeaderInvalid(f"frame of {len(image)} bytes, at least {PREFIX_SIZE} are needed")
    (length,) = LENGTH.unpack_from(image)
    _check_length(length, frame_size_max)
    if LENGTH_SIZE + length != len(image):
        raise HeaderInvalid(f"length field {length}, but {len(image) - LENGTH_SIZE} bytes follow it")
    return _frame_between(image, 0, len(image), header_size_max)


def frame_sizes(prefix: bytes) -> tuple[SerializeType, int, int]:
    """Return the serialisation of the header of a frame, and the bytes of header and body, by its first PREFIX_SIZE.

    Raises:
        FrameTooLarge, HeaderInvalid: as `cut_frame`.
    """
    (length,) = LENGTH.unpack_from(prefix)
    _check_length(length, FRAME_SIZE_MAX)
    kind, body_begin = _kind_and_body(prefix, 0, HEADER_SIZE_MAX)
    return kind, body_begin - PREFIX_SIZE, LENGTH_SIZE + length - body_begin


def _kind_and_body(data: bytes | bytearray | memoryview, start: int, header_size_max: int) -> tuple[SerializeType, int]:
    """Return the serialisation of the header of the frame between these bytes, and where its body begins.

    Raises:
        HeaderInvalid: the descriptor contradicts the length or names no serialisation.
    """
    length, descriptor = PREFIX.unpack_from(data, start)
    header_size = descriptor & HEADER_SIZE_MAX
    if header_size > length - 4:
        raise HeaderInvalid(f"header of {header_size} bytes in a frame of length {length}")
    if header_size > header_size_max:
        raise HeaderInvalid(f"header of {header_size} bytes, at most {header_size_max} are allowed")
    if descriptor >> 24 > SerializeType.ROCKETMQ:
        raise HeaderInvalid(f"serialize type {descriptor >> 24}, known are 0 (JSON) and 1 (ROCKETMQ)")
    return SERIALIZE_TYPES[descriptor >> 24], start + PREFIX_SIZE + header_size


def _frame_between(data: bytes | bytearray | memoryview, start: int, end: int, header_size_max: int) -> Frame:
    """Return the frame that these bytes are; its length field is right.

    Raises:
        HeaderInvalid: as `_kind_and_body`.
    """
    kind, body_begin = _kind_and_body(data, start, header_size_max)
    if not isinstance(data, bytes):
        data = memoryview(data)  # of which a slice is no copy
    return _made(Frame, (kind, bytes(data[start + PREFIX_SIZE : body_begin]), bytes(data[body_begin:end]) or None))


class HeaderFields(NamedTuple):
    """The seven fields of a header, in both serialisations (json_header.py, rocketmq_header.py).

    `Frame` and `HeaderFields` are named tuples: each command makes one of each, and a frozen attrs class takes three
    times as long to make.
    """

    code: int
    language: LanguageCode | None
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: dict[str, str] | None


def language_or_none(number: int) -> LanguageCode | None:
    """Return the language of a number, or None for an unknown one, which is no error."""
    try:
        return LanguageCode(number)
    except ValueError:
        return None


def parse_bool(text: str) -> bool:
    """Return True for `true` in any case and False for all else, as `Boolean.parseBoolean` does."""
    return text.lower() == "true"


def format_bool(value: bool) -> str:
    """Return `true` or `false`, the spelling that Go clients compare as text."""
    return "true" if value else "false"
