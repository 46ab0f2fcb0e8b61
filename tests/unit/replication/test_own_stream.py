"""The slave's end of the stream between brokers of rocketpy, against a socket that the test holds."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.native.core import lib
from rocketpy.replication.reference_start import Start
from tests.support.own_frames import HELLO, REFUSE, ack, data_frame, frame, heartbeat
from tests.unit.replication.test_stream import SETTINGS, Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, Start(0, 0), is_rocketpy=True)
    yield rig
    rig.close()


def test_data_is_passed_on_and_acknowledged(rig: Rig) -> None:
    assert rig.stream.turn(0) == lib.RP_STREAM_IDLE
    assert rig.reports() == ack(0).hex()
    rig.master.sendall(heartbeat(0) + data_frame(0, b"a" * 100) + data_frame(100, b"b" * 50) + heartbeat(150))
    rig.stream.turn(0)
    assert rig.received() == (0, b"a" * 100 + b"b" * 50) and rig.reports() == ""
    rig.publish(120)
    rig.stream.turn(0)
    assert rig.reports() == ack(120).hex()
    assert rig.block.counter(lib.RP_COUNT_MASTER_END) == 150


@pytest.mark.parametrize("size", [1, 4, 5, 28, 29, 33, 50])
def test_bytes_in_any_pieces(rig: Rig, size: int) -> None:
    body = bytes(range(200))
    stream = data_frame(0, body[:70]) + heartbeat(70) + data_frame(70, body[70:71]) + data_frame(71, body[71:])
    for at in range(0, len(stream), size):
        rig.master.sendall(stream[at : at + size])
        assert rig.stream.turn(0) == lib.RP_STREAM_IDLE
    assert rig.received() == (0, body) and rig.stream.received_bytes == 200


def test_random_frames_in_random_pieces(rig: Rig) -> None:
    chooser = random.Random(11)
    log, stream = b"", b""
    for _ in range(300):
        data = chooser.randbytes(chooser.choice([1, 29, 33, 1000, 9000]))
        stream += data_frame(len(log), data) + (heartbeat(len(log) + len(data)) if chooser.random() < 0.3 else b"")
        log += data
    found = b""
    while stream:
        size = chooser.randrange(1, 6000)
        rig.master.sendall(stream[:size])
        stream = stream[size:]
        assert rig.stream.turn(0) == lib.RP_STREAM_IDLE
        found += b"".join(data for _, _, data in rig.chunks())
    assert found == log


def test_a_damaged_frame_passes_nothing_on(rig: Rig) -> None:
    good = data_frame(0, b"good")
    bad = bytearray(data_frame(4, b"x" * 3000))
    bad[2000] ^= 1
    rig.master.sendall(good + bytes(bad))
    assert rig.stream.turn(0) == lib.RP_STREAM_ENDED
    assert rig.received() == (0, b"good") and "damaged" in rig.stream.reason


def test_nothing_of_a_frame_is_passed_on_before_its_end(rig: Rig) -> None:
    whole = data_frame(0, b"x" * 3000)
    rig.master.sendall(whole[:-1])
    rig.stream.turn(0)
    assert rig.chunks() == []
    rig.master.sendall(whole[-1:])
    rig.stream.turn(0)
    assert rig.received() == (0, b"x" * 3000)


@pytest.mark.parametrize(
    "poison",
    [
        data_frame(1, b"gap"),
        data_frame(-1, b"before"),
        data_frame(0, b""),
        data_frame(0, bytes(1 << 17) + b"x"),
        data_frame(0, bytes(20_000)),  # more than the ring takes at once
        frame(5, bytes(3)) + bytes(40),
        frame(6, bytes(29)) + bytes(40),
        frame(HELLO, b"{}") + bytes(40),
        frame(REFUSE, b"{}") + bytes(40),
        frame(0, b"") + bytes(40),
        frame(8, bytes(32)),
        frame(9, bytes(4)),
        b"\xff" * 40,
        bytes(40),
    ],
)
def test_a_frame_that_cannot_be_ends_the_stream(rig: Rig, poison: bytes) -> None:
    """Fault: Impossible numbers from a master stopped a slave broker."""
    rig.master.sendall(poison[:60_000])
    assert rig.stream.turn(0) == lib.RP_STREAM_ENDED
    assert rig.chunks() == [] and rig.stream.reason


def test_data_does_not_cross_a_file(tmp_path: Path) -> None:
    start = (1 << 20) - 100
    rig = Rig(tmp_path, Start(start, start), is_rocketpy=True)
    rig.master.sendall(data_frame(start, bytes(101)))
    assert rig.stream.turn(0) == lib.RP_STREAM_ENDED and rig.chunks() == []
    rig.close()


def test_a_full_ring_stops_reading_and_nothing_is_lost(rig: Rig) -> None:
    log = random.Random(3).randbytes(120_000)
    rig.master.setblocking(False)
    stream = b"".join(data_frame(at, log[at : at + 10_000]) for at in range(0, len(log), 10_000))
    found, sent = b"", 0
    while len(found) < len(log):
        for _ in range(10):  # more than the ring takes
            with contextlib.suppress(BlockingIOError):
                sent += rig.master.send(stream[sent:])
            assert rig.stream.turn(0) == lib.RP_STREAM_IDLE
        chunks = rig.chunks()
        assert 0 < len(chunks) < 7
        found += b"".join(data for _, _, data in chunks)
    assert found == log


def test_what_is_on_the_disk_is_acknowledged(tmp_path: Path) -> None:
    """Under SYNC_FLUSH: also when less than the start is durable, which the master is not to count."""
    rig = Rig(tmp_path, Start(500, 500), settings=attrs.evolve(SETTINGS, is_durable=True), is_rocketpy=True)
    rig.control.header.durable_phy_offset = 300
    rig.stream.turn(0)
    assert rig.reports() == ack(300).hex()
    rig.close()
