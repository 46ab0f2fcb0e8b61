"""A slave's side of the handshake on a socket: introduces itself, and learns where the log begins."""

from __future__ import annotations

import contextlib
import socket
import struct
import zlib
from collections.abc import Callable

from rocketpy.native.core import lib

from .errors import MasterUnusable
from .frames import FRAME, JSON_MAX, MAGIC
from .handshake import (
    NO_MEMBER,
    Extent,
    Group,
    Membership,
    Tail,
    Welcome,
    encode_hello,
    read_challenge,
    read_welcome,
    tail_place,
)
from .secret import new_nonce
from .stream import ByteReader


def introduce(
    connection: socket.socket,
    reader: ByteReader,
    group: Group,
    broker_id: int,
    own: Extent,
    master: Extent | None,
    read_log: Callable[[int, int], bytes] | None,
    membership: Membership = NO_MEMBER,
) -> Welcome:
    """From the first byte on the HA port to WELCOME; DATA follows.

    Args:
        own: this slave's log; master: what the master said of its own. None: epochs are
            compared, not bytes.
        read_log: (position, size) of this slave's log, within one file.
    Raises:
        CannotFollow: refused. MasterUnusable: the connection failed, or the other side is no such master.
    """
    _send(connection, MAGIC)
    challenge, nonce = read_challenge(*_read_frame(reader)), new_nonce()
    tail = None if master is None or read_log is None else _tail(own, master, group.file_size, read_log)
    _send(connection, encode_hello(group, broker_id, own, tail, challenge, nonce, membership))
    return read_welcome(*_read_frame(reader), group, challenge, nonce, own, membership.member)


def _tail(own: Extent, master: Extent, file_size: int, read_log: Callable[[int, int], bytes]) -> Tail | None:
    place = tail_place(own, master)
    if place is None:
        return None
    begin, left = place
    position, crc = begin, 0
    while left:
        size = min(left, file_size - position % file_size)
        crc = zlib.crc32(read_log(position, size), crc)
        position, left = position + size, left - size
    return Tail(begin, crc)


def tell_fenced(connection: socket.socket, epoch: int) -> None:
    """Tell a master that there is a newer epoch, after its WELCOME. It may not hear it."""
    with contextlib.suppress(OSError):
        connection.sendall(FRAME.pack(5, lib.RP_HA_TYPE_FENCED) + struct.pack(">i", epoch))


def _send(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except OSError as exc:
        raise MasterUnusable(f"the connection failed: {exc}") from exc


def _read_frame(reader: ByteReader) -> tuple[int, bytes]:
    """(type, payload)."""
    size, kind = map(int, FRAME.unpack(reader.read(FRAME.size, is_short=True)))
    if not 1 <= size <= 1 + JSON_MAX:
        raise MasterUnusable(f"it sent a frame of {size} bytes during the handshake")
    return kind, reader.read(size - 1, is_short=True)
