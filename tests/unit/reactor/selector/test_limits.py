"""csrc/workers/selector/selector_connection.c: what all connections of a selector may cost together."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.selector_clients import ending, greet
from tests.support.selector_rig import SelectorRig, body_of, frame, lib

MIB = 1024 * 1024
RigMaker = Callable[..., SelectorRig]


def unfinished(size: int, claims: int = 16 * MIB) -> bytes:
    """The first `size` bytes of a frame of `claims` bytes."""
    return struct.pack(">II", claims - 4, 2)[:size].ljust(size, b"\0")


def test_unfinished_frames_are_bounded_together(make_rig: RigMaker) -> None:
    """Thousands of connections that claim 16 MiB each, and send some: the one goes whose frame began first.
    Fault: Half-sent frames of many connections could take all memory."""
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
    """Many connections that ask and do not read.
    Fault: Unfetched answers were bounded per connection only: 100 connections took 670 MiB."""
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
    """Fault: A client that did not read its answers kept deleted CommitLog files on the disk."""
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
