"""Lines of the request log for what send and pull workers answer: they tell the manager, and never wait for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.broker.fast_path.shared_memory import DeliveryMarks, SharedHalfStates
from rocketpy.codes import ResponseCode
from rocketpy.message.batch import ENTRIES_MAX, encode_entry
from rocketpy.message.names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketpy.native.core import lib
from rocketpy.reactor.worker_messages import decode_served, encode_put
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.command import FLAG_ONEWAY
from rocketpy.remoting.fast_path import MessageToPut
from rocketpy.remoting.request_log import ServedRequest
from tests.support.fast_path import Clock, FastPath
from tests.support.fast_path_requests import pull, ready, send_v2
from tests.support.half_messages import COMMIT, ROLLBACK, end_request, send_half

MS = 1_000_000
NAME_MAX, DEPTH_MAX = 127, 1 << 13  # csrc/workers/shared/request_log.h
WAITING_BYTES_MAX, ID_SIZE = 1 << 24, 33  # csrc/workers/send/send_private.h; bytes of a message id and its comma
PEER = Peer("127.0.0.1", 40000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


Open = Callable[..., FastPath]


@pytest.fixture
def open_rig(tmp_path: Path, clock: Clock) -> Iterator[Open]:
    rigs: list[FastPath] = []

    def open_rig(every: int, **send_options: Any) -> FastPath:
        shared = {"clock_ns": clock.pointer, "request_log_sample": every}
        rigs.append(ready(FastPath(tmp_path, shared, **shared, **send_options)))
        return rigs[-1]

    yield open_rig
    for rig in rigs:
        rig.close()


def lines(rig: FastPath) -> list[ServedRequest]:
    return [decode_served(data) for kind, data in rig.for_manager() if kind == lib.RP_MSG_SERVED]


def dropped(rig: FastPath, worker: str) -> int:
    return int(rig.workers[worker].counters[lib.RP_COUNT_REQUEST_LOG_DROPPED])


def test_a_send_and_a_pull_have_a_line_each(open_rig: Open, clock: Clock) -> None:
    rig = open_rig(1)
    rig.frame(send_v2(queue=2, opaque=70), 5, received_ns=clock.now_ns)
    rig.frame(send_v2(queue=2, opaque=71), 5, received_ns=clock.now_ns - 3 * MS)
    rig.turn()
    rig.frame(pull(queue=2, offset=1, opaque=72), 6, received_ns=clock.now_ns)
    rig.turn()
    sent = {"connection": 5, "name": "SEND_MESSAGE_V2", "peer": PEER, "topic": "T", "group": "P", "queue": 2}
    pulled = {"connection": 6, "name": "PULL_MESSAGE", "peer": PEER, "topic": "T", "group": "G", "queue": 2}
    assert lines(rig) == [
        ServedRequest(**sent, opaque=70, offset=0, answer=0, duration_ms=0),
        ServedRequest(**sent, opaque=71, offset=1, answer=0, duration_ms=3),
        ServedRequest(**pulled, opaque=72, offset=1, answer=0, duration_ms=0),
    ]


@pytest.mark.parametrize(("every", "expected"), [(0, 0), (1, 20), (3, 6), (10, 2)])
def test_one_of_n_sends_and_one_of_n_pulls(open_rig: Open, every: int, expected: int) -> None:
    rig = open_rig(every)
    for _ in range(20):
        rig.frame(send_v2())
        rig.frame(pull(flags=4))
        rig.turn()
    found = [line.name for line in lines(rig)]
    assert found.count("SEND_MESSAGE_V2") == found.count("PULL_MESSAGE") == expected
    assert dropped(rig, "send") == dropped(rig, "pull") == 0


def test_a_pull_that_the_manager_passes_back_has_one_line(open_rig: Open) -> None:
    rig = open_rig(1)
    rig.frame(send_v2())
    rig.turn()
    rig.frame(pull(offset=5, opaque=3))  # beyond the queue: the manager decides
    rig.turn()
    [left] = [data for kind, data in rig.for_manager() if kind == lib.RP_MSG_PULL]
    rig.hand_back(lib.RP_MSG_PULL, left, lib.RP_REQUEST_RESOLVED)
    rig.turn()
    assert [(line.opaque, line.offset, line.answer) for line in lines(rig)] == [(3, 5, ResponseCode.PULL_OFFSET_MOVED)]


def test_a_refused_send_has_no_offset_and_a_oneway_send_its_result(open_rig: Open) -> None:
    rig = open_rig(1)
    rig.frame(send_v2(properties="A\x01\0\x02", opaque=1))
    oneway = send_v2(opaque=2)
    oneway.flag |= FLAG_ONEWAY
    rig.frame(oneway)
    rig.turn()
    found = [(line.opaque, line.offset, line.answer) for line in lines(rig)]
    assert found == [(1, "-", ResponseCode.MESSAGE_ILLEGAL), (2, 0, 0)]


def test_a_delayed_send_has_the_topic_and_queue_of_its_client(open_rig: Open) -> None:
    marks = DeliveryMarks(3, lambda: 0)
    rig = open_rig(1, marks=marks.pointer)
    rig.add_topic(SCHEDULE_TOPIC, 3)
    rig.turn()
    rig.frame(send_v2(queue=2, properties="DELAY\x012\x02"))
    rig.turn()
    assert rig.workers["send"].counters[lib.RP_COUNT_SLOW] == 0
    assert [(line.topic, line.queue, line.answer) for line in lines(rig)] == [("T", 2, 0)]


@pytest.mark.parametrize(("is_oneway", "every"), [(False, 1), (True, 1), (False, 0)])
def test_an_end_of_a_transaction_has_a_line(open_rig: Open, is_oneway: bool, every: int) -> None:
    rig = open_rig(every, half_states=SharedHalfStates().pointer)
    for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC):
        rig.add_topic(topic, 1, flags=lib.RP_TOPIC_NO_SEND)
    rig.turn()
    place = send_half(rig)
    lines(rig)
    for opaque, action in ((5, COMMIT), (6, COMMIT), (7, ROLLBACK)):  # the first one ends it
        command = end_request(place, action)
        command.opaque = opaque
        command.flag |= FLAG_ONEWAY if is_oneway else 0
        rig.frame(command)
        rig.turn()
    found = [(line.name, line.opaque, line.group, line.topic, line.offset, line.answer) for line in lines(rig)]
    expected = [(5, ResponseCode.SUCCESS), (6, ResponseCode.SUCCESS), (7, ResponseCode.SYSTEM_ERROR)]
    assert found == [("END_TRANSACTION", number, "P", "-", 0, code) for number, code in expected if every]


def test_puts_of_the_broker_itself_have_none(open_rig: Open) -> None:
    rig = open_rig(1)
    rig.put(encode_put(MessageToPut("T", 0, b"body", b""), 1, 0))
    rig.turn()
    assert rig.workers["send"].counters[lib.RP_COUNT_MESSAGES_PUT] == 1
    assert lines(rig) == []


@pytest.mark.parametrize(("waits_ms", "code"), [(40, 0), (5_000, ResponseCode.FLUSH_DISK_TIMEOUT)])
def test_a_send_that_waits_for_the_disk_has_its_line_with_the_answer(
    open_rig: Open, clock: Clock, waits_ms: int, code: int
) -> None:
    rig = open_rig(1, sync_flush=1)
    rig.frame(send_v2(opaque=8), received_ns=clock.now_ns)
    rig.turn()
    assert lines(rig) == []
    clock.now_ns += waits_ms * MS
    if not code:
        header = lib.rp_control_header(rig.block)
        header.durable_phy_offset = header.published_phy_offset
    rig.turn()
    found = [(line.opaque, line.topic, line.group, line.answer, line.duration_ms) for line in lines(rig)]
    assert found == [(8, "T", "P", code, waits_ms)]


def test_lines_that_wait_leave_room_for_replies(open_rig: Open) -> None:
    """Fault: At a sample of 1 the lines that waited with their sends took 45 MB beside the bound of waiting replies."""
    rig = open_rig(1, sync_flush=1, ring_bytes=1 << 25, file_size=1 << 26, cq_file_size=1 << 23)
    rig.frame(send_v2(opaque=1))
    last = 2 + WAITING_BYTES_MAX // 2 // (ENTRIES_MAX * ID_SIZE)  # with its message ids half of the bound is used up
    for opaque in range(2, last + 1):
        rig.frame(send_v2(m="true", opaque=opaque, body=encode_entry(b"x", b"") * ENTRIES_MAX))
    rig.frame(send_v2(opaque=last + 1))
    rig.turn()
    assert dropped(rig, "send") == 2
    header = lib.rp_control_header(rig.block)
    header.durable_phy_offset = header.published_phy_offset
    rig.turn()
    assert [line.opaque for line in lines(rig)] == list(range(1, last))
    assert [(reply.opaque, reply.code) for _, reply in rig.answers()] == [(opaque, 0) for opaque in range(1, last + 2)]
    rig.frame(send_v2(opaque=last + 2))
    rig.turn()
    assert dropped(rig, "send") == 2, "there is room again"


def test_a_line_that_waits_ends_with_its_worker(open_rig: Open) -> None:
    rig = open_rig(1, sync_flush=1)
    rig.frame(send_v2())
    rig.turn()  # the rig closes the worker, which frees it
    assert lines(rig) == []


def test_a_suspended_pull_has_its_line_with_the_answer(open_rig: Open, clock: Clock) -> None:
    rig = open_rig(1)
    rig.frame(pull(flags=6, opaque=4), received_ns=clock.now_ns)
    rig.turn()
    assert lines(rig) == []
    clock.now_ns += 700 * MS
    rig.frame(send_v2(), received_ns=clock.now_ns)
    rig.turn()
    found = {line.name: (line.answer, line.duration_ms) for line in lines(rig)}
    assert found == {"SEND_MESSAGE_V2": (0, 0), "PULL_MESSAGE": (0, 700)}


def test_long_names_are_cut(open_rig: Open) -> None:
    rig = open_rig(1)
    rig.frame(send_v2(a="g" * 1_000))
    rig.turn()
    [line] = lines(rig)
    assert (line.topic, line.group) == ("T", "g" * NAME_MAX)


def test_lines_that_the_manager_does_not_read_are_dropped_and_delay_nothing(open_rig: Open) -> None:
    rig = open_rig(1)
    for opaque in range(400):
        rig.frame(send_v2(opaque=opaque))
        rig.frame(pull(opaque=opaque))
        rig.turn()
    assert sorted(reply.opaque for _, reply in rig.answers()) == sorted([*range(400)] * 2)
    for worker, ring in (("send", rig.send_manager), ("pull", rig.pull_manager)):
        assert DEPTH_MAX < lib.rp_ring_depth(ring) < DEPTH_MAX + 512
        assert dropped(rig, worker) > 0
    assert len(lines(rig)) + dropped(rig, "send") + dropped(rig, "pull") == 800
    rig.frame(send_v2(opaque=1))
    rig.turn()
    assert len(lines(rig)) == 1, "there is room again"
