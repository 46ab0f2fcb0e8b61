"""A slave's side of the handshake on a socket: introduces itself, and learns where the log begins."""

from __future__ import annotations

import contextlib
import socket

from .errors import MasterUnusable
from .frames import FRAME, JSON_MAX, MAGIC, fenced
from .handshake_messages import NO_MEMBER, Extent, Group, Hello, Membership, Tail, Welcome
from .handshake_rules import ReadLog, log_crc, read_answer, read_challenge, tail_place
from .secret import Nonces, new_nonce
from .stream import ByteReader
from .versions import OWN, common, no_common_version


def introduce(
    connection: socket.socket,
    reader: ByteReader,
    group: Group,
    broker_id: int,
    own: Extent,
    master: Extent | None,
    read_log: ReadLog | None,
    membership: Membership = NO_MEMBER,
) -> Welcome:
    """From the first byte on the HA port to WELCOME; DATA follows.

    Args:
        own: this slave's log; master: what the master said of its own. None: the master does not compare bytes, because
            epochs say first where both logs part.
    Raises:
        CannotFollow: refused. MasterUnusable: the connection failed, or the other side is no such master.
    """
    _send(connection, MAGIC)
    (challenge, versions), nonce = read_challenge(*_read_frame(reader)), new_nonce()
    version = common(OWN, versions)
    tail = None if master is None or read_log is None else _tail(own, master, group.file_size, read_log)
    hello = Hello(
        OWN.highest if version is None else version,
        group.cluster,
        group.broker_name,
        broker_id,
        group.file_size,
        own,
        tail,
        nonce,
        membership=membership,
    )
    _send(connection, hello.encode(group.secret, challenge))
    nonces = Nonces(challenge, nonce)
    if version is None:  # the master has read HELLO by its answer, and says the same in its log
        with contextlib.suppress(MasterUnusable):
            _read_frame(reader)
        raise MasterUnusable(no_common_version(OWN, versions))
    return read_answer(*_read_frame(reader), group, nonces, own, is_member=bool(membership.member), master=versions)


def _tail(own: Extent, master: Extent, file_size: int, read_log: ReadLog) -> Tail | None:
    place = tail_place(own, master)
    return None if place is None else Tail(place[0], crc_of(read_log, file_size, *place))


def crc_of(read_log: ReadLog, file_size: int, position: int, size: int) -> int:
    """CRC-32 of (position, size) of this slave's log.

    Raises:
        MasterUnusable: they cannot be read now.
    """
    crc = log_crc(read_log, file_size, position, size)
    if crc is None:
        raise MasterUnusable(f"this slave cannot read {size} bytes of its own log from {position} on now")
    return crc


def tell_fenced(connection: socket.socket, epoch: int) -> None:
    """Tell a master that there is a newer epoch, after its WELCOME. It may not hear it."""
    with contextlib.suppress(OSError):
        connection.sendall(fenced(epoch))


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
