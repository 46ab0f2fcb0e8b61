"""Where a slave's stream begins, and the comparison of the ends of both logs."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="a part of the broker, which needs the compiled core")

from rocketpy.replication.errors import CannotFollow, MasterUnusable
from rocketpy.replication.handshake_rules import TAIL_MAX
from rocketpy.replication.master_log import MasterLog
from rocketpy.replication.reference_start import HEADER, Start, compare_end, start_of
from tests.support.cases import cases

SIZE = 1_000_000


@cases(
    "master, begin, end, start",
    [
        ((0, 0), 0, 0, Start(0, 0)),
        ((0, SIZE - 1), 0, 0, Start(0, 0)),  # its first file is its last one
        ((0, SIZE), 0, 0, Start(1, 1, adds_zero=True)),
        ((3 * SIZE, 9 * SIZE), 0, 0, Start(3 * SIZE, 3 * SIZE)),
        ((0, 9 * SIZE), 5 * SIZE, 5 * SIZE, Start(5 * SIZE, 5 * SIZE)),  # its files were deleted
        ((5 * SIZE, 5 * SIZE), 5 * SIZE, 5 * SIZE, Start(5 * SIZE, 5 * SIZE)),
        ((6 * SIZE, 9 * SIZE), 5 * SIZE, 5 * SIZE, Start(6 * SIZE, 6 * SIZE)),
        ((0, 5000), 0, 5000, Start(1, 5000)),
        ((0, 9 * SIZE), 0, 5 * SIZE, Start(5 * SIZE - TAIL_MAX, 5 * SIZE)),
        ((4 * SIZE, 9 * SIZE), 0, 4 * SIZE + 10, Start(4 * SIZE, 4 * SIZE + 10)),
        ((0, 9 * SIZE), 5 * SIZE, 5 * SIZE + 10, Start(5 * SIZE, 5 * SIZE + 10)),
    ],
)
def test_where_it_begins(master: tuple[int, int], begin: int, end: int, start: Start) -> None:
    assert start_of(MasterLog(SIZE, *master), begin, end, SIZE) == start


@pytest.mark.parametrize(
    ("master", "end", "reason"),
    [
        (MasterLog(SIZE * 2, 0, 50), 0, "mappedFileSizeCommitLog is 1000000 on this slave and 2000000 on its master"),
        (MasterLog(SIZE, 0, 50), 51, "ends at 51, that of its master at 50"),
        (MasterLog(SIZE, 2 * SIZE, 3 * SIZE), 99, "ends at 99, that of its master begins at 2000000"),
        (MasterLog(SIZE, 2 * SIZE, 3 * SIZE), 2 * SIZE, "ends at 2000000, that of its master begins at 2000000"),
    ],
)
def test_logs_that_do_not_fit(master: MasterLog, end: int, reason: str) -> None:
    with pytest.raises(CannotFollow, match=reason):
        start_of(master, 0, end, SIZE)


def test_an_empty_log_that_begins_beyond_its_masters_end() -> None:
    """The master has lost its end. Positions that consumers were told mean other messages there.
    Fault: A slave whose empty log began above 0 was not compared with its master's end."""
    with pytest.raises(CannotFollow, match="ends at 5000000, that of its master at 4000000"):
        start_of(MasterLog(SIZE, 0, 4 * SIZE), 5 * SIZE, 5 * SIZE, SIZE)


OWN = bytes(range(256)) * 4


def compare(stream: bytes, report: int = 100, end: int = 1000) -> int:
    return compare_end(Start(report, end), io.BytesIO(stream).read, lambda at, size: OWN[at : at + size])


def frame(position: int, data: bytes) -> bytes:
    return HEADER.pack(position, len(data)) + data


def test_equal_ends() -> None:
    assert compare(frame(100, OWN[100:1000])) == 0
    assert compare(frame(100, b"") + frame(100, OWN[100:700]) + frame(700, OWN[700:1010])) == 10


def test_heartbeats_do_not_go_on_for_ever() -> None:
    with pytest.raises(MasterUnusable, match="11 heartbeats, and not its log from position 100 on"):
        compare(frame(100, b"") * 11 + frame(100, OWN[100:1000]))


@pytest.mark.parametrize("at", [100, 699, 700, 999])
def test_the_first_byte_that_differs_is_named(at: int) -> None:
    theirs = bytearray(OWN)
    theirs[at] ^= 1
    with pytest.raises(CannotFollow, match=f"differs from its master's at {at} "):
        compare(frame(100, bytes(theirs[100:700])) + frame(700, bytes(theirs[700:1000])))


@pytest.mark.parametrize("stream", [frame(101, OWN[101:1000]), HEADER.pack(100, -1)])
def test_frames_that_are_not_what_was_asked_for(stream: bytes) -> None:
    with pytest.raises(MasterUnusable):
        compare(stream)
