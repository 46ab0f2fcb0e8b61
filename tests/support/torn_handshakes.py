"""Slaves that tear what they say to a master: cut off, damaged, with more behind it, and in pieces.

A `Script` is all that one slave says. `play` has some slaves say theirs over socket pairs, one after the other and each
part whole, or all at once in random pieces, and returns how each connection ended.
"""

from __future__ import annotations

import enum
import os
import random
import socket
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from rocketpy.failover.member_block import MemberBlock, MemberOrders
from rocketpy.failover.rules.epochs import Epoch, EpochList
from rocketpy.native.core import lib
from rocketpy.replication.frames import FRAME, JSON_MAX, MAGIC, TLS_HANDSHAKE
from rocketpy.replication.handshake_messages import NO_MEMBER, Extent, Hello, Membership, Tail
from rocketpy.replication.master import MasterMember
from rocketpy.replication.slave_table import REASONS
from tests.support.master_rig import FILE_SIZE, MasterRig, frames, report
from tests.support.own_frames import DATA, HEARTBEAT, frame, split

Value = TypeVar("Value")
FIRST_BYTES = 8
CHALLENGE = "0" * 32  # the nonce of every CHALLENGE, so that each feeding has the same bytes
NONCE = "1" * 32
SECRET = b"a secret of 20 bytes"
CLIENT_HELLO = TLS_HANDSHAKE + bytes.fromhex("0301 0005 01 000001 00")  # the port of these masters serves no TLS
BEGIN, END = FILE_SIZE, FILE_SIZE + 9_000  # of the master's log
EPOCHS = EpochList((Epoch(1, 0), Epoch(7, BEGIN + 4_000)))  # of the same, with automatic failover
SIZES = (0, 1, 2, JSON_MAX + 1, JSON_MAX + 2, 1 << 20, 0x8000_0000, 0xFFFF_FFFF)  # in the head of a damaged frame
SILENCE_S = 21.0  # more than haHousekeepingInterval
OPEN = -1  # instead of a reason


def open_rig(root: Path, kind: str) -> MasterRig:
    """A master with a log: a `plain` one, one with a `secret`, or a `member` of a group with automatic failover."""
    if kind == "plain":
        rig = MasterRig(root)
    elif kind == "secret":
        rig = MasterRig(root, secret=SECRET, rocketpy_only=1)
    else:
        block = MemberBlock()
        block.set_own(("a", "1f"))
        block.opened_epoch = EPOCHS.last
        block.give(MemberOrders(is_master=True, epoch=EPOCHS.last, sends_stream=True, takes_sends=True))
        rig = MasterRig(root, member=MasterMember(block, EPOCHS), secret=SECRET, rocketpy_only=1)
    rig.control.header.min_phy_offset = BEGIN
    rig.append(END)
    return rig


# --- what slaves say ------------------------------------------------------------------------------------------------


class Last(enum.Enum):
    """What a slave does when it has said all."""

    SILENCE = enum.auto()
    SHUTDOWN = enum.auto()  # it still hears the answer
    CLOSE = enum.auto()  # it has not read a byte, so the master meets an error


@attrs.frozen
class Script:
    """All that a slave says: `first`, and `hello` once it is challenged."""

    first: bytes
    hello: bytes
    last: Last

    @property
    def is_challenged(self) -> bool:
        return len(self.first) == FIRST_BYTES and is_magic(self.first)


def is_magic(data: bytes) -> bool:
    return data[: FIRST_BYTES - 1] == MAGIC[:-1]


class Author:
    """Writes scripts for slaves of the master of `rig`: as they must be, or torn."""

    def __init__(self, choose: random.Random, rig: MasterRig) -> None:
        self._choose, self._group, self._log = choose, rig.group, rig.log
        self._has_failover = rig.member is not None

    def script(self) -> Script:
        last = self._choose.choice([Last.SILENCE, Last.SILENCE, Last.SHUTDOWN, Last.CLOSE])
        if self._choose.random() < 0.2:
            return Script(self._torn(self._report()), b"", last)
        if self._choose.random() < 0.1:
            return Script(self._torn(CLIENT_HELLO), b"", last)
        if self._choose.random() < 0.2:
            return Script(self._torn(MAGIC), self._hello(), last)
        return Script(MAGIC, self._torn(self._hello()), last)

    def _report(self) -> bytes:
        anywhere = self._choose.randrange(-(1 << 63), 1 << 63)
        return report(self._choose.choice([self._position(), anywhere]))

    def _position(self) -> int:
        """The end of a slave's log: mostly in the master's."""
        inside = self._choose.randrange(BEGIN + 1, END)
        return self._choose.choice([0, inside, inside, inside, END, END, END + 1, BEGIN - 1])

    def _hello(self) -> bytes:
        end = self._position()
        is_member = self._rarely(self._has_failover, not self._has_failover)
        hello = Hello(
            self._choose.choice([2, 3]),
            self._group.cluster,
            self._rarely(self._group.broker_name, "another"),
            1,
            self._rarely(self._group.file_size, 4096),
            Extent(BEGIN if end else 0, end),
            self._tail(end),
            NONCE,
            membership=Membership("b", "2e", self._epochs(end)) if is_member else NO_MEMBER,
        )
        frame = hello.encode(self._rarely(self._group.secret, b"another secret of 23 by"), CHALLENGE)
        size = self._choose.choice([JSON_MAX - 1, JSON_MAX, JSON_MAX + 1])
        return self._rarely(frame, FRAME.pack(1 + size, lib.RP_HA_TYPE_HELLO) + frame[FRAME.size :].ljust(size))

    def _tail(self, end: int) -> Tail | None:
        begin = max(BEGIN, end - self._choose.choice([700, 20_000]))
        if begin >= end:
            return None
        tail = Tail(begin, zlib.crc32(self._log[begin:end]))
        return self._rarely(tail, self._choose.choice([None, Tail(begin, tail.crc ^ 1), Tail(end, tail.crc)]))

    def _epochs(self, end: int) -> EpochList:
        """Choose epochs of the master's log up to `end`, or an epoch of its own at last."""
        entries = [entry for entry in EPOCHS.entries if entry.start < end]
        if entries and self._choose.random() < 0.3:
            at = self._choose.randrange(end)
            entries = [entry for entry in entries if entry.number < 5 and entry.start <= at] + [Epoch(5, at)]
        return EpochList(tuple(entries))

    def _rarely(self, usual: Value, other: Value) -> Value:
        return other if self._choose.random() < 0.1 else usual

    def _torn(self, data: bytes) -> bytes:
        choice = self._choose.random()
        if choice < 0.1:
            return data[: self._choose.randrange(len(data))]
        if choice < 0.2:
            return data + self._choose.randbytes(self._choose.randrange(1, 40))
        if choice < 0.3 and len(data) > FIRST_BYTES:
            return struct.pack(">I", self._choose.choice(SIZES)) + data[4:]
        torn = bytearray(data)
        for _ in range(self._choose.randrange(1, 4) if choice < 0.5 else 0):
            at = self._choose.randrange(self._choose.choice([FRAME.size, len(torn)]))
            torn[at] ^= self._choose.randrange(1, 256)
        return bytes(torn)


# --- how they say it ------------------------------------------------------------------------------------------------


@attrs.frozen
class End:
    """The end of a connection.

    Args:
        answers: CHALLENGE, WELCOME and REFUSE, byte for byte, as far as they were read.
        log: of a slave that stayed until it had all of it.
        reason: why it was closed, RP_SLAVE_*.
    """

    answers: bytes
    log: bytes
    reason: int


def whole_size(hello: bytes) -> int:
    """The size of the frame, as its head says it."""
    return 4 + int(FRAME.unpack_from(hello)[0]) if len(hello) >= FRAME.size else len(hello)


class Slave:
    """Says its script to the master of `rig`; with `cuts` in random pieces."""

    def __init__(self, rig: MasterRig, script: Script, cuts: random.Random | None) -> None:
        self.rig, self.script, self.reason = rig, script, OPEN
        self._socket, connection = socket.socketpair()
        self._socket.settimeout(0)
        self._cuts, self._heard, self._pieces = cuts, b"", self._say()
        assert rig.master._begin(connection, ("127.0.0.1", connection.fileno()))

    def step(self) -> bool:
        """Say a piece, and hear the answer. Returns whether there is more to say, and somebody to hear it."""
        before, is_more = self.rig.table.closed(), next(self._pieces, None) is not None
        self.rig.turn(4)
        self.hear()
        for reason, name in REASONS.items():
            if (count := self.rig.table.closed()[name] - before[name]) > 0:
                assert count == 1 and self.reason == OPEN, "another connection was closed"
                self.reason = reason
        return is_more and self.reason == OPEN

    def hear(self) -> None:
        if self.script.last is Last.CLOSE:
            return
        try:
            while data := self._socket.recv(1 << 20):
                self._heard += data
        except (BlockingIOError, ConnectionResetError):
            pass

    def close(self) -> None:
        self._socket.close()

    @property
    def end(self) -> End:
        answers, parts = b"", []  # (position, bytes) of the log
        if is_magic(self.script.first):
            found, rest = split(self._heard)
            assert not rest, "a frame was cut off"
            for kind, payload in found:
                if kind == DATA:
                    parts.append((int.from_bytes(payload[:8], "big"), payload[lib.RP_HA_SIZE_DATA_HEADER :]))
                elif kind != HEARTBEAT:
                    answers += frame(kind, payload)
        else:
            parts = frames(self._heard)
        for position, data in parts:
            assert self.rig.log[position : position + len(data)] == data
        log = b"".join(data for _, data in parts)
        return End(answers, log if self.reason == lib.RP_SLAVE_SILENT else b"", self.reason)

    def _say(self) -> Iterator[bool]:
        first, hello = self.script.first, self.script.hello
        whole = FIRST_BYTES if is_magic(first) else len(first)
        yield from self._say_part(first, whole, is_last=not self.script.is_challenged)
        if self.script.is_challenged:
            yield from self._say_part(hello, whole_size(hello), is_last=True)
        self._leave()
        yield True

    def _say_part(self, data: bytes, whole: int, *, is_last: bool) -> Iterator[bool]:
        """`whole`: the master answers after so many bytes. What is behind them was not meant to wait for the answer, so
        it comes together with their last one."""
        at = 0
        for end in [*self._cuts_of(data, whole), len(data)]:
            self._socket.sendall(data[at:end])
            at = end
            if is_last and end == len(data) and self._cuts is not None and self._cuts.random() < 0.5:
                self._leave()  # the end of the connection comes together with the last piece
            yield True

    def _leave(self) -> None:
        if self.script.last is Last.SHUTDOWN:
            self._socket.shutdown(socket.SHUT_WR)
        elif self.script.last is Last.CLOSE:
            self._socket.close()

    def _cuts_of(self, data: bytes, whole: int) -> list[int]:
        if self._cuts is None or len(data) < 2:
            return []
        most = len(data) - 1 if self._cuts.random() < 0.1 and len(data) < 500 else self._cuts.randrange(8)
        places = self._cuts.sample(range(1, len(data)), min(most, len(data) - 1))
        return sorted(place for place in places if place != whole)


def play(rig: MasterRig, scripts: Sequence[Script], cuts: random.Random | None = None) -> list[End]:
    """Have each slave say its script: one after the other, or with `cuts` all at once."""
    descriptors = len(os.listdir("/proc/self/fd"))
    slaves = [Slave(rig, script, cuts) for script in scripts]
    speaking = list(slaves)
    while speaking:
        slave = speaking[0] if cuts is None else cuts.choice(speaking)
        if not slave.step():
            speaking.remove(slave)
    rig.turn(4)
    silent = [slave for slave in slaves if slave.reason == OPEN]
    for slave in silent:
        slave.hear()
        slave.reason = lib.RP_SLAVE_SILENT
    before = rig.table.closed()
    rig.pass_time(SILENCE_S)
    closed = {name: count - before[name] for name, count in rig.table.closed().items() if count > before[name]}
    assert closed == ({"silent": len(silent)} if silent else {}), "silent connections were not closed"
    for slave in slaves:
        slave.close()
    assert not rig.slaves() and len(os.listdir("/proc/self/fd")) <= descriptors, "a connection was not closed"
    return [slave.end for slave in slaves]
