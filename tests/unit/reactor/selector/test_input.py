"""csrc/workers/selector/selector_input.c: frames go on whole and in order; no connection harms another."""

from __future__ import annotations

import contextlib
import random
import ssl

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.selector_rig import SelectorRig, body_of, frame, lib


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
