"""Structs of C read from bytes and written to bytes."""

from __future__ import annotations

import struct

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.native.core import Layout, ffi

REPLY = Layout("rp_msg_reply")  # uint64 connection, uint32 flags, uint32 size


def test_fields_are_where_c_has_them() -> None:
    data = struct.pack("=QII", 1 << 63, 2, 3)
    assert REPLY.size == len(data) == ffi.sizeof("rp_msg_reply")
    assert REPLY.write(1 << 63, 2, 3) == REPLY.write(connection=1 << 63, flags=2, size=3) == data
    reply = REPLY.read(data + b"frame")
    assert (reply.connection, reply.flags, reply.size) == (1 << 63, 2, 3)


def test_what_is_not_given_is_zero() -> None:
    assert REPLY.write(size=1) == struct.pack("=QII", 0, 0, 1)
    assert REPLY.write() == bytes(REPLY.size)


def test_a_bytearray_is_changed_in_place_and_a_copy_is_not() -> None:
    data = bytearray(REPLY.write(7, 8, 9))
    changed = REPLY.copy(bytes(data))
    changed.flags = 5
    assert data == REPLY.write(7, 8, 9)
    REPLY.read(data).flags = 5
    assert data == REPLY.write(7, 5, 9)


def test_the_bytes_live_as_long_as_what_was_read() -> None:
    reply = REPLY.read(bytes(bytearray(REPLY.write(7, 8, 9))))
    assert (reply.connection, reply.flags, reply.size) == (7, 8, 9)


def test_bounds() -> None:
    with pytest.raises(ValueError, match="rp_msg_reply has 16 bytes, here are 15"):
        REPLY.read(bytes(15))
    with pytest.raises(OverflowError):
        REPLY.write(flags=1 << 32)
    with pytest.raises(OverflowError):
        REPLY.write(flags=-1)
