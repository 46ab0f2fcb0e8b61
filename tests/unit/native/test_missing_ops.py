"""A power failure that cut the log between a committed message and its op message: nothing is delivered twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.fast_path.shared_memory import SharedHalfStates
from rocketpy.message import names
from rocketpy.message.record import encode_record
from rocketpy.native.core import ffi, lib
from tests.support.fast_path import FastPath
from tests.support.half_messages import COMMIT, ROLLBACK, end, half, in_topic, send_half, stored

HALF, OPS = names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC
FILE_SIZE = 1 << 16


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FastPath]:
    """A log that cannot have a second file: op messages without end would fill the disk instead of failing a test."""
    (tmp_path / "commitlog" / f"{FILE_SIZE:020d}").mkdir(parents=True)
    rig = FastPath(tmp_path, file_size=FILE_SIZE, half_states=SharedHalfStates().pointer)
    for topic in (HALF, OPS):
        rig.add_topic(topic, 1, flags=lib.RP_TOPIC_NO_SEND)
    rig.add_topic("T", 4)
    rig.tables_end()
    yield rig
    rig.close()


def queue(rig: FastPath, topic: str, queue_id: int) -> Any:
    return lib.rp_control_find(rig.block, topic.encode(), len(topic), queue_id)


def cut(rig: FastPath, phy_offset: int) -> None:
    """End the log at `phy_offset`, as recovery does after a power failure: what is behind is dispatched again."""
    lib.rp_send_close(rig.send)
    control = lib.rp_control_header(rig.block)
    control.published_phy_offset = control.durable_phy_offset = phy_offset
    control.dispatched_phy_offset = min(control.dispatched_phy_offset, phy_offset)
    ops = queue(rig, OPS, 0)
    while ops.max_phy_offset > phy_offset:
        ops.max_offset -= 1
        ops.max_phy_offset = 0
    lib.rp_dispatch_close(rig.dispatch)


def start(rig: FastPath, progress: int = 0) -> tuple[SharedHalfStates, Any]:
    """The states as a start of the broker finds them, and workers that use them."""
    states, found = recover(rig, progress)
    rig.dispatch = rig.open_dispatch()
    rig.send_options["half_states"] = states.pointer
    rig.send = rig.open_send()
    rig.add_topic("T", 4)
    rig.tell_tables_end()
    return states, found


def recover(rig: FastPath, progress: int = 0) -> tuple[SharedHalfStates, Any]:
    states, found = SharedHalfStates(), ffi.new("rp_half_recovery *")
    directories = [os.fsencode(rig.root / name) for name in ("commitlog", "consumequeue")]
    assert lib.rp_half_recover(states.pointer, progress, rig.block, *directories, rig.cq_file_size, found) == lib.RP_OK
    return states, found


def committed_without_op(rig: FastPath, *, dispatched: bool) -> tuple[int, int]:
    """Two half messages, the second one committed; the place of the second. The log is cut before the op message."""
    send_half(rig)
    place = send_half(rig)
    assert end(rig, place, COMMIT) == (0, "")
    (op,) = in_topic(rig, OPS)
    if not dispatched:
        control, target = lib.rp_control_header(rig.block), queue(rig, "T", 2)
        control.dispatched_phy_offset = in_topic(rig, "T")[0].phy_offset
        target.max_offset = target.max_phy_offset = 0
    cut(rig, op.phy_offset)
    return place


@pytest.mark.parametrize("dispatched", [True, False])
def test_the_op_message_is_stored_again(rig: FastPath, dispatched: bool) -> None:
    """Fault: A transaction was checked again after a power failure took its op message, and could be delivered
    twice."""
    place = committed_without_op(rig, dispatched=dispatched)
    states, found = start(rig)
    assert found.ops_missing == 1
    assert states.is_open(0) and not states.is_open(1)
    rig.turn()
    (op,) = in_topic(rig, OPS)
    assert (bytes(op.body), op.queue_offset) == (b"1", 0)
    assert end(rig, place, COMMIT) == (0, "")
    assert end(rig, place, ROLLBACK) == (1, "the transaction has been committed before")
    assert len(in_topic(rig, "T")) == 1 and len(in_topic(rig, OPS)) == 1
    states, found = recover(rig)  # the next start finds it in the op queue
    assert (found.ops, found.ops_missing, states.is_open(1)) == (1, 0, False)


def test_a_send_worker_that_dies_after_the_op_message_stores_it_once(rig: FastPath) -> None:
    committed_without_op(rig, dispatched=True)
    states, _ = start(rig)
    rig.turn()
    (op,) = in_topic(rig, OPS)
    lib.rp_half_states_commit_without_op(states.pointer, 1)  # killed between publication and completion
    lib.rp_half_states_begin(states.pointer, 1, lib.RP_HALF_COMMITTED, op.phy_offset + op.size)
    lib.rp_send_close(rig.send)
    rig.send = rig.open_send()
    rig.turn()
    assert len(in_topic(rig, OPS)) == 1


def test_a_send_worker_that_dies_before_the_op_message_leaves_it_to_the_next(rig: FastPath) -> None:
    committed_without_op(rig, dispatched=True)
    states, _ = start(rig)
    lib.rp_half_states_begin(states.pointer, 1, lib.RP_HALF_COMMITTED, 1 << 40)
    lib.rp_send_close(rig.send)
    rig.send = rig.open_send()
    rig.turn()
    assert len(in_topic(rig, OPS)) == 1


def test_without_the_op_topic_it_waits(rig: FastPath) -> None:
    committed_without_op(rig, dispatched=True)
    ops = queue(rig, OPS, 0)
    ops.state = lib.RP_QUEUE_DELETED
    states, _ = start(rig)
    rig.turn()
    assert in_topic(rig, OPS) == [] and not states.is_open(1)
    ops.state = lib.RP_QUEUE_LIVE
    rig.add_topic(OPS, 1)
    rig.turn()
    assert len(in_topic(rig, OPS)) == 1


def test_a_whole_log_lacks_no_op_message(rig: FastPath) -> None:
    for _ in range(3):
        assert end(rig, send_half(rig), COMMIT) == (0, "")
    _, found = recover(rig)
    assert (found.ops, found.ops_missing, found.open) == (3, 0, 0)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"topic": "U"}, id="another topic"),
        pytest.param({"body": b"BODY"}, id="another body"),
        pytest.param({"properties": b"UNIQ_KEY\x01u2"}, id="another message id"),
        pytest.param({"sys_flag": 0}, id="not committed"),
        pytest.param({"born_timestamp_ms": 78}, id="another time"),
        pytest.param({"prepared_transaction_offset": 8}, id="no half message there"),
        pytest.param({"prepared_transaction_offset": 1 << 40}, id="beyond the log"),
    ],
)
def test_a_message_that_only_looks_committed_ends_nothing(rig: FastPath, change: dict[str, Any]) -> None:
    """Its sender chooses all of this."""
    _, phy_offset = send_half(rig, half("TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01u1"))
    forged = append(rig, change, phy_offset)
    states, found = recover(rig)
    assert (found.ops_missing, states.is_open(0)) == (0, True)
    assert [record.topic for record in stored(rig)] == [HALF, forged]


def test_the_committed_message_of_a_java_broker_ends_its_half_message(rig: FastPath) -> None:
    """It clears REAL_TOPIC and REAL_QID, and others may have been stored before it died."""
    _, phy_offset = send_half(rig, half("TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01u1"))
    append(rig, {}, phy_offset)
    append(rig, {"sys_flag": 0, "topic": "U"}, phy_offset)
    states, found = recover(rig)
    assert (found.ops_missing, states.is_open(0)) == (1, False)


def append(rig: FastPath, change: dict[str, Any], half_phy_offset: int) -> str:
    """Append a message as committed, but for `change`, to the log; it is not dispatched. Returns its topic."""
    control = lib.rp_control_header(rig.block)
    fields: dict[str, Any] = {
        "topic": "T",
        "queue_id": 2,
        "body": b"body",
        "properties": b"UNIQ_KEY\x01u1",
        "sys_flag": 8,
        "born_timestamp_ms": 77,
        "born_host": ("127.0.0.1", 1),
        "store_timestamp_ms": 1,
        "store_host": ("127.0.0.1", 1),
        "queue_offset": 0,
        "phy_offset": control.published_phy_offset,
        "prepared_transaction_offset": half_phy_offset,
    }
    image = encode_record(**fields | change)
    with open(rig.root / "commitlog" / f"{0:020d}", "r+b") as file:
        file.seek(control.published_phy_offset)
        file.write(image)
    control.published_phy_offset += len(image)
    return str((fields | change)["topic"])


@pytest.mark.parametrize("topic", ["T", "T" * len(HALF)], ids=["short", "as long as the half topic"])
def test_a_committed_message_that_names_another_topics_message_ends_nothing(rig: FastPath, topic: str) -> None:
    """A delivered delayed message names its topic as a half message does. The half queue is not dispatched yet."""
    send_half(rig, half("TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01u1"))
    control, halves = lib.rp_control_header(rig.block), queue(rig, HALF, 0)
    at = int(control.published_phy_offset)
    append(rig, {"topic": topic, "sys_flag": 0, "properties": b"UNIQ_KEY\x01u1\x02REAL_TOPIC\x01T"}, 0)
    append(rig, {}, at)
    control.dispatched_phy_offset = halves.max_offset = halves.max_phy_offset = 0
    states, found = recover(rig)
    assert (found.ops_missing, states.is_open(0)) == (0, True)


def test_a_half_message_of_an_earlier_queue_ends_none_of_this_one(rig: FastPath) -> None:
    """It has the same offset, but the queue names another place for it."""
    send_half(rig, half("TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01u2"))
    at = int(lib.rp_control_header(rig.block).published_phy_offset)
    earlier = {"topic": HALF, "queue_id": 0, "sys_flag": 0, "properties": b"UNIQ_KEY\x01u1\x02REAL_TOPIC\x01T"}
    append(rig, earlier, 0)
    append(rig, {}, at)
    states, found = recover(rig)
    assert (found.ops_missing, states.is_open(0)) == (0, True)
