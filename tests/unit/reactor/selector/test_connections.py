"""The life of connections in csrc/workers/selector/selector.c: each end is told once, and those for which there is no
room are refused."""

from __future__ import annotations

import os
import resource
import signal
import socket
import time
from collections.abc import Callable

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.reactor.ring import WorkerBlock
from rocketpy.reactor.selector import Complaints
from tests.support.selector_clients import greet, reset
from tests.support.selector_rig import SelectorRig, body_of, frame, lib

RigMaker = Callable[..., SelectorRig]


# -- the end of connections


def test_closed_follows_the_frames_once_and_only_where_there_were_any(rig: SelectorRig) -> None:
    silent, talking = rig.connect(), rig.connect()
    talking.sendall(frame(b"1") + frame(b"2"))
    talking.close()
    silent.close()
    rig.turn_until(lambda: rig.open_count == 0)
    records = rig.records()
    assert [record.kind for record in records] == [lib.RP_MSG_FRAME] * 2 + [lib.RP_MSG_CLOSED]
    assert len({record.connection for record in records}) == 1
    assert records[-1].frame == b""
    assert rig.counter(lib.RP_COUNT_CONNECTIONS_CLOSED) == 2


def test_a_reset_is_a_close_too(rig: SelectorRig) -> None:
    client = rig.connect()
    client.sendall(frame(b"1"))
    rig.next()
    reset(client)
    assert rig.next().kind == lib.RP_MSG_CLOSED
    assert rig.open_count == 0


def test_what_a_peer_sent_before_its_reset_is_read_although_it_takes_no_answer(rig: SelectorRig) -> None:
    """Oneway sends are acknowledged by nobody, and their sender may have closed before it reads other answers.
    Fault: Oneway sends were lost if their client closed its connection with unread answers."""
    client, connection = greet(rig, receive_buffer=4096)
    rig.reply(connection, bytes(300_000))
    rig.turn()  # it waits for the client to read
    client.sendall(frame(b"1") + frame(b"2"))
    reset(client)
    records = [rig.next() for _ in range(3)]
    assert [record.kind for record in records] == [lib.RP_MSG_FRAME] * 2 + [lib.RP_MSG_CLOSED]
    assert [body_of(record.frame) for record in records[:2]] == [b"1", b"2"]
    assert rig.open_count == 0


def test_what_a_peer_sent_before_its_reset_is_read_although_it_is_choked(rig: SelectorRig) -> None:
    client, connection = greet(rig, receive_buffer=4096)
    for _ in range(2):
        rig.reply(connection, bytes(800_000))
        rig.turn()
    client.sendall(frame(b"1"))
    rig.turn()
    assert rig.read() is None  # it is not read while it has that much to fetch
    reset(client)
    rig.reply(connection, b"for nobody")
    assert [rig.next().kind, rig.next().kind] == [lib.RP_MSG_FRAME, lib.RP_MSG_CLOSED]
    assert rig.open_count == 0


def test_what_waits_for_the_codec_is_passed_on_after_a_reset(make_rig: RigMaker) -> None:
    rig = make_rig(capacity=65536)
    client = rig.connect()
    client.sendall(b"".join(frame(b"%d" % n + bytes(2000)) for n in range(50)))
    rig.turn_until(lambda: rig.counter(lib.RP_COUNT_STALLS) > 0)
    reset(client)
    rig.turn()
    loops = rig.counter(lib.RP_COUNT_LOOPS)
    rig.turn(100_000_000)
    assert rig.counter(lib.RP_COUNT_LOOPS) - loops < 10, "it spins on the event of the reset"
    records = [rig.next() for _ in range(51)]
    assert [int(body_of(record.frame)[:2].rstrip(b"\0")) for record in records[:50]] == list(range(50))
    assert records[-1].kind == lib.RP_MSG_CLOSED


def test_a_thousand_connections_come_and_go_with_numbers_of_their_own(rig: SelectorRig) -> None:
    numbers: set[int] = set()
    for _ in range(10):
        clients = [rig.connect() for _ in range(100)]
        for client in clients:
            client.sendall(frame(b"x"))
            numbers.add(rig.next().connection)
        assert rig.open_count == 100
        for client in clients:
            client.close()
        rig.turn_until(lambda: rig.open_count == 0)
        assert {record.kind for record in rig.records()} == {lib.RP_MSG_CLOSED}
    assert len(numbers) == 1000
    assert rig.counter(lib.RP_COUNT_CONNECTIONS_OPENED) == rig.counter(lib.RP_COUNT_CONNECTIONS_CLOSED) == 1000


def test_a_restarted_selector_gives_other_numbers(make_rig: RigMaker) -> None:
    numbers = set()
    for epoch in range(3):
        rig = make_rig(epoch=epoch)
        rig.connect().sendall(frame(b"x"))
        numbers.add(rig.next().connection)
    assert len(numbers) == 3


def test_a_signal_interrupts_nothing(rig: SelectorRig) -> None:
    """Fault: An interrupted epoll ended the selector and closed every connection."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    try:
        assert lib.rp_selector_run(rig.selector, 50_000_000) == lib.RP_OK
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    rig.connect().sendall(frame(b"x"))
    assert rig.next().frame == frame(b"x")[4:]


def test_connections_beyond_the_limit_are_refused(make_rig: RigMaker) -> None:
    rig = make_rig(connections_max=2)
    first, _second, third = rig.connect(), rig.connect(), rig.connect()
    assert rig.is_closed(third)
    assert rig.counter(lib.RP_COUNT_CONNECTIONS_REFUSED) == 1
    first.close()
    rig.turn_until(lambda: rig.open_count == 1)
    fourth = rig.connect()
    fourth.sendall(frame(b"room again"))
    assert body_of(rig.next().frame) == b"room again"


def test_running_out_of_descriptors_refuses_and_goes_on(rig: SelectorRig) -> None:
    keeper = rig.connect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    client = socket.create_connection(rig.listener.getsockname())
    accepted, _ = rig.listener.accept()
    socket.send_fds(rig.acceptor, [b"\0"], [accepted.fileno()])
    accepted.close()
    probe = os.dup(0)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, hard))
    try:
        rig.turn()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert rig.is_closed(client)
    client.close()
    assert rig.counter(lib.RP_COUNT_CONNECTIONS_REFUSED) == 1
    keeper.sendall(frame(b"fine"))
    assert body_of(rig.next().frame) == b"fine"


def test_idle_connections_are_closed_and_busy_ones_are_not(make_rig: RigMaker) -> None:
    """The clock is the machine's: the test proves the order, idle first, not the second.
    Holds: network, idle connections."""
    rig = make_rig(idle_s=2)
    idle, busy = rig.connect(), rig.connect()
    idle.sendall(frame(b"once"))

    def gone() -> bool:
        busy.sendall(frame(b"again"))
        return rig.counter(lib.RP_COUNT_IDLE_CLOSED) > 0

    rig.turn_until(gone)
    assert rig.is_closed(idle)
    assert rig.open_count == 1
    assert rig.records()[-1].kind in (lib.RP_MSG_FRAME, lib.RP_MSG_CLOSED)
    assert rig.counter(lib.RP_COUNT_IDLE_CLOSED) == 1


def test_who_has_spoken_while_the_selector_stood_still_is_not_idle(make_rig: RigMaker) -> None:
    """More of them than one turn hears; a paused container wakes to this.
    Fault: A selector that had stood still closed connections as idle before it had read their bytes."""
    rig = make_rig(idle_s=1)
    clients = [rig.connect() for _ in range(300)]
    silent = rig.connect()
    for client in clients:
        client.sendall(frame(b"alive"))
    asleep_until = time.monotonic() + 2.1  # the selector is not turned meanwhile
    while (rest := asleep_until - time.monotonic()) > 0:
        time.sleep(rest)
    rig.turn()
    rig.turn()
    assert len(rig.records()) == 300
    assert rig.open_count == 300
    assert rig.is_closed(silent)


# -- how a connection ends


def test_refused_connections_are_told_with_their_setting_and_not_too_often(caplog: pytest.LogCaptureFixture) -> None:
    """Fault: Above 10 000 connections a selector closed new ones silently."""
    block, now_s = WorkerBlock("selector-0", 0), [100.0]
    complaints = Complaints(block, lambda: now_s[0])
    for _ in range(5):
        block.add(lib.RP_COUNT_CONNECTIONS_REFUSED)
        complaints.report()
    assert caplog.text.count(": the limit") == 1 and "closed 1 connections of selector-0:" in caplog.text
    assert "connectionsMax" in caplog.text
    now_s[0] += 10.0
    complaints.report()
    assert "closed 4 connections of selector-0:" in caplog.text
    block.add(lib.RP_COUNT_TLS_REFUSED)
    complaints.report()
    assert "closed 1 connections of selector-0: TLS workers are behind; raise tlsWorkers" in caplog.text
