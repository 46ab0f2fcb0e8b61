"""Connections that do not keep to the frames of rocketpy, or do not end the handshake, keep no slave out."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.native.core import lib
from tests.support.master_rig import MasterRig
from tests.support.own_frames import (
    CHALLENGE,
    DATA,
    HELLO,
    MAGIC,
    WELCOME,
    ack,
    fenced,
    frame,
    hello_fields,
    json_frame,
    log_in,
    split,
)
from tests.support.own_slave import SECRET, OwnSlave

Open = Callable[..., MasterRig]
POISON_HELLO = [
    frame(HELLO, b""),
    frame(HELLO, b"[" * 60_000),
    frame(HELLO, b"\xff\xfe"),
    frame(HELLO, b"[]"),
    frame(HELLO, b'{"version":' + b"9" * 5000 + b"}"),
    frame(HELLO, b'{"version":1e400}'),
]
POISON = [
    *(MAGIC + data for data in POISON_HELLO),  # without waiting for CHALLENGE
    MAGIC[:6] + b"\1\2",
    MAGIC + MAGIC,
    MAGIC + b"\xff" * 100,
]


@pytest.mark.parametrize("data", POISON)
def test_poison_instead_of_the_magic(rig: MasterRig, data: bytes) -> None:
    rig.append(1000)
    slave = rig.connect()
    slave.sendall(data)
    rig.wait_until_closed(slave)
    assert not rig.slaves() and not rig.table.sent_bytes


@pytest.mark.parametrize(
    "data",
    [
        *POISON_HELLO,
        b"\xff\xff\xff\xff\2",
        b"\0\0\0\0\2",
        b"\0\1\0\2\2",
        frame(DATA, bytes(100)),
        json_frame(HELLO, **hello_fields(b"")) + b"x",
        json_frame(HELLO, **hello_fields(b"")) * 2,
        frame(HELLO, b" " * 3_000_000),
        b"\0\1\0\1\2" + b" " * 3_000_000,  # more than it announces
    ],
)
def test_poison_instead_of_hello(rig: MasterRig, data: bytes) -> None:
    rig.append(1000)
    slave = OwnSlave(rig)
    with contextlib.suppress(BlockingIOError):  # the socket takes a part of the largest
        slave.socket.send(data)
    rig.wait_until_closed(slave.socket)
    assert not rig.slaves() and not rig.table.sent_bytes
    good = OwnSlave(rig)
    assert good.say(b"")[0] == WELCOME


@pytest.mark.parametrize(
    "data",
    [
        bytes(17),
        frame(HELLO, bytes(12)),
        frame(7, bytes(13)),
        b"\xff" * 17,
        ack(0, 5),
        fenced(5),
        frame(9, b"") + bytes(9),
    ],
)
def test_poison_instead_of_ack(rig: MasterRig, data: bytes) -> None:
    rig.append(1000)
    slave = OwnSlave(rig)
    slave.say(b"")
    slave.socket.sendall(data)
    rig.wait_until_closed(slave.socket)
    assert not rig.replicated


def test_a_handshake_byte_by_byte(rig: MasterRig) -> None:
    rig.append(1000)
    slave = rig.connect()
    for byte in MAGIC + json_frame(HELLO, **hello_fields(rig.log[:10])):
        slave.sendall(bytes([byte]))  # say_bytes would wait 40 ms for the kernel's acknowledgement of each
        rig.turn()
    data = b""

    def look() -> bool:
        nonlocal data
        try:
            data += slave.recv(1 << 20)
        except BlockingIOError:
            return False
        return len(log_in(split(data)[0], 10)) == 990

    rig.turn_until(look)
    assert [kind for kind, _ in split(data)[0]] == [CHALLENGE, WELCOME, DATA]


def test_a_handshake_that_does_not_end_is_closed_however_busy(rig: MasterRig) -> None:
    """One byte at a time keeps a slot no longer than silence would."""
    slave = OwnSlave(rig)
    hello = iter(json_frame(HELLO, **hello_fields(b"")))
    for _ in range(3):
        rig.say_bytes(slave.socket, bytes([next(hello)]))
        rig.pass_time(6.0)
    assert rig.is_open(slave.socket)
    rig.pass_time(2.1)
    rig.wait_until_closed(slave.socket)
    assert rig.table.closed()["silent"] == 1


@pytest.mark.parametrize("first", [MAGIC, bytes(8)])
def test_the_first_bytes_keep_a_slot_no_longer_than_silence(rig: MasterRig, first: bytes) -> None:
    """Fault: A connection that sent single bytes kept a place on the HA port eight times too long."""
    slave = rig.connect()
    for byte in first[:4]:
        rig.say_bytes(slave, bytes([byte]))
        rig.pass_time(4.9)
    assert rig.is_open(slave)
    rig.say_bytes(slave, first[4:5])
    rig.pass_time(0.5)
    rig.wait_until_closed(slave)
    assert rig.table.closed()["silent"] == 1


def test_strangers_in_the_handshake_keep_no_slave_out(open_rig: Open) -> None:
    """They take no place of a slave, however many they are and however long they wait.
    Fault: Silent connections to the HA port took the places of slaves for 20 s at a time."""
    rig = open_rig(slaves_max=1, secret=SECRET)
    rig.append(1000)
    for turn in range(3 * lib.RP_HANDSHAKES_MAX):
        if turn % 2:
            OwnSlave(rig)
        else:
            rig.connect()
    slave = OwnSlave(rig)
    assert slave.say(b"", secret=SECRET)[0] == WELCOME
    assert slave.log_from(0, 1000) == rig.log


def test_each_row_of_the_table_is_served(open_rig: Open) -> None:
    """There are more connections than slaves can be.
    Fault: Beyond 66 connections on the HA port, the master did not read a slave's frames."""
    rig = open_rig(slaves_max=lib.RP_SLAVES_MAX)
    rig.append(1000)
    for _ in range(lib.RP_SLAVES_MAX - 1):
        rig.connect(0)
    for _ in range(lib.RP_HANDSHAKES_MAX - 1):
        rig.connect()
    slave = OwnSlave(rig)
    assert slave.say(b"")[0] == WELCOME
    assert slave.log_from(0, 1000) == rig.log


def test_of_two_in_the_handshake_one_gets_the_last_place(open_rig: Open) -> None:
    rig = open_rig(slaves_max=1)
    rig.append(1000)
    late, slave = OwnSlave(rig), OwnSlave(rig)
    assert slave.say(b"")[0] == WELCOME
    late.socket.sendall(json_frame(HELLO, **hello_fields(b"")))
    rig.wait_until_closed(late.socket)
    assert rig.is_open(slave.socket) and rig.table.closed()["too_many"] == 1


def test_slaves_that_leave_during_the_handshake_leave_nothing(open_rig: Open) -> None:
    rig = open_rig(slaves_max=2)
    for turn in range(20):
        slave: socket.socket = rig.connect() if turn % 2 else OwnSlave(rig).socket
        slave.close()
        rig.turn_until(lambda: not rig.slaves())
    assert OwnSlave(rig).say(b"")[0] == WELCOME
