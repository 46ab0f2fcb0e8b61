"""csrc/ipc/ring.c through cffi: what goes in comes out, in order, once, whatever the sizes and whoever dies."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import LocalProtocolError
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.outbox import Outbox
from rocketpy.reactor.ring import MESSAGE_MAX, Ring, RingReader, RingWriter, WorkerBlock
from tests.support.shared_memory import PAGE, remove_ring, remove_worker, worker_block
from tests.support.waiting import is_readable

CAPACITY = 65536
KEPT_SIZE = 32_768  # as in ring.c
SMALL_MAX = CAPACITY // 4


@attrs.define
class Pair:
    """One ring with both of its ends in this process."""

    producer: object
    consumer: object
    ring: object
    writer: object
    reader: object

    def write(self, payload: bytes, kind: int = 1) -> int:
        source = ffi.from_buffer(payload)
        span = ffi.new("rp_span[1]", [{"data": source, "size": len(payload)}])
        return lib.rp_ring_write(self.writer, kind, span, 1)

    def peek(self) -> tuple[int, bytes]:
        data, size, kind = ffi.new("uint8_t **"), ffi.new("uint32_t *"), ffi.new("uint16_t *")
        assert lib.rp_ring_read(self.reader, data, size, kind) == lib.RP_OK
        assert int(ffi.cast("uintptr_t", data[0])) % 8 == 0
        return kind[0], bytes(ffi.buffer(data[0], size[0]))

    def read(self) -> tuple[int, bytes] | None:
        data, size, kind = ffi.new("uint8_t **"), ffi.new("uint32_t *"), ffi.new("uint16_t *")
        status = lib.rp_ring_read(self.reader, data, size, kind)
        if status == lib.RP_EMPTY:
            return None
        assert status == lib.RP_OK
        record = kind[0], bytes(ffi.buffer(data[0], size[0]))
        lib.rp_ring_release(self.reader)
        return record

    def doorbell_rung(self, worker: object) -> bool:
        return is_readable(worker.doorbell, 0)


def test_a_worker_that_is_started_again_is_at_nothing() -> None:
    """The previous one may have died asleep, or in the middle of its work."""
    block = WorkerBlock("send", 3)
    counted = block.pointer
    counted.asleep = counted.stop = counted.ready = 1
    counted.busy_since_ns, counted.counters[5] = 77, 9
    block.begin(1000)
    assert (counted.asleep, counted.stop, counted.ready, counted.busy_since_ns) == (0, 0, 0, 0)
    assert (counted.heartbeat_ns, counted.epoch, counted.counters[5]) == (1000, 1, 9)
    os.close(block.doorbell)


def test_a_record_that_no_ring_takes_is_an_error_of_that_record() -> None:
    """Not one that waits for room, before all that come behind it.
    Fault: A message larger than a ring takes blocked all messages behind it for ever."""
    ring = Ring(CAPACITY, WorkerBlock("a", 0), WorkerBlock("b", 1))
    writer, reader = RingWriter(ring), RingReader(ring)
    with pytest.raises(LocalProtocolError, match="1073741825 bytes; a ring takes 1073741824 at most"):
        writer.write(1, bytes(MESSAGE_MAX + 1))
    out = Outbox(writer)
    while out.put(2, b"x" * 8000):
        if out.backlog_bytes:
            break
    with pytest.raises(LocalProtocolError, match="type 3"):
        out.put(3, bytes(MESSAGE_MAX + 1), always=True)  # behind what waits
    assert out.put(4, b"last")
    while not out.is_empty():
        found = reader.read()
        out.flush()
    while (more := reader.read()) is not None:
        found = more
    assert found == (4, b"last")


def made_pair(capacity: int) -> Iterator[Pair]:
    producer, consumer = worker_block(0), worker_block(1)
    ring = lib.rp_ring_create(capacity, producer, consumer)
    assert ring != ffi.NULL
    made = Pair(producer, consumer, ring, lib.rp_ring_writer_open(ring), lib.rp_ring_reader_open(ring))
    yield made
    lib.rp_ring_writer_close(made.writer)
    lib.rp_ring_reader_close(made.reader)
    remove_ring(ring)
    remove_worker(producer)
    remove_worker(consumer)


def resident_bytes(ring: object) -> int:
    """The bytes of a ring that memory holds."""
    start = f"{int(ffi.cast('uintptr_t', ring)):x}-"
    lines = Path("/proc/self/smaps").read_text().partition(f"\n{start}")[2].splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:")) * 1024


@pytest.fixture
def pair() -> Iterator[Pair]:
    yield from made_pair(CAPACITY)


@pytest.fixture
def large_pair() -> Iterator[Pair]:
    yield from made_pair(1 << 20)


@pytest.mark.parametrize("capacity", [0, 4096, 65535, 65536 + 8, 2**31])
def test_capacity_must_be_a_power_of_two_in_range(capacity: int) -> None:
    worker = worker_block(0)
    assert lib.rp_ring_create(capacity, worker, worker) == ffi.NULL
    remove_worker(worker)


def test_records_come_out_as_they_went_in(pair: Pair) -> None:
    assert pair.read() is None
    assert lib.rp_ring_is_empty(pair.reader)
    for kind, payload in ((1, b"12345678"), (2, b""), (65535, b"x"), (7, bytes(SMALL_MAX))):
        assert pair.write(payload, kind) == lib.RP_OK
        assert not lib.rp_ring_is_empty(pair.reader)
        assert pair.read() == (kind, payload)
    assert pair.read() is None
    assert lib.rp_ring_depth(pair.ring) == 0


def test_a_reserved_record_may_be_cut(pair: Pair) -> None:
    at = lib.rp_ring_reserve(pair.writer, 100)
    ffi.memmove(at, b"abcdefghijkl", 12)
    assert lib.rp_ring_tail_after(pair.writer, 12) == 24
    lib.rp_ring_commit(pair.writer, 12, 3)
    assert lib.rp_ring_tail(pair.ring) == 24
    assert pair.read() == (3, b"abcdefghijkl")


def test_reserve_without_commit_publishes_nothing(pair: Pair) -> None:
    ffi.memmove(lib.rp_ring_reserve(pair.writer, 16), b"never to be seen", 16)
    assert pair.read() is None
    pair.write(b"seen")
    assert pair.read() == (1, b"seen")


def test_reading_twice_without_release_gives_the_same_record(pair: Pair) -> None:
    pair.write(b"one")
    pair.write(b"two")
    assert pair.peek() == pair.peek() == (1, b"one")
    lib.rp_ring_release(pair.reader)
    assert pair.read() == (1, b"two")


def test_spans_are_joined(pair: Pair) -> None:
    first, second = ffi.from_buffer(b"first "), ffi.from_buffer(b"second")
    pieces = [{"data": first, "size": 6}, {"data": ffi.NULL, "size": 0}, {"data": second, "size": 6}]
    spans = ffi.new("rp_span[3]", pieces)
    assert lib.rp_ring_write(pair.writer, 9, spans, 3) == lib.RP_OK
    assert pair.read() == (9, b"first second")


def test_full_takes_nothing_and_rings_the_producer_when_half_is_free(pair: Pair) -> None:
    count = 0
    while pair.write(bytes([count % 256]) * 1000) == lib.RP_OK:
        count += 1
    assert count == CAPACITY // 1008
    assert lib.rp_ring_reserve(pair.writer, 1000) == ffi.NULL
    while lib.rp_ring_depth(pair.ring) > KEPT_SIZE:
        assert not pair.doorbell_rung(pair.producer)
        assert pair.read() is not None
    assert pair.doorbell_rung(pair.producer)  # although it has never said that it sleeps
    lib.rp_worker_end_sleep(pair.producer)
    assert not pair.doorbell_rung(pair.producer)
    assert pair.write(b"again") == lib.RP_OK
    while (record := pair.read()) is not None:
        last = record
    assert last == (1, b"again")
    assert not pair.doorbell_rung(pair.producer)


def test_a_ring_that_is_emptied_after_each_batch_uses_few_pages(large_pair: Pair) -> None:
    """Fault: A ring whose consumer keeps up comes to hold its whole capacity in memory, little by little."""
    pair, rng = large_pair, random.Random(7)
    for number in range(3000):  # 6 MB
        batch = [(kind, rng.randbytes(rng.randrange(8, 2000))) for kind in range(1, 1 + number % 5)]
        for kind, payload in batch:
            assert pair.write(payload, kind) == lib.RP_OK
        lib.rp_ring_wake(pair.writer)
        assert [pair.read() for _ in batch] == batch
    assert resident_bytes(pair.ring) < 3 * PAGE + KEPT_SIZE + 4 * 2008


def test_a_batch_behind_unread_records_does_not_begin_at_the_start(large_pair: Pair) -> None:
    """Fault: The start of the data is written again while the consumer still reads a record of the batch before."""
    pair, rng = large_pair, random.Random(8)
    waiting: list[tuple[int, bytes]] = []
    for kind in range(1, 5000):
        payload = rng.randbytes(rng.randrange(8, 4000))
        while pair.write(payload, kind) == lib.RP_FULL:
            assert pair.read() == waiting.pop(0)
        waiting.append((kind, payload))
        lib.rp_ring_wake(pair.writer)
        if rng.randrange(3):
            assert pair.read() == waiting.pop(0)
    assert [pair.read() for _ in waiting] == waiting


def test_small_records_wrap_around_in_one_piece(pair: Pair) -> None:
    draw = random.Random(20240501)
    waiting: list[tuple[int, bytes]] = []
    moved = 0
    while moved < 20 * CAPACITY:
        payload, kind = draw.randbytes(draw.choice((0, 1, 7, 8, 9, 500, 4001, SMALL_MAX))), draw.randrange(65536)
        if pair.write(payload, kind) == lib.RP_OK:
            waiting.append((kind, payload))
            moved += len(payload)
        else:
            for _ in range(draw.randrange(1, len(waiting) + 1)):
                assert pair.read() == waiting.pop(0)
    while waiting:
        assert pair.read() == waiting.pop(0)
    assert pair.read() is None


@pytest.mark.parametrize("size", [SMALL_MAX + 1, CAPACITY, CAPACITY * 5 + 3, 16 * 1024 * 1024])
def test_a_large_record_crosses_in_parts_between_its_neighbours(pair: Pair, size: int) -> None:
    payload = random.Random(size).randbytes(size)
    assert lib.rp_ring_reserve(pair.writer, size) == ffi.NULL
    assert pair.write(b"before") == lib.RP_OK
    assert pair.write(payload, 5) == lib.RP_OK
    after_taken = pair.write(b"after") == lib.RP_OK
    assert pair.read() == (1, b"before")
    while (record := pair.read()) is None:
        lib.rp_ring_pump(pair.writer)
    assert record == (5, payload)
    assert lib.rp_ring_pump(pair.writer) == lib.RP_OK
    if not after_taken:
        assert pair.write(b"after") == lib.RP_OK
    assert pair.read() == (1, b"after")


def test_the_writer_keeps_one_large_record_and_refuses_the_next(pair: Pair) -> None:
    assert pair.write(bytes(2 * CAPACITY)) == lib.RP_OK
    assert pair.write(bytes(2 * CAPACITY)) == lib.RP_FULL
    assert pair.write(b"small") == lib.RP_FULL
    assert lib.rp_ring_pump(pair.writer) == lib.RP_FULL


def test_a_finished_large_record_stays_until_released(pair: Pair) -> None:
    payload = random.Random(1).randbytes(SMALL_MAX * 2)
    pair.write(payload, 4)
    assert pair.peek() == pair.peek() == (4, payload)
    assert not lib.rp_ring_is_empty(pair.reader)
    lib.rp_ring_release(pair.reader)
    assert lib.rp_ring_is_empty(pair.reader)


def test_an_unfinished_large_record_of_a_restarted_producer_is_thrown_away(pair: Pair) -> None:
    pair.write(bytes(2 * CAPACITY))
    assert pair.read() is None  # takes the parts that are there
    lib.rp_ring_writer_close(pair.writer)  # the producer dies with the rest
    pair.writer = lib.rp_ring_writer_open(pair.ring)
    for payload in (b"whole", random.Random(2).randbytes(SMALL_MAX * 2)):
        assert pair.write(payload, 8) == lib.RP_OK
        assert pair.read() == (8, payload)


def test_parts_without_a_beginning_are_thrown_away_by_a_restarted_consumer(pair: Pair) -> None:
    pair.write(bytes(CAPACITY * 2))
    assert pair.read() is None
    lib.rp_ring_reader_close(pair.reader)
    pair.reader = lib.rp_ring_reader_open(pair.ring)
    while lib.rp_ring_pump(pair.writer) == lib.RP_FULL:
        assert pair.read() is None
    assert pair.write(b"next") == lib.RP_OK
    assert pair.read() == (1, b"next")


def test_a_restarted_consumer_goes_on_at_the_first_unreleased_record(pair: Pair) -> None:
    for payload in (b"one", b"two", b"three"):
        pair.write(payload)
    assert pair.read() == (1, b"one")
    assert pair.peek() == (1, b"two")
    done = lib.rp_ring_head_after(pair.reader)
    lib.rp_ring_reader_close(pair.reader)
    pair.reader = lib.rp_ring_reader_open(pair.ring)
    assert pair.peek() == (1, b"two")
    lib.rp_ring_skip_to(pair.reader, done)
    assert pair.peek() == (1, b"three")
    lib.rp_ring_skip_to(pair.reader, 0)  # a note older than the head changes nothing
    lib.rp_ring_skip_to(pair.reader, 10**6)  # nor does one from beyond the tail
    assert pair.read() == (1, b"three")


def test_the_consumer_is_rung_only_when_asleep_and_once_per_batch(pair: Pair) -> None:
    pair.write(b"awake")
    lib.rp_ring_wake(pair.writer)
    assert not pair.doorbell_rung(pair.consumer)
    lib.rp_worker_prepare_sleep(pair.consumer)
    pair.write(b"asleep")
    assert not pair.doorbell_rung(pair.consumer)
    lib.rp_ring_wake(pair.writer)
    assert pair.doorbell_rung(pair.consumer)
    assert pair.consumer.asleep == 0
    lib.rp_worker_sleep(pair.consumer, -1)  # returns at once
    lib.rp_worker_prepare_sleep(pair.consumer)
    lib.rp_ring_wake(pair.writer)  # nothing new
    assert not pair.doorbell_rung(pair.consumer)
    lib.rp_worker_sleep(pair.consumer, 0)
    assert pair.consumer.asleep == 0


def test_an_unhurried_message_rings_a_consumer_that_sleeps_but_none_that_naps(pair: Pair) -> None:
    """A consumer that naps looks again within milliseconds; a hurried message wakes it at once."""
    unhurried = 5 | lib.RP_RING_UNHURRIED

    def is_rung(*kinds: int, asleep: int) -> bool:
        lib.rp_worker_end_sleep(pair.consumer)
        lib.rp_worker_prepare_sleep(pair.consumer)
        pair.consumer.asleep = asleep
        for kind in kinds:
            pair.write(b"12345678", kind)
        lib.rp_ring_wake(pair.writer)
        return pair.doorbell_rung(pair.consumer)

    assert not is_rung(unhurried, asleep=lib.RP_NAPPING)
    assert pair.consumer.asleep == lib.RP_NAPPING
    assert is_rung(unhurried, asleep=lib.RP_ASLEEP)
    assert is_rung(5, asleep=lib.RP_NAPPING)
    assert is_rung(5, unhurried, asleep=lib.RP_NAPPING)  # in one batch
    assert not is_rung(unhurried, unhurried, asleep=lib.RP_NAPPING)  # the hurried one of the last batch is forgotten
    assert is_rung(1, asleep=lib.RP_NAPPING)
    assert [pair.read() for _ in range(8)] == [
        (kind, b"12345678") for kind in (unhurried, unhurried, 5, 5, unhurried, unhurried, unhurried, 1)
    ]


def test_a_ring_that_is_half_full_rings_a_consumer_that_naps(pair: Pair) -> None:
    unhurried, capacity = 5 | lib.RP_RING_UNHURRIED, lib.rp_ring_capacity(pair.ring)
    lib.rp_worker_prepare_sleep(pair.consumer)
    pair.consumer.asleep = lib.RP_NAPPING
    written = 0
    while not pair.doorbell_rung(pair.consumer):
        pair.write(bytes(1000), unhurried)
        lib.rp_ring_wake(pair.writer)
        written += 1
    assert capacity // 2 < written * 1024 < capacity // 2 + 2048


def test_force_rings_a_worker_that_is_awake(pair: Pair) -> None:
    lib.rp_worker_wake(pair.consumer, 0)
    assert not pair.doorbell_rung(pair.consumer)
    lib.rp_worker_wake(pair.consumer, 1)
    assert pair.doorbell_rung(pair.consumer)
    lib.rp_worker_end_sleep(pair.consumer)
    assert not pair.doorbell_rung(pair.consumer)


def test_a_new_writer_rings_for_what_the_previous_one_published(pair: Pair) -> None:
    lib.rp_worker_prepare_sleep(pair.consumer)
    pair.write(b"published, then killed")
    lib.rp_ring_writer_close(pair.writer)
    pair.writer = lib.rp_ring_writer_open(pair.ring)
    lib.rp_ring_wake(pair.writer)
    assert pair.doorbell_rung(pair.consumer)


def test_a_producer_killed_in_the_middle_of_a_write_leaves_nothing(pair: Pair) -> None:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        pair.write(b"complete")
        ffi.memmove(lib.rp_ring_reserve(pair.writer, 8000), b"torn" * 2000, 8000)
        os.write(tell, b"x")
        signal.pause()
        os._exit(1)
    assert os.read(told, 1) == b"x"
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    os.close(told)
    os.close(tell)
    assert pair.read() == (1, b"complete")
    assert pair.read() is None
    lib.rp_ring_writer_close(pair.writer)
    pair.writer = lib.rp_ring_writer_open(pair.ring)
    pair.write(b"from the restarted worker")
    assert pair.read() == (1, b"from the restarted worker")
    assert pair.read() is None


def test_records_cross_between_processes_in_both_large_and_small_sizes(pair: Pair) -> None:
    """A forked producer sends a seeded sequence; both sides sleep on their doorbells whenever they cannot go on."""
    sizes = [random.Random(n).choice((8, 100, 5000, SMALL_MAX, SMALL_MAX + 1, 200_000)) for n in range(300)]
    child = os.fork()
    if child == 0:
        for number, size in enumerate(sizes):
            while pair.write(bytes([number % 256]) * size, number) != lib.RP_OK:
                lib.rp_ring_wake(pair.writer)
                lib.rp_worker_sleep(pair.producer, -1)
            lib.rp_ring_wake(pair.writer)
        while lib.rp_ring_pump(pair.writer) != lib.RP_OK:
            lib.rp_ring_wake(pair.writer)
            lib.rp_worker_sleep(pair.producer, -1)
        lib.rp_ring_wake(pair.writer)
        os._exit(0)
    for number, size in enumerate(sizes):
        while (record := pair.read()) is None:
            lib.rp_worker_prepare_sleep(pair.consumer)
            if lib.rp_ring_is_empty(pair.reader):
                lib.rp_worker_sleep(pair.consumer, -1)
            else:
                lib.rp_worker_end_sleep(pair.consumer)
        assert record == (number, bytes([number % 256]) * size)
    assert os.waitpid(child, 0)[1] == 0
