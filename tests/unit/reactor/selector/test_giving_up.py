"""A selector that reads nothing for a while, and connections that it passes on when its process tree ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.native.core import ffi, lib
from rocketpy.reactor.handoff import HANDOFF_MAX, Accepted, hand_over, handoff_pair, take_over
from rocketpy.reactor.selector import park_all
from tests.support.selector_rig import SelectorRig, body_of, frame

QUIET_TURNS = 20
TURN_NS = 2_000_000


class PausedRig(SelectorRig):
    """With a number that pauses the intake."""

    def __init__(self, **config: int) -> None:
        self.paused = ffi.new("uint32_t *")
        super().__init__(intake_paused=self.paused, **config)

    def quiet(self) -> None:
        """Turn for a while; nothing may come."""
        for _ in range(QUIET_TURNS):
            self.turn(TURN_NS)
            assert self.read() is None

    def stop(self) -> None:
        self.worker.stop = lib.RP_STOP_LEAVE
        self.turn_until(lambda: self.turn(TURN_NS) == lib.RP_STOPPED)


@pytest.fixture
def rig() -> Iterator[PausedRig]:
    rig = PausedRig()
    yield rig
    rig.close()


def test_nothing_is_read_in_a_pause_and_all_of_it_afterwards(rig: PausedRig) -> None:
    before = rig.connect()
    rig.paused[0] = 1
    rig.turn()
    before.sendall(frame(b"one"))
    during = rig.connect()
    during.sendall(frame(b"two"))
    rig.quiet()
    rig.paused[0] = 0
    assert {body_of(rig.next().frame) for _ in range(2)} == {b"one", b"two"}


@pytest.mark.parametrize("have", [1, 3, 4, 5, -1], ids=lambda have: f"{have} bytes")
def test_half_a_request_is_completed_in_a_pause_and_no_other_begun(rig: PausedRig, have: int) -> None:
    """Go's client writes a request in four parts: its connection must not close because a pause comes in between.
    Fault: A planned change of the master closed a connection with half a request."""
    client, one, two = rig.connect(), frame(b"one" * 1000), frame(b"two")
    client.sendall(one[:have])
    rig.quiet()
    rig.paused[0] = 1
    rig.turn()
    client.sendall(one[have:] + two)
    assert body_of(rig.next().frame) == b"one" * 1000
    rig.quiet()
    rig.stop()
    fds, listeners = ffi.new("int32_t[]", 8), ffi.new("uint8_t[]", 8)
    assert lib.rp_selector_give_up(rig.selector, fds, listeners, 8) == 1
    with socket.socket(fileno=fds[0]) as kept:
        assert kept.recv(100) == two


def test_answers_leave_in_a_pause(rig: PausedRig) -> None:
    client = rig.connect()
    client.sendall(frame(b"one"))
    connection = rig.next().connection
    rig.paused[0] = 1
    rig.turn()
    rig.reply(connection, b"answer")
    assert rig.receive(client, 6) == b"answer"


def test_connections_go_to_the_next_process_tree_with_what_waits_in_them(rig: PausedRig) -> None:
    into, out = handoff_pair()
    clients = [rig.connect(listener=1) for _ in range(40)]
    clients[0].sendall(frame(b"served"))
    rig.next()
    rig.paused[0] = 1
    rig.turn()
    for number, client in enumerate(clients):
        client.sendall(frame(str(number).encode()))
    rig.stop()
    park_all(rig.selector, into)
    assert rig.open_count == 0 and rig.counter(lib.RP_COUNT_CONNECTIONS_CLOSED) == 40
    parked = [*take_over(out), *take_over(out)]  # one message each
    assert [one.listener for one in parked] == [1] * 40
    read = []
    for one in parked:
        with socket.socket(fileno=one.fd) as sock:
            read.append(sock.recv(100))
            sock.sendall(b"later")
    assert sorted(read) == sorted(frame(str(number).encode()) for number in range(40))
    assert [client.recv(100) for client in clients] == [b"later"] * 40
    assert take_over(out) == []
    for end in (into, out):
        end.close()


def test_a_connection_with_half_a_request_closes(rig: PausedRig) -> None:
    whole, half = rig.connect(), rig.connect()
    half.sendall(frame(b"half")[:-1])
    rig.quiet()
    rig.stop()
    fds, listeners = ffi.new("int32_t[]", 8), ffi.new("uint8_t[]", 8)
    assert lib.rp_selector_give_up(rig.selector, fds, listeners, 8) == 1
    assert lib.rp_selector_give_up(rig.selector, fds, listeners, 8) == 0
    with socket.socket(fileno=fds[0]) as kept:
        assert kept.getpeername() == whole.getsockname()
    rig.close(keep_clients=True)
    with pytest.raises(ConnectionResetError):
        half.recv(1)
    for client in (whole, half):
        client.close()


def test_connections_that_find_no_room_close() -> None:
    rig, (into, out) = PausedRig(), handoff_pair()
    for room in (HANDOFF_MAX, 1):
        while hand_over(into, [Accepted(rig.listener.fileno(), 0)] * room):
            pass
    client = rig.connect()
    rig.stop()
    before = len(os.listdir("/proc/self/fd"))
    park_all(rig.selector, into)
    assert len(os.listdir("/proc/self/fd")) == before - 1
    assert ended(client)
    for end in (into, out):
        end.close()
    rig.close()


def ended(client: socket.socket) -> bool:
    """Whether the other end was closed."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
