"""Ends of half messages that are not in memory: they are read by a thread, and no send waits for that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.fast_path.shared_memory import SharedHalfStates
from rocketpy.codes import RequestCode
from rocketpy.message import names
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import EndTransactionRequestHeader, SendMessageRequestHeader
from tests.support.fast_path import FastPath
from tests.support.half_messages import COMMIT, answers, half, in_topic, send_half, stored
from tests.support.history import send_request

BODY_AT = 88  # in a record
WAITING_MAX = 192  # RP_HALF_READS_MAX
DEADLINE_S = 60  # for a thread to get its turn


class Memory:
    """What is in memory, as the send worker is told."""

    def __init__(self) -> None:
        self.is_cold = True
        self.asked: list[int] = []
        self.pointer = ffi.callback("int(*)(const uint8_t *, uint64_t)", self._look)

    def _look(self, at: Any, size: int) -> int:
        self.asked.append(size)
        return not self.is_cold


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def rig(tmp_path: Path, memory: Memory) -> Iterator[FastPath]:
    rig = FastPath(tmp_path, half_states=SharedHalfStates().pointer, in_memory=memory.pointer)
    for topic in (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC):
        rig.add_topic(topic, 1, flags=lib.RP_TOPIC_NO_SEND)
    rig.add_topic("T", 4)
    rig.tables_end()
    yield rig
    rig.close()


def restart_send(rig: FastPath) -> None:
    """A send worker that has stored none of the half messages itself."""
    lib.rp_send_close(rig.send)
    rig.send = rig.open_send()
    rig.add_topic("T", 4)
    rig.tell_tables_end()
    rig.turn()


def ask_end(rig: FastPath, place: tuple[int, int]) -> None:
    header = EndTransactionRequestHeader(
        producer_group="P", tran_state_table_offset=place[0], commit_log_offset=place[1], commit_or_rollback=COMMIT
    )
    rig.frame(RemotingCommand.request(RequestCode.END_TRANSACTION, header))


def ask_send(rig: FastPath) -> None:
    header = SendMessageRequestHeader(
        producer_group="P", topic="T", default_topic="TBW102", queue_id=0, sys_flag=0, born_timestamp_ms=7, flag=0
    )
    rig.frame(RemotingCommand.request(RequestCode.SEND_MESSAGE, header, b"sent"))


def wait_answers(rig: FastPath, count: int) -> list[RemotingCommand]:
    found, deadline = [], time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        found += answers(rig)
    return found


def test_an_end_is_served_after_its_half_message_was_read(rig: FastPath) -> None:
    place = send_half(rig)
    restart_send(rig)
    ask_end(rig, place)
    assert [answer.code for answer in wait_answers(rig, 1)] == [0]
    assert [bytes(record.body) for record in in_topic(rig, "T")] == [b"body"]
    assert len(in_topic(rig, names.TRANS_OP_HALF_TOPIC)) == 1


def test_sends_behind_it_do_not_wait(rig: FastPath) -> None:
    place = send_half(rig)
    restart_send(rig)
    ask_end(rig, place)
    ask_send(rig)
    assert [answer.code for answer in wait_answers(rig, 2)] == [0, 0]
    assert [bytes(record.body) for record in in_topic(rig, "T")] == [b"sent", b"body"]


def test_what_the_send_worker_has_just_stored_is_in_memory(rig: FastPath, memory: Memory) -> None:
    ask_end(rig, send_half(rig))
    assert [answer.code for answer in answers(rig)] == [0]
    assert memory.asked == []


def test_a_half_message_in_memory_is_not_read(rig: FastPath, memory: Memory) -> None:
    place = send_half(rig)
    restart_send(rig)
    memory.is_cold = False
    ask_end(rig, place)
    assert [answer.code for answer in answers(rig)] == [0]
    assert memory.asked == [4, stored(rig)[0].size]


@pytest.mark.parametrize("shift", [(0, 8), (0, 1 << 40), (7, 0), (0, -1)])
def test_a_place_without_a_half_message_is_refused(rig: FastPath, shift: tuple[int, int]) -> None:
    queue_offset, phy_offset = send_half(rig)
    restart_send(rig)
    ask_end(rig, (queue_offset + shift[0], phy_offset + shift[1]))
    (answer,) = wait_answers(rig, 1)
    assert answer.code == 1


def test_a_place_that_the_client_chose_is_not_read(tmp_path: Path, memory: Memory) -> None:
    """The place is in the body of its own message, where a size of 1 GiB seems to stand.
    Fault: END_TRANSACTION with a chosen offset had up to a whole log file read from the disk."""
    rig = FastPath(tmp_path, half_states=SharedHalfStates().pointer, in_memory=memory.pointer, file_size=64 << 20)
    for topic in (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC):
        rig.add_topic(topic, 1, flags=lib.RP_TOPIC_NO_SEND)
    rig.add_topic("T", 4)
    rig.tables_end()
    queue_offset, _ = send_half(rig)
    assert rig.frame(send_request("T", 0, [b"\x3f\xff\xff\xff" * 100], 5)) == lib.RP_OK
    assert [answer.code for answer in answers(rig)] == [0]
    [record] = in_topic(rig, "T")
    restart_send(rig)
    before = bytes_read()
    for _ in range(3):
        ask_end(rig, (queue_offset, record.phy_offset + BODY_AT + 3))
    assert [answer.code for answer in wait_answers(rig, 3)] == [1, 1, 1]
    assert bytes_read() - before < 8 << 20
    rig.close()


def bytes_read() -> int:
    """By this process in all its threads, from files in memory as well."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def test_no_more_than_a_bounded_number_waits(rig: FastPath) -> None:
    places = [send_half(rig) for _ in range(200)]
    restart_send(rig)
    for place in places:
        ask_end(rig, place)
    found = wait_answers(rig, 200)
    refused = [answer for answer in found if answer.code == 2]
    assert len(found) == 200 and len(refused) == 200 - WAITING_MAX
    assert all((answer.remark or "").startswith("[HALF_READS]") for answer in refused)
    assert len(in_topic(rig, "T")) == WAITING_MAX
    for place in places:
        ask_end(rig, place)
        wait_answers(rig, 1)
    assert len(in_topic(rig, "T")) == 200


def test_a_stop_waits_for_them(rig: FastPath) -> None:
    place = send_half(rig)
    restart_send(rig)
    ask_end(rig, place)
    lib.rp_codec_wake(rig.codec)
    rig.workers["send"].stop = 1
    deadline = time.monotonic() + DEADLINE_S
    while lib.rp_send_run(rig.send, 10_000_000) != lib.RP_STOPPED:
        assert time.monotonic() < deadline
    assert len(in_topic(rig, "T")) == 1


def test_a_killed_send_worker_leaves_the_transaction_open(rig: FastPath) -> None:
    """Its producer is asked again."""
    place = send_half(rig)
    restart_send(rig)
    ask_end(rig, place)
    lib.rp_codec_wake(rig.codec)
    lib.rp_send_run(rig.send, 0)
    restart_send(rig)
    assert len(in_topic(rig, "T")) <= 1
    ask_end(rig, place)
    wait_answers(rig, 1)
    assert len(in_topic(rig, "T")) == 1


def test_a_resume_point_is_of_the_request_that_it_is_for(rig: FastPath) -> None:
    """The end is stored while another request is at the head of its ring."""
    place = send_half(rig)
    restart_send(rig)
    ask_end(rig, place)
    wait_answers(rig, 1)
    point = rig.workers["send"].resume_points[0]
    published = lib.rp_control_header(rig.block).published_phy_offset
    assert not (point.output == 0xFFFFFFFF and point.output_position == published)
    rig.frame(half())
    assert [answer.code for answer in answers(rig)] == [0]
