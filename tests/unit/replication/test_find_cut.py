"""How far a slave's log and its master's are the same, against a real master."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.native.core import lib
from rocketpy.replication import truncation
from rocketpy.replication.errors import Diverged, MasterUnusable
from rocketpy.replication.handshake_messages import Extent
from rocketpy.replication.stream import ByteReader
from rocketpy.replication.truncation import find_cut, last_record_end, same_until
from tests.support.cases import cases
from tests.support.log_images import image_of, record
from tests.support.master_rig import FILE_SIZE, MasterRig
from tests.support.own_frames import FENCED, HEARTBEAT, data_frame, fenced, frame, heartbeat

Open = Callable[..., MasterRig]
ReadLog = Callable[[int, int], bytes]


def history(number: int, counts: tuple[int, ...] = (90, 90, 30)) -> tuple[bytes, list[int]]:
    """A log of several files, and where its records begin; the bodies tell histories apart."""
    log, places = b"", []
    for place, count in enumerate(counts):
        is_last = place == len(counts) - 1
        records = [record(body=bytes([number, place, i]) * 150) for i in range(count)]
        image = image_of(records, len(log), file_size=None if is_last else FILE_SIZE)
        places += [len(log) + at for at in image.records]
        log += image.data
    return log, places


LOG, RECORDS = history(1)
OTHER = history(2)[0]


def reader_of(log: bytes) -> ReadLog:
    def read(at: int, size: int) -> bytes:
        assert at // FILE_SIZE == (at + size - 1) // FILE_SIZE
        return log[at : at + size]

    return read


class Finding:
    """find_cut in a thread, while the master takes turns."""

    def __init__(self, rig: MasterRig, master: bytes, own: bytes, *, begin: int = 0, master_begin: int = 0) -> None:
        self.rig, self._own, self._begin = rig, own, begin
        for start in range(0, len(master), FILE_SIZE):
            (rig.directory / f"{start:020d}").write_bytes(master[start : start + FILE_SIZE].ljust(FILE_SIZE, b"\0"))
        rig.control.header.published_phy_offset = len(master)
        rig.control.header.min_phy_offset = master_begin
        self._master = Extent(master_begin, len(master))
        self.found: int | Exception = -1

    def _run(self) -> None:
        with socket.create_connection(self.rig.listener.getsockname()) as connection:
            reader = ByteReader(connection, 60.0, lambda: None)
            own = Extent(self._begin, len(self._own))
            try:
                self.found = find_cut(connection, reader, self.rig.group, 1, own, self._master, reader_of(self._own))
            except Exception as exc:
                self.found = exc

    def run(self) -> Any:
        thread = threading.Thread(target=self._run)
        thread.start()
        self.rig.turn_until(lambda: not thread.is_alive())
        if isinstance(self.found, Exception):
            raise self.found
        assert not self.rig.replicated, "nothing is acknowledged"
        return self.found


@pytest.mark.parametrize("at", [1, 40, 89, 90, 120, 209])
def test_the_last_record_that_both_have(rig: MasterRig, at: int) -> None:
    """The master has lost its end, and has gone on."""
    part = RECORDS[at]
    assert Finding(rig, LOG[:part] + OTHER[part:], LOG).run() == part


@pytest.mark.parametrize("at", [1, 90, 209])
def test_a_master_that_has_lost_its_end_and_nothing_else(rig: MasterRig, at: int) -> None:
    assert Finding(rig, LOG[: RECORDS[at]], LOG).run() == RECORDS[at]


def test_a_damaged_byte_is_cut_with_its_record(rig: MasterRig) -> None:
    at = RECORDS[100] + 60
    damaged = LOG[:at] + bytes([LOG[at] ^ 1]) + LOG[at + 1 :]
    assert Finding(rig, LOG, damaged).run() == RECORDS[100]


def test_logs_that_begin_late(rig: MasterRig) -> None:
    part = RECORDS[200]
    found = Finding(rig, LOG[:part] + OTHER[part:], LOG, begin=FILE_SIZE, master_begin=FILE_SIZE).run()
    assert found == part


def test_a_history_of_its_own_is_not_cut_to_nothing(rig: MasterRig) -> None:
    with pytest.raises(Diverged, match="no record in common"):
        Finding(rig, OTHER, LOG).run()


def test_no_more_is_cut_than_the_bound(rig: MasterRig, monkeypatch: pytest.MonkeyPatch) -> None:
    part = RECORDS[100]
    monkeypatch.setattr(truncation, "CUT_BYTES_MAX", len(LOG) - part)
    assert Finding(rig, LOG[:part] + OTHER[part:], LOG).run() == part


def test_beyond_the_bound_it_is_people_who_decide(rig: MasterRig, monkeypatch: pytest.MonkeyPatch) -> None:
    part = RECORDS[100]
    monkeypatch.setattr(truncation, "CUT_BYTES_MAX", len(LOG) - part - 1)
    with pytest.raises(Diverged, match="haTruncateDiverged cuts at most"):
        Finding(rig, LOG[:part] + OTHER[part:], LOG).run()


def test_a_master_that_has_lost_more_than_the_bound(rig: MasterRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "CUT_BYTES_MAX", 1000)
    with pytest.raises(Diverged, match="the part that both could have"):
        Finding(rig, LOG[: RECORDS[1]], LOG).run()


def test_logs_that_differ_before_all_that_may_be_cut(rig: MasterRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "CUT_BYTES_MAX", 1000)
    with pytest.raises(Diverged, match="both logs differ before"):
        Finding(rig, OTHER, LOG).run()


def test_logs_that_do_not_differ_any_more(rig: MasterRig) -> None:
    with pytest.raises(MasterUnusable, match="goes on"):
        Finding(rig, LOG, LOG[: RECORDS[100]]).run()


# --- the frames, and the records ------------------------------------------------------------------------------------


def compare(stream: bytes, own: bytes = LOG, end: int = 2000) -> int:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = threading.Thread(target=write, args=(theirs, stream))
        writer.start()
        try:
            return same_until(ByteReader(ours, 60.0, lambda: None), Extent(100, end), reader_of(own))
        finally:
            ours.close()
            writer.join()


def write(connection: socket.socket, stream: bytes) -> None:
    """Send it all, unless the reader has closed the connection; then end."""
    with contextlib.suppress(OSError):
        connection.sendall(stream)
        connection.shutdown(socket.SHUT_WR)


def test_frames_of_any_size_and_heartbeats_between() -> None:
    stream = heartbeat(0) + data_frame(100, LOG[100:101]) + heartbeat(0) + data_frame(101, LOG[101:5000])
    assert compare(stream) == 2000
    changed = LOG[:1999] + b"\xff" + LOG[2000:]
    assert compare(stream, changed) == 1999 and compare(data_frame(100, LOG[100:300]), changed, end=300) == 300
    largest = (LOG[100:] + bytes(lib.RP_HA_DATA_MAX))[: lib.RP_HA_DATA_MAX]
    assert compare(data_frame(100, largest)) == 2000
    assert compare(heartbeat(0) * truncation.BEATS_MAX + data_frame(100, LOG[100:2000])) == 2000


WHOLE = data_frame(100, LOG[100:2000])
CLOSED, NOT_THE_LOG, DAMAGED = "closed", "it sent frame", "or damaged bytes"


@cases(
    "stream, complaint",
    [
        (b"", CLOSED),
        (b"\xff" * 40 + WHOLE, NOT_THE_LOG),
        (bytes(40) + WHOLE, NOT_THE_LOG),
        (data_frame(101, LOG[101:300]) + WHOLE, DAMAGED),
        (data_frame(99, LOG[99:300]) + WHOLE, DAMAGED),
        (data_frame(100, LOG[100:300], crc=0), DAMAGED),
        (data_frame(100, b"") + WHOLE, NOT_THE_LOG),
        (data_frame(100, bytes(lib.RP_HA_DATA_MAX + 1)), NOT_THE_LOG),
        (data_frame(100, LOG[100:300])[:-1], CLOSED),
        (fenced(7) + WHOLE, NOT_THE_LOG),
        (frame(HEARTBEAT, bytes(27)) + WHOLE, NOT_THE_LOG),
        (frame(FENCED, bytes(28)) + WHOLE, NOT_THE_LOG),
        (frame(FENCED, WHOLE[5:]), NOT_THE_LOG),
        (heartbeat(0) * (truncation.BEATS_MAX + 1) + WHOLE, NOT_THE_LOG),
    ],
)
def test_what_is_not_the_log_decides_nothing(stream: bytes, complaint: str) -> None:
    with pytest.raises(MasterUnusable, match=complaint):
        compare(stream)


def test_a_slave_that_cannot_read_its_own_log() -> None:
    with pytest.raises(MasterUnusable, match="its own log from 100"):
        compare(data_frame(100, LOG[100:300]), own=b"")


@pytest.mark.parametrize("step", [40, 1000, truncation.STEP])
def test_every_position_lies_behind_the_end_of_a_record(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(truncation, "STEP", step)
    ends = {0, FILE_SIZE, 2 * FILE_SIZE} | {at + int.from_bytes(LOG[at : at + 4]) for at in RECORDS}
    for position in {at + by for at in ends for by in (-1, 0, 1, 3, 4, 5)} - {-1}:
        if position <= len(LOG):
            assert last_record_end(reader_of(LOG), FILE_SIZE, position) == max(at for at in ends if at <= position)
