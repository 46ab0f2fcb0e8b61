"""Deliveries of delayed messages: each is stored once, however often it is put and wherever somebody dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="shared memory is C")

from rocketpy.broker.fast_path.shared_memory import DeliveryMarks
from rocketpy.message.record import decode_records
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import decode_put_result, encode_put
from rocketpy.remoting.fast_path import Delivery, MessageToPut, PutResult
from tests.support.fast_path import TURN_NS, FastPath

LEVELS = 3


class Log:
    """A published position that the test moves."""

    published = 0


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def delivered(log: Log) -> DeliveryMarks:
    return DeliveryMarks(LEVELS, lambda: log.published)


def c(delivery: Delivery) -> Any:
    return ffi.new("rp_delivery *", [delivery.phy_offset, delivery.queue_offset, delivery.level, 0])


def mark(delivered: DeliveryMarks, delivery: Delivery, end: int) -> None:
    lib.rp_delivery_marks_mark(delivered.pointer, c(delivery), end)


def has(delivered: DeliveryMarks, delivery: Delivery) -> bool:
    return bool(lib.rp_delivery_marks_has(delivered.pointer, c(delivery)))


FIRST, SECOND = Delivery(1, 0, 0), Delivery(1, 100, 1)


def test_nothing_is_delivered_at_first(delivered: DeliveryMarks) -> None:
    assert delivered.last(1) is None and not has(delivered, FIRST)


def test_a_delivery_counts_when_its_record_is_published(delivered: DeliveryMarks, log: Log) -> None:
    mark(delivered, FIRST, 1000)
    assert delivered.last(1) is None
    log.published = 1000
    assert delivered.last(1) == FIRST and delivered.last(2) is None
    mark(delivered, SECOND, 2000)
    assert delivered.last(1) == FIRST
    log.published = 2000
    assert delivered.last(1) == SECOND
    assert has(delivered, FIRST) and has(delivered, SECOND)
    assert not has(delivered, Delivery(1, 101, 2)) and not has(delivered, Delivery(2, 0, 0))


def test_a_mark_without_a_record_is_taken_back_by_the_next_process(delivered: DeliveryMarks, log: Log) -> None:
    mark(delivered, FIRST, 1000)
    mark(delivered, SECOND, 2000)
    lib.rp_delivery_marks_open(delivered.pointer, 1999, 0)
    log.published = 5000  # of other records
    assert delivered.last(1) == FIRST and not has(delivered, SECOND)
    lib.rp_delivery_marks_open(delivered.pointer, 5000, 0)
    assert delivered.last(1) == FIRST


def test_a_mark_with_its_record_stays(delivered: DeliveryMarks, log: Log) -> None:
    mark(delivered, FIRST, 1000)
    log.published = 1000
    lib.rp_delivery_marks_open(delivered.pointer, 1000, 0)
    assert delivered.last(1) == FIRST and has(delivered, FIRST)


@pytest.mark.parametrize("level", [0, LEVELS + 1, (1 << 32) - 1])
def test_a_level_that_there_is_not_is_never_delivered(delivered: DeliveryMarks, log: Log, level: int) -> None:
    delivery = Delivery(level, 0, 0)
    mark(delivered, delivery, 10)
    log.published = 10
    assert not has(delivered, delivery) and delivered.last(level) is None


# --- in the send worker ----------------------------------------------------------------------------------------------


@pytest.fixture
def rig(tmp_path: Path, delivered: DeliveryMarks, log: Log) -> Iterator[FastPath]:
    rig = FastPath(tmp_path, marks=delivered.pointer)
    rig.add_topic("T")
    rig.tables_end()
    yield rig
    rig.close()


def deliver(rig: FastPath, delivery: Delivery, body: bytes, *, topic: str = "T") -> PutResult:
    rig.put(encode_put(MessageToPut(topic, 0, body, b"", wait_store=False, delivery=delivery), 7, 0))
    rig.turn()
    (record,) = [record for kind, record in rig.for_manager() if kind == lib.RP_MSG_PUT_RESULT]
    token, result = decode_put_result(record, ("127.0.0.1", 10911))
    assert token == 7
    return result


def bodies(rig: FastPath) -> list[bytes]:
    end = lib.rp_control_header(rig.block).published_phy_offset
    return [bytes(record.body) for record in decode_records(rig.log(0, end), check_crc=True)] if end else []


def test_a_delivery_that_is_put_again_is_answered_and_not_stored(rig: FastPath) -> None:
    assert deliver(rig, FIRST, b"first").is_stored
    assert deliver(rig, FIRST, b"first").is_stored
    assert deliver(rig, SECOND, b"second").is_stored
    assert deliver(rig, FIRST, b"first").is_stored
    assert deliver(rig, Delivery(2, 50, 0), b"other level").is_stored
    assert bodies(rig) == [b"first", b"second", b"other level"]


def test_a_delivery_that_was_refused_may_be_put_again(rig: FastPath) -> None:
    assert deliver(rig, FIRST, b"first", topic="gone").code == 17
    assert deliver(rig, FIRST, b"dead letter").is_stored
    assert deliver(rig, FIRST, b"first").is_stored  # wherever it is put now
    assert bodies(rig) == [b"dead letter"]


def test_a_restarted_send_worker_knows_what_was_stored(rig: FastPath, delivered: DeliveryMarks, log: Log) -> None:
    deliver(rig, FIRST, b"first")
    lib.rp_send_close(rig.send)
    rig.workers["send"].epoch += 1
    rig.send = rig.open_send()
    rig.add_topic("T")
    rig.tell_tables_end()
    assert deliver(rig, FIRST, b"first").is_stored
    assert bodies(rig) == [b"first"]
    log.published = lib.rp_control_header(rig.block).published_phy_offset
    assert delivered.last(1) == FIRST


def test_a_delivery_that_became_due_while_a_pass_was_running_is_not_stored_as_earlier(
    tmp_path: Path, delivered: DeliveryMarks
) -> None:
    """The manager finds it due by a clock that is read later than the one of the pass that stores it.
    Fault: A delayed message that became due during a pass was stored a millisecond early."""
    due_ms = 1_700_000_000_000
    due = MessageToPut("T", 0, b"due", b"", wait_store=False, delivery=FIRST)
    readings: list[int] = []

    @ffi.callback("int64_t(void)")  # type: ignore[untyped-decorator]
    def wall_ms() -> int:
        readings.append(due_ms - 1 if len(readings) < begun else due_ms)
        if len(readings) == begun:  # the pass has read its clock; now the manager reads its own
            rig.put(encode_put(due, 7, 0))
        return readings[-1]

    begun = 1 << 30
    boot_ms = ffi.callback("int64_t(void)", lambda: 1000)
    rig = FastPath(tmp_path, wall_ms=wall_ms, boot_ms=boot_ms, marks=delivered.pointer)
    rig.add_topic("T")
    rig.tables_end()
    begun = len(readings) + 1
    lib.rp_send_run(rig.send, TURN_NS)
    end = lib.rp_control_header(rig.block).published_phy_offset
    assert [record.store_timestamp_ms for record in decode_records(rig.log(0, end))] == [due_ms]
    rig.close()
