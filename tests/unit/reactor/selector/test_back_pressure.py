"""A selector before a full ring, asleep, and told to stop: nothing that was read is lost."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.selector_clients import greet, reset
from tests.support.selector_rig import SelectorRig, body_of, ffi, frame, lib

MIB = 1024 * 1024
RigMaker = Callable[..., SelectorRig]


# -- back-pressure


def test_a_full_codec_ring_stops_reading_and_loses_nothing(make_rig: RigMaker) -> None:
    rig = make_rig(capacity=65536)
    clients = [rig.connect() for _ in range(5)]
    for n in range(40):
        for number, client in enumerate(clients):
            client.sendall(frame(b"%d %d" % (number, n) + bytes(992)))
        rig.turn()
    assert rig.counter(lib.RP_COUNT_STALLS) > 0
    seen = [0] * len(clients)

    def all_seen() -> bool:
        for record in rig.records():
            number, n = map(int, body_of(record.frame).rstrip(b"\0").split())
            assert n == seen[number]
            seen[number] += 1
        return sum(seen) == 200

    rig.turn_until(all_seen)
    assert rig.counter(lib.RP_COUNT_FRAMES_IN) == 200


def test_closed_waits_for_room_and_comes_last(make_rig: RigMaker) -> None:
    rig = make_rig(capacity=65536)
    filler, leaver = rig.connect(), rig.connect()
    leaver.sendall(frame(b"mine"))
    number = rig.next().connection
    content = 2048 - 8 - ffi.sizeof("rp_origin")  # a record of exactly 2 KiB
    filler.sendall(b"".join(frame(bytes(content - 6)) for _ in range(32)))
    # Not even the smallest record finds room.
    rig.turn_until(lambda: lib.rp_ring_depth(rig.codec_rings[0]) == 65536)
    reset(leaver)
    rig.turn_until(lambda: rig.open_count == 1)
    records = rig.records()
    assert [record.kind for record in records] == [lib.RP_MSG_FRAME] * 32
    closed = rig.next()
    assert (closed.kind, closed.connection) == (lib.RP_MSG_CLOSED, number)
    assert rig.read() is None


def test_a_stalled_codec_does_not_stop_the_connections_of_another(make_rig: RigMaker) -> None:
    rig = make_rig(codecs=2, capacity=65536)
    first, second = rig.connect(), rig.connect()  # slots 0 and 1
    first.sendall(b"".join(frame(bytes(2000)) for _ in range(60)))
    rig.turn_until(lambda: rig.counter(lib.RP_COUNT_STALLS) > 0)
    second.sendall(frame(b"free"))
    assert body_of(rig.next(codec=1).frame) == b"free"


def test_connections_are_bound_to_codecs_by_slot(make_rig: RigMaker) -> None:
    rig = make_rig(codecs=3)
    clients = [rig.connect() for _ in range(6)]
    for number, client in enumerate(clients):
        client.sendall(frame(b"%d a" % number) + frame(b"%d b" % number))
    for codec in range(3):
        bodies = [body_of(rig.next(codec).frame) for _ in range(4)]
        assert sorted(bodies) == sorted(b"%d %s" % (n, x) for n in (codec, codec + 3) for x in (b"a", b"b"))


def test_a_large_frame_crosses_a_small_ring_and_the_small_ones_keep_their_place(make_rig: RigMaker) -> None:
    rig = make_rig(capacity=65536)
    client = rig.connect()
    client.setblocking(False)
    bodies = [b"before", random.Random(9).randbytes(3 * MIB), b"after", random.Random(10).randbytes(20_000)]
    stream = b"".join(frame(body) for body in bodies)
    seen: list[bytes] = []
    at = 0

    def step() -> bool:
        nonlocal at
        with contextlib.suppress(BlockingIOError):
            at += client.send(stream[at:])
        seen.extend(body_of(record.frame) for record in rig.records())
        return len(seen) == len(bodies)

    rig.turn_until(step)
    assert seen == bodies


# -- sleeping and stopping


def test_the_selector_says_that_it_is_awake_after_every_turn(rig: SelectorRig) -> None:
    rig.turn(1_000_000)
    assert rig.worker.asleep == 0
    assert rig.counter(lib.RP_COUNT_SLEEPS) > 0
    assert rig.worker.heartbeat_ns > 0


def test_a_forced_ring_does_not_make_it_spin(rig: SelectorRig) -> None:
    lib.rp_worker_wake(rig.worker, 1)
    rig.turn(5_000_000)
    loops = rig.counter(lib.RP_COUNT_LOOPS)
    rig.turn(5_000_000)
    assert rig.counter(lib.RP_COUNT_LOOPS) - loops <= 3


def test_told_to_stop_intake_it_still_answers_and_leaves_when_told(rig: SelectorRig) -> None:
    client, connection = greet(rig)
    rig.worker.stop = lib.RP_STOP_INTAKE
    assert rig.turn() == lib.RP_OK
    client.sendall(frame(b"too late"))
    late = socket.create_connection(rig.listener.getsockname())
    rig.turn()
    assert rig.read() is None
    rig.reply(connection, b"answer")
    assert rig.receive(client, 6) == b"answer"
    rig.reply(connection, b"the last")
    rig.worker.stop = lib.RP_STOP_LEAVE
    assert rig.turn(10_000_000_000) == lib.RP_STOPPED
    assert rig.receive(client, 8) == b"the last"
    late.close()


def test_leaving_waits_for_output_that_is_still_on_its_way(rig: SelectorRig) -> None:
    client, connection = greet(rig, receive_buffer=4096)
    size = 500_000
    rig.reply(connection, bytes(size))
    rig.turn()
    rig.worker.stop = lib.RP_STOP_LEAVE
    assert rig.turn() == lib.RP_OK
    assert len(rig.receive(client, size)) == size
    assert rig.turn(10_000_000_000) == lib.RP_STOPPED


# -- how a connection ends


@pytest.mark.parametrize("field", ["codec_count"])
def test_a_selector_without_codec_is_refused(rig: SelectorRig, field: str) -> None:
    config = ffi.new("rp_selector_config *", {"worker": rig.worker, "handoff": rig.handoff.fileno(), field: 0})
    assert lib.rp_selector_open(config) == ffi.NULL
