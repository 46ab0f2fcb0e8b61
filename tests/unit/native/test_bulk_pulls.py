"""Bulk pulls in C: clients that read a topic's history get larger answers, within bounds of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the pull worker is C")

from rocketpy.reactor.topology import RING_BYTES_MIN
from rocketpy.remoting.headers.pull import PullSysFlag
from tests.support.fast_path import FastPath
from tests.support.fast_path_requests import pull, ready, records_of, send_v2
from tests.unit.native.test_read_path import RECORD

PLAIN = int(PullSysFlag.SUBSCRIPTION)
BULK = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.BULK)
LIMITS = {"count_in_memory": 4, "bytes_in_memory": 4_000, "count_on_disk": 2, "bytes_on_disk": 1_000}
BULK_LIMITS = {"bulk_count": 16, "bulk_bytes": 8_000}
STORED = 40
CQ_FILE_SIZE = 20 * 1_500  # an answer ends with a file of the queue

Stored = Callable[..., FastPath]


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    """A queue of `STORED` messages, and limits; `size` is that of a body."""
    rigs: list[FastPath] = []

    def store(size: int = 0, *, ring_bytes: int = 1 << 18, **limits: int) -> FastPath:
        rig = ready(FastPath(tmp_path, LIMITS | limits, cq_file_size=CQ_FILE_SIZE, ring_bytes=ring_bytes))
        rigs.append(rig)
        for _ in range(STORED):
            rig.frame(send_v2(body=b"x" * size))
            rig.turn()
        assert {reply.code for _, reply in rig.answers()} == {0}
        return rig

    yield store
    for rig in rigs:
        rig.close()


def count_of(rig: FastPath, flags: int, maximum: int = 1024, queue: int = 0) -> int:
    rig.frame(pull(0, queue, flags=flags, maximum=maximum))
    rig.turn()
    [(_, reply)] = rig.answers()
    offsets = [record.queue_offset for record in records_of(reply)]
    assert offsets == list(range(len(offsets)))
    return len(offsets)


def test_a_bulk_pull_gets_more_messages(stored: Stored) -> None:
    rig = stored(**BULK_LIMITS)
    assert (count_of(rig, PLAIN), count_of(rig, BULK), count_of(rig, PLAIN)) == (4, 16, 4)
    assert count_of(rig, BULK, maximum=7) == 7


def test_bytes_bound_a_bulk_pull(stored: Stored) -> None:
    rig = stored(1_000 - RECORD, **BULK_LIMITS)
    assert (count_of(rig, PLAIN), count_of(rig, BULK)) == (4, 8)


def test_behind_the_memory_a_bulk_pull_has_a_quarter_of_the_bytes(stored: Stored) -> None:
    rig = stored(500 - RECORD, memory_bytes=0, **BULK_LIMITS)
    assert (count_of(rig, PLAIN), count_of(rig, BULK)) == (2, 4)


@pytest.mark.parametrize(("memory_bytes", "queue", "count"), [(0, 0, 40), (0, 1, 16), (1 << 40, 1, 40)])
def test_behind_the_memory_a_bulk_pull_reads_few_places_of_the_log(
    stored: Stored, memory_bytes: int, queue: int, count: int
) -> None:
    """The records of queue 0 are adjacent, so they are one place; those of queue 1 lie apart."""
    rig = stored(memory_bytes=memory_bytes, bulk_count=1024, bulk_bytes=1 << 20)
    for number in range(2 * STORED):
        rig.frame(send_v2(queue=1 + number % 2))
        rig.turn()
    assert {reply.code for _, reply in rig.answers()} == {0}
    assert count_of(rig, BULK, queue=queue) == count


def test_an_answer_of_most_places_fits_the_smallest_ring(stored: Stored) -> None:
    """A message of a ring takes a quarter of it at most, so a larger answer would wait for ever."""
    rig = stored(ring_bytes=RING_BYTES_MIN, bulk_count=1024, bulk_bytes=1 << 22)
    for number in range(2_000):
        rig.frame(send_v2(queue=1 + number % 2))
        rig.turn()
        if number % 100 == 99:
            assert {reply.code for _, reply in rig.answers()} == {0}
    assert count_of(rig, BULK, queue=1) == 960


@pytest.mark.parametrize("bulk", [{"bulk_count": 0, "bulk_bytes": 8_000}, {"bulk_count": 1, "bulk_bytes": 1}])
def test_a_bulk_pull_never_gets_less_than_others(stored: Stored, bulk: dict[str, int]) -> None:
    rig = stored(**bulk)
    assert count_of(rig, BULK) == count_of(rig, PLAIN) == 4
