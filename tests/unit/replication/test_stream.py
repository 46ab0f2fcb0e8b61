"""The slave's end of the stream of 4.9, byte for byte, against a socket that the test holds."""

from __future__ import annotations

import contextlib
import fcntl
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.native import Status
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.master_link import MasterLink
from rocketpy.reactor.ring import Ring, WorkerBlock
from rocketpy.replication import stream as stream_module
from rocketpy.replication.errors import MasterUnusable
from rocketpy.replication.follower import Follower
from rocketpy.replication.reference_start import HEADER, Start
from rocketpy.replication.stream import (
    Agreement,
    ByteReader,
    Intake,
    LogStream,
    MemberStream,
    StreamSettings,
    send_report,
)
from rocketpy.store.control_block import ControlBlock

FILE_SIZE = 1 << 20
HOUR_NS = 3600 * 10**9
SETTINGS = StreamSettings(is_durable=False, report_interval_ns=HOUR_NS, silence_max_ns=HOUR_NS)


class Rig:
    """A stream, its ring, and the master's socket."""

    def __init__(
        self,
        root: Path,
        start: Start,
        body_left: int = 0,
        settings: StreamSettings = SETTINGS,
        is_rocketpy: bool = False,
        follower: Callable[[ControlBlock], Follower] | None = None,
    ) -> None:
        self.ours, self.master = socket.socketpair()
        self.block, send = WorkerBlock("replicator", 0), WorkerBlock("send", 1)
        self.control = ControlBlock(root / "control", FILE_SIZE)
        self.control.header.published_phy_offset = start.end if start.end > 1 else 0
        self.master_link = MasterLink()
        self.ring = Ring(1 << 16, self.block, send)
        self.reader: Any = lib.rp_ring_reader_open(self.ring.pointer)
        agreement = Agreement(
            phy_offset=start.end,
            master_end=0,
            is_rocketpy=is_rocketpy,
            body_left=body_left,
            report_least=0 if is_rocketpy else start.report,
            adds_zero=start.adds_zero,
        )
        intake = Intake(self.block, self.control, self.master_link, self.ring, settings)
        if follower is None:
            self.stream = LogStream(self.ours, agreement, intake)
        else:
            self.stream = MemberStream(self.ours, agreement, intake, follower(self.control))

    def close(self) -> None:
        self.stream.close()
        self.ours.close()
        self.master.close()
        lib.rp_ring_reader_close(self.reader)
        self.control.close()

    def publish(self, position: int) -> None:
        self.control.header.published_phy_offset = position

    def chunks(self) -> list[tuple[int, int, bytes]]:
        """(stream, position, bytes) that went to the send worker."""
        data, size, kind = ffi.new("const uint8_t **"), ffi.new("uint32_t *"), ffi.new("uint16_t *")
        found = []
        while lib.rp_ring_read(self.reader, data, size, kind) == Status.OK:
            assert kind[0] == lib.RP_MSG_LOG
            head = ffi.cast("rp_msg_log *", data[0])
            found.append((int(head.stream), int(head.phy_offset), bytes(ffi.buffer(data[0], size[0])[16:])))
            lib.rp_ring_release(self.reader)
        return found

    def received(self) -> tuple[int, bytes]:
        """Where the bytes begin that went to the send worker, and the bytes; they have no gap."""
        chunks = self.chunks()
        position = chunks[0][1]
        for _, at, data in chunks:
            assert at == position
            position += len(data)
        return chunks[0][1], b"".join(data for _, _, data in chunks)

    def reports(self) -> str:
        """What the master has got, in hexadecimal digits."""
        found = b""
        with contextlib.suppress(BlockingIOError):
            while part := self.master.recv(65_536, socket.MSG_DONTWAIT):
                found += part
        return found.hex()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, Start(0, 0))
    yield rig
    rig.close()


def frame(position: int, data: bytes) -> bytes:
    return HEADER.pack(position, len(data)) + data


def test_the_session_of_the_reference(rig: Rig) -> None:
    """The golden bytes: two records of 160 bytes, then the end of a file."""
    assert rig.stream.turn(0) == lib.RP_STREAM_IDLE
    assert rig.reports() == "0000000000000000"
    rig.master.sendall(bytes.fromhex("000000000000000000000000"))  # heartbeat
    rig.master.sendall(bytes.fromhex("000000000000000000000140000000a0daa320a7") + bytes(312))
    assert rig.stream.turn(0) == lib.RP_STREAM_IDLE
    assert rig.received() == (0, bytes.fromhex("000000a0daa320a7") + bytes(312))
    assert rig.reports() == ""  # nothing is published yet
    rig.publish(0x140)
    rig.stream.turn(0)
    assert rig.reports() == "0000000000000140"
    rig.master.sendall(bytes.fromhex("000000000000014000000000"))
    rig.master.sendall(frame(0x140, bytes(0xFFE0F - 0x140)[:1000]))
    rig.stream.turn(0)
    assert rig.received() == (0x140, bytes(1000)) and rig.reports() == ""


@pytest.mark.parametrize("size", [1, 5, 12, 13, 50])
def test_bytes_in_any_pieces(rig: Rig, size: int) -> None:
    body = bytes(range(200))
    stream = frame(0, body[:70]) + frame(70, b"") + frame(70, body[70:])
    found = b""
    for at in range(0, len(stream), size):
        rig.master.sendall(stream[at : at + size])
        rig.stream.turn(0)
        found += b"".join(data for _, _, data in rig.chunks())
    assert found == body and rig.stream.received_bytes == 200


def test_a_full_ring_stops_reading(rig: Rig) -> None:
    body = bytes(range(250)) * 1000
    rig.master.setblocking(False)
    sent = rig.master.send(frame(0, body))
    found = b""
    while len(found) < min(sent - HEADER.size, len(body)):
        assert rig.stream.turn(0) == lib.RP_STREAM_IDLE
        assert rig.ring.depth_bytes <= 1 << 16
        found += b"".join(data for _, _, data in rig.chunks())
    assert found == body[: len(found)] and len(found) > 1 << 16


def test_the_rest_of_a_frame_comes_first(tmp_path: Path) -> None:
    """Python has read the frame up to the end of the slave's log."""
    rig = Rig(tmp_path, Start(100, 5000), body_left=30)
    rig.master.sendall(b"r" * 30 + frame(5030, b"next"))
    rig.stream.turn(0)
    assert rig.received() == (5000, b"r" * 30 + b"next")
    assert rig.reports() == f"{5000:016x}"
    rig.close()


def test_the_byte_that_the_master_does_not_send_is_added(tmp_path: Path) -> None:
    rig = Rig(tmp_path, Start(1, 1, adds_zero=True))
    rig.master.sendall(frame(1, b"abc"))
    rig.stream.turn(0)
    assert rig.received() == (0, b"\x00abc")
    assert rig.reports() == f"{1:016x}"  # a report of 0 would ask for the last file
    rig.close()


@pytest.mark.parametrize(
    "header", [HEADER.pack(1, 5), HEADER.pack(0, -1), HEADER.pack(0, FILE_SIZE + 1), HEADER.pack(-1, 0)]
)
def test_a_frame_in_the_wrong_place_ends_the_stream(rig: Rig, header: bytes) -> None:
    rig.master.sendall(header)
    assert rig.stream.turn(0) == lib.RP_STREAM_ENDED
    assert "another position" in rig.stream.reason and not rig.chunks()


def test_a_master_that_closes(rig: Rig) -> None:
    rig.master.sendall(frame(0, b"last"))
    rig.master.close()
    assert rig.stream.run()
    assert rig.received() == (0, b"last") and "closed" in rig.stream.reason


def test_a_stream_that_the_send_worker_refuses(rig: Rig) -> None:
    rig.master_link.pointer.refused_phy_offset = 77
    rig.master_link.pointer.refused_reason = lib.RP_REFUSED_BAD_RECORD
    rig.master_link.pointer.refused_stream = rig.master_link.pointer.stream
    assert rig.stream.turn(0) == lib.RP_STREAM_ENDED and rig.stream.is_refused
    assert rig.master_link.refused_position == 77 and rig.master_link.is_refused_for_a_record


def test_streams_are_numbered(rig: Rig) -> None:
    assert rig.master_link.pointer.stream == 1
    rig.master.sendall(frame(0, b"x"))
    rig.stream.turn(0)
    assert rig.chunks()[0][0] == 1


def test_reports_are_repeated(tmp_path: Path) -> None:
    settings = StreamSettings(is_durable=False, report_interval_ns=1, silence_max_ns=HOUR_NS)
    rig = Rig(tmp_path, Start(100, 5000), settings=settings)
    rig.stream.turn(0)
    rig.stream.turn(0)
    assert rig.reports().count(f"{5000:016x}") >= 2
    rig.close()


def test_under_sync_flush_it_reports_what_is_on_the_disk(tmp_path: Path) -> None:
    settings = StreamSettings(is_durable=True, report_interval_ns=HOUR_NS, silence_max_ns=HOUR_NS)
    rig = Rig(tmp_path, Start(0, 0), settings=settings)
    rig.stream.turn(0)
    rig.publish(500)
    rig.stream.turn(0)
    assert rig.reports() == f"{0:016x}"
    rig.control.header.durable_phy_offset = 300
    rig.stream.turn(0)
    assert rig.reports() == f"{300:016x}"
    rig.close()


def test_what_is_published_but_not_on_the_disk_is_not_acknowledged_under_sync_flush(tmp_path: Path) -> None:
    """The log was published to 5000 before; the first report asked for it from 100 on.
    Fault: With SYNC_FLUSH, a reconnecting slave acknowledged data that was not yet on its disk."""
    settings = StreamSettings(is_durable=True, report_interval_ns=1, silence_max_ns=HOUR_NS)
    rig = Rig(tmp_path, Start(100, 5000), settings=settings)
    for durable, acknowledged in [(0, 100), (4000, 4000), (5000, 5000)]:
        rig.control.header.durable_phy_offset = durable
        rig.stream.turn(0)
        assert rig.reports()[-16:] == f"{acknowledged:016x}"
    rig.close()


def test_a_silent_master_is_left(tmp_path: Path) -> None:
    settings = StreamSettings(is_durable=False, report_interval_ns=HOUR_NS, silence_max_ns=1)
    rig = Rig(tmp_path, Start(0, 0), settings=settings)
    assert rig.stream.turn(0) == lib.RP_STREAM_ENDED and "nothing" in rig.stream.reason
    rig.close()


def test_it_leaves_when_it_is_told_to(rig: Rig) -> None:
    rig.block.order(2)
    assert not rig.stream.run()


def test_exact_reads() -> None:
    ours, master = socket.socketpair()
    with ours, master:
        beats: list[int] = []
        reader = ByteReader(ours, 5.0, lambda: beats.append(1))
        master.sendall(b"abcdef")
        assert reader.read(4) == b"abcd" and reader.read(2) == b"ef" and beats
        send_report(ours, 258)
        assert master.recv(100) == b"\0\0\0\0\0\0\x01\x02"
        master.close()
        with pytest.raises(MasterUnusable, match="closed"):
            reader.read(1)
        with pytest.raises(MasterUnusable, match="failed"):
            send_report(ours, 1)
            send_report(ours, 1)


def test_a_descriptor_beyond_1024_can_be_read() -> None:
    """As in a process with many files open, where select(2) gives up.
    Fault: A slave could not read from its master in a process with more than 1024 open files."""
    ours, master = socket.socketpair()
    with ours, master, socket.socket(fileno=fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 1100)) as high:
        master.sendall(b"bytes")
        assert ByteReader(high, 5.0, lambda: None).read(5) == b"bytes"


def test_a_short_read_is_not_put_off_by_each_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that sends a byte from time to time does not hold a slave in the handshake."""
    now_s = [0.0]
    monkeypatch.setattr(stream_module.time, "monotonic", lambda: now_s[0])
    ours, master = socket.socketpair()
    with ours, master:

        def drip() -> None:
            master.sendall(b"x")
            now_s[0] += 2.0

        reader = ByteReader(ours, 5.0, drip)
        with pytest.raises(MasterUnusable, match="did not come in time"):
            reader.read(10, is_short=True)
        assert now_s[0] <= 8.0
        assert reader.read(10) == b"x" * 10
