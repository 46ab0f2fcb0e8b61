"""Several messages in one request: the body of SEND_BATCH_MESSAGE. Entries follow each other, big-endian::

    size        4       of the entry, this field included
    magic       4       0, ignored
    body CRC    4       0, ignored: the broker computes it
    flag        4       the user's
    body        4 + n
    properties  2 + p

Topic, queue, sys flag and born time are those of the request; all entries go to one queue, one after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import attrs

from rocketpy.errors import MessageInvalid

from .properties import PROPERTIES_SIZE_MAX

_ENTRY = struct.Struct(
    ">i"  # size
    "8x"  # magic, body CRC
    "i"  # flag
    "i"  # body size
)
_PROPERTIES_SIZE = struct.Struct(">h")
ENTRY_SIZE_MIN = _ENTRY.size + _PROPERTIES_SIZE.size
assert ENTRY_SIZE_MIN == 22
ENTRIES_MAX = 32_768  # brokers refuse more, which the send worker would store in one step


@attrs.frozen
class BatchEntry:
    """The body, properties and flag of one message of a batch."""

    body: bytes
    properties: bytes
    flag: int = 0


def encode_entry(body: bytes, properties: bytes, flag: int = 0) -> bytes:
    """One message of a batch.

    Raises:
        MessageInvalid: properties beyond 32767 bytes.
    """
    body_size, properties_size = len(body), len(properties)
    if properties_size > PROPERTIES_SIZE_MAX:
        raise MessageInvalid(f"properties of {properties_size} bytes, at most {PROPERTIES_SIZE_MAX} are allowed")
    head = _ENTRY.pack(ENTRY_SIZE_MIN + body_size + properties_size, flag, body_size)
    return b"".join((head, body, _PROPERTIES_SIZE.pack(properties_size), properties))


def encode_batch(entries: Iterable[BatchEntry]) -> bytes:
    """The body of a batch request. Raises MessageInvalid as `encode_entry` does."""
    return b"".join(encode_entry(entry.body, entry.properties, entry.flag) for entry in entries)


def decode_batch(body: bytes) -> list[BatchEntry]:
    """The messages of a batch request.

    Raises:
        MessageInvalid: an inner length does not hold.
    """
    entries = []
    position = 0
    while position < len(body):
        entry, size = _decode_entry(body, position)
        entries.append(entry)
        position += size
    return entries


def _decode_entry(body: bytes, position: int) -> tuple[BatchEntry, int]:
    left = len(body) - position
    if left < ENTRY_SIZE_MIN:
        raise MessageInvalid(f"batch ends inside an entry: {left} bytes at {position}")
    size, flag, body_size = _ENTRY.unpack_from(body, position)
    if not ENTRY_SIZE_MIN <= size <= left or not 0 <= body_size <= size - ENTRY_SIZE_MIN:
        raise MessageInvalid(f"batch entry at {position}: size {size}, body {body_size}, {left} bytes are left")
    body_start = position + _ENTRY.size
    body_end = body_start + body_size
    (properties_size,) = _PROPERTIES_SIZE.unpack_from(body, body_end)
    if properties_size != size - ENTRY_SIZE_MIN - body_size:
        raise MessageInvalid(f"batch entry at {position}: size {size}, body {body_size}, properties {properties_size}")
    properties_start = body_end + _PROPERTIES_SIZE.size
    return BatchEntry(body[body_start:body_end], body[properties_start : position + size], flag), size
