"""csrc/workers/selector.c: whatever bytes arrive, frames go on whole and in order, and no connection harms another."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.reactor.ring import WorkerBlock
from rocketpy.reactor.selector import Complaints, network_array
from rocketpy.remoting.networks import parse_address, parse_networks
from tests.support.selector_rig import SelectorRig, body_of, ffi, frame, lib

MIB = 1024 * 1024
RigMaker = Callable[..., SelectorRig]


@pytest.fixture
def make_rig() -> Iterator[RigMaker]:
    rigs: list[SelectorRig] = []

    def make(**settings: int) -> SelectorRig:
        rigs.append(SelectorRig(**settings))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


@pytest.fixture
def rig(make_rig: RigMaker) -> SelectorRig:
    return make_rig()


# -- input


def test_a_frame_reaches_the_codec_with_its_origin(rig: SelectorRig) -> None:
    client = rig.connect(listener=1)
    client.sendall(frame(b"hello"))
    record = rig.next()
    assert record.kind == lib.RP_MSG_FRAME
    assert record.frame == frame(b"hello")[4:]
    assert record.listener == 1
    assert record.peer == client.getsockname()
    assert record.connection >> 56 == 3
    assert rig.counter(lib.RP_COUNT_FRAMES_IN) == 1
    assert rig.counter(lib.RP_COUNT_BYTES_IN) == len(frame(b"hello"))


def test_byte_by_byte(rig: SelectorRig) -> None:
    client = rig.connect()
    for byte in frame(b"a") + frame(b"") + frame(b"b" * 700):
        client.send(bytes([byte]))
        rig.turn()
    assert [body_of(record.frame) for record in rig.records()] == [b"a", b"", b"b" * 700]


@pytest.mark.parametrize("seed", range(8))
def test_any_cut_of_the_stream_gives_the_same_frames(rig: SelectorRig, seed: int) -> None:
    draw = random.Random(seed)
    bodies = [draw.randbytes(draw.choice((0, 1, 3, 200, 511, 512, 513, 5000, 70_000, 300_000))) for _ in range(40)]
    stream = b"".join(frame(body) for body in bodies)
    client = rig.connect()
    client.setblocking(False)
    seen: list[bytes] = []
    at = 0
    while at < len(stream):
        end = at + draw.choice((1, 2, 3, 4, 5, 8, 100, 600, 4096, 100_000))
        while at < min(end, len(stream)):
            try:
                at += client.send(stream[at:end])
            except BlockingIOError:
                rig.turn()
                seen += [body_of(record.frame) for record in rig.records()]
        rig.turn()
        seen += [body_of(record.frame) for record in rig.records()]

    def all_seen() -> bool:
        seen.extend(body_of(record.frame) for record in rig.records())
        return len(seen) >= len(bodies)

    rig.turn_until(all_seen)
    assert seen == bodies


def test_many_frames_in_one_read_are_cut_in_order(rig: SelectorRig) -> None:
    client = rig.connect()
    client.sendall(b"".join(frame(b"%d" % n) for n in range(1000)))
    seen: list[bytes] = []

    def all_seen() -> bool:
        seen.extend(body_of(record.frame) for record in rig.records())
        return len(seen) == 1000

    rig.turn_until(all_seen)
    assert seen == [b"%d" % n for n in range(1000)]


def test_the_largest_frame_passes_and_one_byte_more_does_not(rig: SelectorRig) -> None:
    client = rig.connect()
    client.setblocking(False)
    content = random.Random(5).randbytes(lib.RP_FRAME_SIZE_MAX - 8 - 2)
    stream = memoryview(frame(content))
    assert len(stream) == lib.RP_FRAME_SIZE_MAX
    at = 0
    found = None
    while found is None:
        if at < len(stream):
            with contextlib.suppress(BlockingIOError):
                at += client.send(stream[at:])
        rig.turn(1_000_000)
        found = rig.read()
    assert body_of(found.frame) == content

    other = rig.connect()
    other.sendall((lib.RP_FRAME_SIZE_MAX - 3).to_bytes(4, "big"))
    assert rig.is_closed(other)
    assert rig.counter(lib.RP_COUNT_FRAMES_BAD) == 1


def tls_hello() -> bytes:
    context = ssl.create_default_context()
    outgoing = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="broker")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(tls_hello(), id="tls hello"),
        pytest.param(b"\x16", id="first byte of a tls hello"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(b"\xff\xff\xff\xff", id="negative length"),
        pytest.param(b"\x00\x00\x00\x00", id="length 0"),
        pytest.param(b"\x00\x00\x00\x03abc", id="length without a descriptor"),
        pytest.param(b"\x00\x00\x00\x08\x00\x00\x00\x05{}{}", id="header beyond the frame"),
        pytest.param(b"\x00\x00\x00\x06\x07\x00\x00\x02{}", id="unknown serialisation"),
    ],
)
def test_garbage_closes_its_connection_without_an_answer_and_no_other(rig: SelectorRig, garbage: bytes) -> None:
    good, bad, after_good = rig.connect(), rig.connect(), rig.connect()
    bad.sendall(garbage)
    after_good.sendall(frame(b"good first") + garbage)
    assert rig.is_closed(bad)
    assert rig.is_closed(after_good)
    assert rig.counter(lib.RP_COUNT_FRAMES_BAD) == 2
    good.sendall(frame(b"still served"))
    kinds = [(rig.next().kind, rig.next().kind), body_of(rig.next().frame)]
    assert kinds == [(lib.RP_MSG_FRAME, lib.RP_MSG_CLOSED), b"still served"]
    assert rig.open_count == 1


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


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def test_a_reset_is_a_close_too(rig: SelectorRig) -> None:
    client = rig.connect()
    client.sendall(frame(b"1"))
    rig.next()
    reset(client)
    assert rig.next().kind == lib.RP_MSG_CLOSED
    assert rig.open_count == 0


def test_what_a_peer_sent_before_its_reset_is_read_although_it_takes_no_answer(rig: SelectorRig) -> None:
    """Oneway sends are acknowledged by nobody, and their sender may have closed before it reads other answers."""
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
    """The clock is the machine's: the test proves the order, idle first, not the second."""
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
    """More of them than one turn hears; a paused container wakes to this."""
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


# -- output


def greet(rig: SelectorRig, **options: int) -> tuple[socket.socket, int]:
    client = rig.connect(**options)
    client.sendall(frame(b"hello"))
    return client, rig.next().connection


def test_replies_go_to_their_connections_in_order(rig: SelectorRig) -> None:
    (one, to_one), (two, to_two) = greet(rig), greet(rig)
    for n in range(500):
        assert rig.reply(to_one, b"1:%d;" % n)
        assert rig.reply(to_two, b"2:%d;" % n)
    rig.turn()
    assert rig.counter(lib.RP_COUNT_FRAMES_OUT) == 1000
    for client, name in ((one, b"1"), (two, b"2")):
        wanted = b"".join(b"%s:%d;" % (name, n) for n in range(500))
        assert rig.receive(client, len(wanted)) == wanted


@pytest.mark.parametrize("size", [1, 2047, 2048, 2049, 300_000, 16 * MIB])
def test_replies_of_any_size(rig: SelectorRig, size: int) -> None:
    client, connection = greet(rig)
    content = random.Random(size).randbytes(size)
    assert rig.reply(connection, content)
    assert rig.receive(client, size) == content
    assert rig.counter(lib.RP_COUNT_BYTES_OUT) == size


def test_a_reply_to_a_connection_that_has_gone_is_dropped(rig: SelectorRig) -> None:
    client, connection = greet(rig)
    client.close()
    assert rig.next().kind == lib.RP_MSG_CLOSED
    newcomer, number = greet(rig)
    assert number != connection and number >> 32 == connection >> 32  # the same slot
    rig.reply(connection, b"for nobody")
    rig.reply(connection & ~(0xFF << 56), b"of another selector")
    rig.reply(number, b"for the newcomer")
    assert rig.receive(newcomer, 16) == b"for the newcomer"


@pytest.mark.parametrize("record", [b"", b"\0" * 15])
def test_a_malformed_reply_harms_nobody(rig: SelectorRig, record: bytes) -> None:
    client, connection = greet(rig)
    rig.write(lib.RP_MSG_REPLY, record)
    rig.write(lib.RP_MSG_PULL_REPLY, record)
    rig.reply(connection, b"ok")
    assert rig.receive(client, 2) == b"ok"


def test_close_after_closes_behind_the_reply(rig: SelectorRig) -> None:
    client, connection = greet(rig)
    rig.reply(connection, b"last words", lib.RP_REPLY_CLOSE_AFTER)
    assert rig.receive(client, 10) == b"last words"
    assert rig.is_closed(client)
    assert rig.next().kind == lib.RP_MSG_CLOSED


def test_an_empty_reply_with_close_after_closes_a_bad_connection(rig: SelectorRig) -> None:
    client, connection = greet(rig)
    rig.reply(connection, b"", lib.RP_REPLY_CLOSE_AFTER)
    assert rig.is_closed(client)
    assert rig.counter(lib.RP_COUNT_FRAMES_BAD) == 1


def test_a_peer_that_never_reads_is_not_read_either_and_blocks_nobody(rig: SelectorRig) -> None:
    deaf, to_deaf = greet(rig, receive_buffer=4096)
    other, to_other = greet(rig)
    chunk = bytes(100_000)
    for _ in range(30):
        while not rig.reply(to_deaf, chunk):
            rig.turn()
    rig.turn()
    deaf.sendall(frame(b"not read"))
    other.sendall(frame(b"read"))
    assert body_of(rig.next().frame) == b"read"
    rig.reply(to_other, b"answered")
    assert rig.receive(other, 8) == b"answered"
    assert rig.read() is None
    assert lib.rp_ring_depth(rig.reply_ring) == 0  # the slow one holds no ring
    assert len(rig.receive(deaf, 30 * len(chunk))) == 30 * len(chunk)  # it reads at last
    assert body_of(rig.next().frame) == b"not read"


def test_a_peer_that_fetches_nothing_of_too_much_is_closed(rig: SelectorRig) -> None:
    deaf, to_deaf = greet(rig, receive_buffer=4096)
    chunk = bytes(8 * MIB)
    sent = 0
    while rig.open_count == 1:
        if rig.reply(to_deaf, chunk):
            sent += len(chunk)
        rig.turn()
        lib.rp_ring_pump(rig.replies)
        assert sent < 128 * MIB
    assert rig.next().kind == lib.RP_MSG_CLOSED
    deaf.close()


def test_pull_replies_carry_slices_of_the_log(make_rig: RigMaker, tmp_path: Path) -> None:
    log_bytes = random.Random(11).randbytes(4 * MIB)
    (tmp_path / "00000000000000000000").write_bytes(log_bytes)
    view = lib.rp_log_view_open(str(tmp_path).encode(), len(log_bytes), 4)
    rig = make_rig(log=view)
    (slow, to_slow), (fast, to_fast) = greet(rig, receive_buffer=4096), greet(rig)
    slices = [(100, 50), (3 * MIB, MIB), (0, 1), (8, 0)]
    wanted = b"head" + b"".join(log_bytes[at : at + size] for at, size in slices)
    for connection in (to_slow, to_fast):
        rig.reply(connection, b"before")
        rig.pull_reply(connection, b"head", slices)
        rig.pull_reply(connection, b"head", slices[:1])
        rig.reply(connection, b"after")
    everything = b"before" + wanted + wanted[:54] + b"after"
    assert rig.receive(fast, len(everything)) == everything
    assert rig.receive(slow, len(everything)) == everything
    rig.pull_reply(to_fast, b"head", [(100, 50), (8 * MIB, 10)])  # that file has been deleted
    assert rig.is_closed(fast)
    rig.close()
    lib.rp_log_view_close(view)


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


# -- what a connection may cost


def unfinished(size: int, claims: int = 16 * MIB) -> bytes:
    """The first `size` bytes of a frame of `claims` bytes."""
    return struct.pack(">II", claims - 4, 2)[:size].ljust(size, b"\0")


def test_unfinished_frames_are_bounded_together(make_rig: RigMaker) -> None:
    """Thousands of connections that claim 16 MiB each, and send some: the one goes whose frame began first."""
    rig = make_rig(unfinished_bytes_max=MIB)
    clients = [rig.connect() for _ in range(40)]
    for client in clients:
        client.sendall(unfinished(40_000))
        rig.turn()
    rig.turn()
    closed = rig.counter(lib.RP_COUNT_UNFINISHED_CLOSED)
    assert 40 - MIB // 40_000 <= closed < 40
    assert rig.open_count == 40 - closed
    for client in clients[:closed]:
        assert rig.is_closed(client)
    newcomer = rig.connect()
    newcomer.sendall(frame(b"served"))
    assert body_of(rig.next().frame) == b"served"


def test_who_has_sent_whole_frames_meanwhile_is_younger(make_rig: RigMaker) -> None:
    rig = make_rig(unfinished_bytes_max=300_000)
    worker, dripper = rig.connect(), rig.connect()
    half = frame(bytes(100_000))
    worker.sendall(half[:50_000])
    rig.turn()
    dripper.sendall(unfinished(60_000))
    rig.turn()
    worker.sendall(half[50_000:] + half[:50_000])
    assert body_of(rig.next().frame) == bytes(100_000)
    with contextlib.suppress(ConnectionError):
        for _ in range(4):
            dripper.sendall(bytes(60_000))
            rig.turn()
    assert rig.open_count == 1
    assert rig.is_closed(dripper)
    worker.sendall(half[50_000:])
    assert body_of(rig.next().frame) == bytes(100_000)


def test_a_claimed_length_takes_no_memory(make_rig: RigMaker) -> None:
    rig = make_rig(unfinished_bytes_max=MIB)
    clients = [rig.connect() for _ in range(500)]
    for client in clients:
        client.sendall(unfinished(8))
        rig.turn()
    assert rig.open_count == 500
    assert rig.counter(lib.RP_COUNT_UNFINISHED_CLOSED) == 0


def test_unsent_output_is_bounded_together_and_who_has_most_goes(make_rig: RigMaker) -> None:
    """Many connections that ask and do not read."""
    rig = make_rig(unsent_bytes_max=4 * MIB)
    modest, modest_connection = greet(rig, receive_buffer=4096)
    rig.reply(modest_connection, bytes(50_000))
    greedy = [greet(rig, receive_buffer=4096) for _ in range(20)]
    for _ in range(4):
        for _, connection in greedy:
            rig.reply(connection, bytes(200_000))
            rig.turn()
    closed = rig.counter(lib.RP_COUNT_UNSENT_CLOSED)
    assert 20 * 800_000 - closed * 800_000 < 5 * MIB
    assert rig.open_count == 21 - closed > 1
    assert len(rig.receive(modest, 50_000)) == 50_000


def test_output_counts_with_the_memory_that_it_takes(make_rig: RigMaker, tmp_path: Path) -> None:
    """Answers of a few bytes around slices of the log take a block each."""
    (tmp_path / f"{0:020d}").write_bytes(bytes(MIB))
    rig = make_rig(log=lib.rp_log_view_open(str(tmp_path).encode(), MIB, 4), unsent_bytes_max=MIB)
    idle, greedy = greet(rig), greet(rig, receive_buffer=4096)
    while not rig.counter(lib.RP_COUNT_UNSENT_CLOSED):
        for _ in range(100):
            rig.pull_reply(greedy[1], b"h" * 90, [(0, 10)])
        rig.turn()
        assert rig.counter(lib.RP_COUNT_FRAMES_OUT) < 20_000
    assert rig.open_count == 1
    rig.reply(idle[1], b"served")
    assert rig.receive(idle[0], 6) == b"served"


def pinned_files() -> list[str]:
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("(deleted)")]


@pytest.mark.parametrize("grace_ms", [1, 3_600_000])
def test_a_slow_reader_pins_a_deleted_file_for_a_while_only(make_rig: RigMaker, tmp_path: Path, grace_ms: int) -> None:
    log_bytes = random.Random(11).randbytes(MIB)
    for number in range(2):
        (tmp_path / f"{number * MIB:020d}").write_bytes(log_bytes)
    view = lib.rp_log_view_open(str(tmp_path).encode(), MIB, 4)
    rig = make_rig(log=view, deleted_grace_ms=grace_ms)
    before = len(pinned_files())
    slow, other, fast = (greet(rig, receive_buffer=4096), greet(rig, receive_buffer=4096), greet(rig))
    rig.pull_reply(slow[1], b"head", [(0, 500_000)])
    rig.pull_reply(other[1], b"head", [(MIB, 500_000)])
    rig.pull_reply(fast[1], b"head", [(0, 500_000)])
    assert len(rig.receive(fast[0], 500_004)) == 500_004
    (tmp_path / f"{0:020d}").unlink()
    rig.turn()
    assert len(pinned_files()) == before + 1  # it has its grace
    if grace_ms == 1:
        rig.turn_until(lambda: rig.open_count == 2)
        assert rig.counter(lib.RP_COUNT_PINNING_CLOSED) == 1
        assert len(pinned_files()) == before
        assert ending(slow[0]) == "reset"
    else:
        assert rig.receive(slow[0], 500_004) == b"head" + log_bytes[:500_000]
        rig.turn()
        assert len(pinned_files()) == before
    assert rig.receive(other[0], 500_004) == b"head" + log_bytes[:500_000]
    rig.close()
    lib.rp_log_view_close(view)


# -- behind a proxy

PROXY_LINE = b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 10911\r\n"
PROXY_LOCAL = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"


@pytest.fixture
def proxied(make_rig: RigMaker) -> SelectorRig:
    """A selector that takes this machine for a proxy."""
    networks = network_array(parse_networks("10.0.0.0/8, 127.0.0.0/8"))
    return make_rig(proxies=networks, proxy_count=2, idle_s=30)


@pytest.mark.parametrize("piece", [1, 5, 43, 1000])
def test_a_proxied_connection_is_that_of_whom_it_names(proxied: SelectorRig, piece: int) -> None:
    client = proxied.connect()
    stream = PROXY_LINE + frame(b"a") + frame(b"b")
    for at in range(0, len(stream), piece):
        client.send(stream[at : at + piece])
        proxied.turn()
    records = [proxied.next(), proxied.next()]
    assert [(record.peer, body_of(record.frame)) for record in records] == [
        (("192.0.2.7", 51234), b"a"),
        (("192.0.2.7", 51234), b"b"),
    ]
    client.send(PROXY_LINE)  # once is enough
    assert proxied.is_closed(client)


@pytest.mark.parametrize(("header", "is_itself"), [(PROXY_LOCAL, True), (b"PROXY UNKNOWN\r\n", False)])
def test_a_proxy_that_speaks_for_itself_is_not_one_that_cannot_say(
    proxied: SelectorRig, header: bytes, is_itself: bool
) -> None:
    client = proxied.connect()
    client.send(header + frame(b"a"))
    assert proxied.next().peer == (client.getsockname() if is_itself else ("0.0.0.0", 0))


@pytest.mark.parametrize("start", [frame(b"plain"), b"PROXY TCP4 nonsense\r\n", b"P" * 200, b"\r\n\r\n\0\r\nQUIX"])
def test_a_proxy_that_does_not_say_is_disconnected(proxied: SelectorRig, start: bytes) -> None:
    client = proxied.connect()
    client.send(start)
    assert proxied.is_closed(client)
    assert proxied.counter(lib.RP_COUNT_PROXY_BAD) == 1
    assert proxied.read() is None


def test_who_is_no_proxy_is_taken_as_it_is(make_rig: RigMaker) -> None:
    rig = make_rig(proxies=network_array(parse_networks("127.0.0.2, 10.0.0.0/8, ::1")), proxy_count=3)
    client = rig.connect()
    client.send(frame(b"plain"))
    assert rig.next().peer == client.getsockname()
    client.send(PROXY_LINE)
    assert rig.is_closed(client)
    assert rig.counter(lib.RP_COUNT_PROXY_BAD) == 0


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("127.0.0.1", ["127.0.0.1", "::ffff:127.0.0.1"], ["127.0.0.2", "::1", "::"]),
        ("10.1.0.0/15", ["10.0.255.1", "10.1.0.0"], ["10.2.0.0", "9.255.255.255"]),
        ("0.0.0.0/0", ["1.2.3.4"], ["::1", "2001:db8::"]),
        ("::/0", ["1.2.3.4", "::1"], []),
        ("2001:db8::/33", ["2001:db8:7fff::1"], ["2001:db8:8000::", "1.2.3.4"]),
    ],
)
def test_what_is_in_a_network(network: str, inside: list[str], outside: list[str]) -> None:
    networks = network_array(parse_networks(network))

    def is_in(text: str) -> bool:
        address = parse_address(text)
        host = ffi.new("rp_host *", {"family": address.version})
        ffi.memmove(host.address, address.packed, len(address.packed))
        return bool(lib.rp_peer_is_in(host, networks, 1))

    assert all(map(is_in, inside))
    assert not any(map(is_in, outside))


# -- how a connection ends


def ending(client: socket.socket) -> str:
    """Read to the end, which is `FIN` or `reset`. What the death of the process does is in tests/system."""
    client.settimeout(10)
    with client:
        try:
            while client.recv(65536):
                pass
        except ConnectionResetError:
            return "reset"
    return "FIN"


def test_an_orderly_close_is_a_fin(rig: SelectorRig) -> None:
    (leaver, to_leaver), (stayer, to_stayer) = greet(rig), greet(rig)
    rig.reply(to_leaver, b"bye", lib.RP_REPLY_CLOSE_AFTER)
    rig.reply(to_stayer, b"more")
    rig.turn_until(lambda: rig.open_count == 1)
    assert ending(leaver) == "FIN"
    rig.worker.stop = lib.RP_STOP_LEAVE
    assert rig.turn(10_000_000_000) == lib.RP_STOPPED
    assert rig.receive(stayer, 4) == b"more"
    rig.close(keep_clients=True)
    assert ending(stayer) == "FIN"


def test_a_peer_that_is_not_sent_everything_gets_a_reset(rig: SelectorRig) -> None:
    deaf, to_deaf = greet(rig, receive_buffer=4096)
    for _ in range(4):
        rig.reply(to_deaf, bytes(200_000))
        rig.turn()
    rig.reply(to_deaf, b"", lib.RP_REPLY_CLOSE_AFTER)
    rig.turn()
    rig.close(keep_clients=True)
    assert ending(deaf) == "reset"


def test_a_stop_waits_until_the_peer_has_what_was_written(rig: SelectorRig) -> None:
    """The socket has taken it all, but the peer has sent more, which nobody reads: to close it now is a reset."""
    client, connection = greet(rig, receive_buffer=4096)
    rig.worker.stop = lib.RP_STOP_INTAKE
    rig.turn()
    client.sendall(frame(b"read by nobody"))
    content = random.Random(3).randbytes(60_000)
    rig.reply(connection, content)
    rig.worker.stop = lib.RP_STOP_LEAVE
    got = rig.receive(client, 100)
    while (status := rig.turn(0)) == lib.RP_OK and len(got) < len(content):
        with contextlib.suppress(BlockingIOError):
            got += client.recv(2000)
    while status == lib.RP_OK:
        status = rig.turn(10_000_000)
    rig.close(keep_clients=True)
    client.settimeout(10)
    with client, contextlib.suppress(ConnectionResetError):
        while piece := client.recv(65536):
            got += piece
    assert got == content


@pytest.mark.parametrize("field", ["codec_count"])
def test_a_selector_without_codec_is_refused(rig: SelectorRig, field: str) -> None:
    config = ffi.new("rp_selector_config *", {"worker": rig.worker, "handoff": rig.handoff.fileno(), field: 0})
    assert lib.rp_selector_open(config) == ffi.NULL


def test_refused_connections_are_told_with_their_setting_and_not_too_often(caplog: pytest.LogCaptureFixture) -> None:
    block, now_s = WorkerBlock("selector-0", 0), [100.0]
    complaints = Complaints(block, lambda: now_s[0])
    for _ in range(5):
        block.add(lib.RP_COUNT_CONNECTIONS_REFUSED)
        complaints.report()
    assert caplog.text.count("connections: the limit") == 1 and "selector-0: closed 1 connections" in caplog.text
    assert "connectionsMax" in caplog.text
    now_s[0] += 10.0
    complaints.report()
    assert "selector-0: closed 4 connections" in caplog.text
