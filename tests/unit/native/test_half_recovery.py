"""Which half messages are open at the start of a broker, from the queues and the log alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.fast_path.shared_memory import SharedHalfStates
from rocketpy.message import names
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import encode_put
from rocketpy.remoting.fast_path import MessageToPut
from tests.support.fast_path import FastPath

HALF, OPS = names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FastPath]:
    rig = FastPath(tmp_path)
    rig.add_topic(HALF, 1)
    rig.add_topic(OPS, 1)
    rig.add_topic("T", 1)
    rig.tables_end()
    yield rig
    rig.close()


def put(rig: FastPath, topic: str, body: bytes = b"body", properties: bytes = b"") -> None:
    rig.put(encode_put(MessageToPut(topic, 0, body, properties), 7, 0))
    lib.rp_send_run(rig.send, 0)


def text(properties: dict[str, str]) -> bytes:
    known = {"PGROUP": "P", "REAL_TOPIC": "T"} | properties
    return "\x02".join(f"{name}\x01{value}" for name, value in known.items()).encode()


def put_half(rig: FastPath, topic: str = HALF, body: bytes = b"body", **properties: str) -> None:
    put(rig, topic, body, text(properties))


def recover(rig: FastPath, base: int = 0) -> tuple[SharedHalfStates, Any]:
    states, found = SharedHalfStates(), ffi.new("rp_half_recovery *")
    status = lib.rp_half_recover(
        states.pointer,
        base,
        rig.block,
        os.fsencode(rig.root / "commitlog"),
        os.fsencode(rig.root / "consumequeue"),
        rig.cq_file_size,
        found,
    )
    assert status == lib.RP_OK
    return states, found


def open_offsets(states: SharedHalfStates, end: int) -> list[int]:
    return [offset for offset in range(end) if states.is_open(offset)]


@pytest.mark.parametrize("is_dispatched", [True, False])
def test_an_op_message_ends_its_half_message(rig: FastPath, is_dispatched: bool) -> None:
    """Holds: transaction, op messages; trap, checks read all op messages first."""
    for _ in range(4):
        put_half(rig)
    for body in (b"2", b"0", b"nonsense", b"-1", b"", b"99999999999999999999"):
        put(rig, OPS, body)
    put(rig, "T", b"1")
    if is_dispatched:
        rig.turn()
    states, found = recover(rig)
    assert open_offsets(states, 4) == [1, 3]
    assert found.ops == 2
    assert found.open == (2 if is_dispatched else 0)  # as far as they are dispatched


def test_the_stored_progress_saves_reading(rig: FastPath) -> None:
    for number in range(600):  # more than a chunk of units, and more than a file of them
        put_half(rig)
        if number % 2:
            put(rig, OPS, b"%d" % number)
    rig.turn()
    states, found = recover(rig)
    assert open_offsets(states, 600) == list(range(0, 600, 2))
    assert found.ops == 300
    states, found = recover(rig, 590)
    assert open_offsets(states, 600) == list(range(590, 600, 2))
    assert found.ops == 5


def test_the_window_begins_where_the_queue_does(rig: FastPath) -> None:
    for _ in range(3):
        put_half(rig)
    rig.turn()
    lib.rp_control_find(rig.block, HALF.encode(), len(HALF), 0).min_offset = 2
    states, found = recover(rig)
    assert states.base == 2 and found.open == 1


@pytest.mark.parametrize("is_dispatched", [True, False])
def test_a_progress_beyond_the_queue_ends_nothing_that_comes(rig: FastPath, is_dispatched: bool) -> None:
    """It is of another log: the half queue of this one does not reach it, with what is not dispatched either."""
    put_half(rig)
    if is_dispatched:
        rig.turn()
    states, found = recover(rig, 50)
    assert states.base == 0 and found.open == is_dispatched
    assert states.is_open(0) and states.is_open(1)


@pytest.mark.parametrize("progress", [601, 605, 610])
def test_a_progress_beyond_the_dispatched_queue_saves_reading(rig: FastPath, progress: int) -> None:
    """A slave takes the progress when its log has got there, and may be promoted before its dispatch has.
    Fault: A start with dispatch behind the transaction progress read all op messages before it forked a worker."""
    for number in range(610):
        if number == 600:
            rig.turn()
        put_half(rig)
        if number < 605:
            put(rig, OPS, b"%d" % number)
    states, found = recover(rig, progress)
    assert states.base == 600 and open_offsets(states, 610) == list(range(605, 610))
    assert found.ops == 5, "op messages that are not dispatched, no others"


def test_a_progress_of_half_messages_that_the_log_does_not_have_ends_nothing(rig: FastPath) -> None:
    for number in range(20):
        if number == 10:
            rig.turn()
        put_half(rig)
    states, found = recover(rig, 21)
    assert states.base == 0 and open_offsets(states, 20) == list(range(20))
    assert found.open == 10


# Java stores a half message again for each check, and in its immunity time.


def test_a_copy_whose_original_has_ended_has_ended(rig: FastPath) -> None:
    """Fault: A transaction stored again by a Java broker, and ended, was asked about once more."""
    put_half(rig, UNIQ_KEY="a")
    put_half(rig, UNIQ_KEY="b")
    put_half(rig, UNIQ_KEY="a", TRAN_PREPARED_QUEUE_OFFSET="0")
    put_half(rig, UNIQ_KEY="b", TRAN_PREPARED_QUEUE_OFFSET="1")
    put(rig, OPS, b"0")
    rig.turn()
    states, found = recover(rig, 2)  # Java has passed the originals
    assert open_offsets(states, 4) == [3]
    assert (found.open, found.copies) == (1, 1)


def test_of_two_open_copies_one_is_kept(rig: FastPath) -> None:
    put_half(rig, UNIQ_KEY="a")
    put_half(rig, UNIQ_KEY="a", TRAN_PREPARED_QUEUE_OFFSET="0")
    put_half(rig, UNIQ_KEY="b")
    put_half(rig, UNIQ_KEY="b", TRANSACTION_CHECK_TIMES="1")
    put_half(rig, UNIQ_KEY="b")  # not Java's: a producer that repeats its ids has two transactions
    rig.turn()
    states, found = recover(rig)  # Java died before it saved its progress
    assert open_offsets(states, 5) == [0, 2, 4]
    assert (found.open, found.copies) == (3, 2)


def test_a_copy_that_has_ended_ends_its_original(rig: FastPath) -> None:
    """Java stores no op message for the original when it asks about the copy."""
    put_half(rig, UNIQ_KEY="a")
    put_half(rig, UNIQ_KEY="b")
    put_half(rig, UNIQ_KEY="c")
    put_half(rig, UNIQ_KEY="a", TRANSACTION_CHECK_TIMES="1")
    put_half(rig, UNIQ_KEY="b", TRAN_PREPARED_QUEUE_OFFSET="1")
    put_half(rig, UNIQ_KEY="a", TRANSACTION_CHECK_TIMES="2")
    for body in (b"5", b"4"):
        put(rig, OPS, body)
    rig.turn()
    states, found = recover(rig)
    assert open_offsets(states, 6) == [2]
    assert (found.open, found.copies) == (1, 3)


def test_what_java_has_discarded_has_ended(rig: FastPath) -> None:
    rig.add_topic(names.TRANS_CHECK_MAX_TIME_TOPIC, 1)
    put_half(rig, UNIQ_KEY="a", TRANSACTION_CHECK_TIMES="15")
    put_half(rig, UNIQ_KEY="b")
    put_half(rig, names.TRANS_CHECK_MAX_TIME_TOPIC, UNIQ_KEY="a", TRANSACTION_CHECK_TIMES="15")
    put_half(rig, names.TRANS_CHECK_MAX_TIME_TOPIC, b"other", UNIQ_KEY="b")
    rig.turn()
    states, found = recover(rig)
    assert open_offsets(states, 2) == [1]
    assert found.open == 1


@pytest.mark.parametrize("is_ended", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"body": b"other"}, id="another body"),
        pytest.param({"PGROUP": "Q"}, id="another group"),
        pytest.param({"REAL_TOPIC": "U"}, id="another topic"),
        pytest.param({"UNIQ_KEY": "b"}, id="another message"),
    ],
)
@pytest.mark.parametrize("written", [{"TRAN_PREPARED_QUEUE_OFFSET": "0"}, {"TRANSACTION_CHECK_TIMES": "1"}])
def test_what_a_client_has_written_ends_nothing(
    rig: FastPath, written: dict[str, str], change: dict[str, Any], is_ended: bool
) -> None:
    """Two transactions, of which the second one only says that it is a copy of the first.
    Fault: A half message with another's offset in TRAN_PREPARED_QUEUE_OFFSET had ended at the next start."""
    put_half(rig, UNIQ_KEY="a")
    put_half(rig, **{"UNIQ_KEY": "a"} | written | change)
    if is_ended:
        put(rig, OPS, b"1")
    rig.turn()
    states, found = recover(rig)
    assert open_offsets(states, 2) == ([0] if is_ended else [0, 1])
    assert found.copies == 0


def test_a_store_without_half_messages(tmp_path: Path) -> None:
    rig = FastPath(tmp_path)
    states, found = recover(rig)
    assert (states.base, found.ops, found.open) == (0, 0, 0)
    rig.close()


# Consume queues lose files: by damage, or by hand.


def lose_units(rig: FastPath, topic: str, first: int, count: int) -> None:
    """Zero units in their file."""
    path = rig.root / "consumequeue" / topic / "0" / f"{first * 20 // rig.cq_file_size * rig.cq_file_size:020d}"
    with path.open("r+b") as file:
        file.seek(first * 20 % rig.cq_file_size)
        file.write(bytes(20 * count))


@pytest.mark.parametrize("progress", [0, 1, 5])
def test_op_messages_are_read_though_the_unit_of_the_first_half_message_is_lost(rig: FastPath, progress: int) -> None:
    """Fault: Ended transactions looked open after a start with an unreadable unit or op queue file."""
    for number in range(20):
        put_half(rig)
        if number % 2:
            put(rig, OPS, b"%d" % number)
    rig.turn()
    lose_units(rig, HALF, progress, 1)
    states, found = recover(rig, progress)
    assert open_offsets(states, 20) == [*range(progress + progress % 2, 20, 2)]
    assert found.ops >= (20 - progress) // 2


def test_a_lost_file_of_the_op_queue_hides_its_own_op_messages_only(rig: FastPath) -> None:
    per_file = rig.cq_file_size // 20
    for number in range(3 * per_file):
        put_half(rig)
        put(rig, OPS, b"%d" % number)
    rig.turn()
    (rig.root / "consumequeue" / OPS / "0" / f"{rig.cq_file_size:020d}").unlink()
    states, found = recover(rig)
    assert open_offsets(states, 3 * per_file) == list(range(per_file, 2 * per_file))
    assert found.ops == 2 * per_file


def test_damage_before_an_op_message_that_is_not_dispatched_does_not_hide_it(rig: FastPath) -> None:
    control = lib.rp_control_header(rig.block)
    put_half(rig)
    dispatched = control.published_phy_offset
    put(rig, "T")
    damaged_end = control.published_phy_offset
    put(rig, OPS, b"0")
    control.dispatched_phy_offset = dispatched
    ops = lib.rp_control_find(rig.block, OPS.encode(), len(OPS), 0)
    ops.max_offset = ops.max_phy_offset = 0
    with open(rig.root / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(dispatched)
        file.write(b"\xff" * (damaged_end - dispatched))
    states, found = recover(rig)
    assert found.ops == 1 and open_offsets(states, 1) == []
