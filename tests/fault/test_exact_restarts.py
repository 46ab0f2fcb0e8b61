"""Invariant: a worker of the fast path may die after any machine instruction. The restarted worker neither repeats nor
drops a request: a send is stored once, in its connection's order; a pull is answered, or suspended by the restarted
worker; a frame is decoded once. And what cannot be answered for want of room is not stored.

Each cut forks a child that does the work, lets it execute a random number of instructions, kills it, and lets a
restarted worker go on with the rings and the log as the child left them."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.broker.fast_path.shared_memory import DeliveryMarks
from rocketpy.message.record import decode_records
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import decode_put_result, encode_put
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import Delivery, MessageToPut
from tests.support.fast_path import FILE_SIZE, FastPath
from tests.support.history import pull_request, send_request
from tests.support.stepping import Steps, can_step

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
CONNECTION = 3
steppable = pytest.mark.skipif(not can_step(), reason="ptrace of an own child is not permitted here")


@pytest.fixture
def rig(tmp_path: Path) -> FastPath:
    rig = FastPath(tmp_path)
    rig.add_topic("T")
    rig.add_group("history")
    rig.tables_end()
    rig.frame(send_request("T", 1, [b"first"], 0))  # the first file is there
    rig.turn()
    rig.answers()
    return rig


def whole_length(prepare: Callable[[], Callable[[], object]]) -> int:
    """Instructions of the work when nothing cuts it off."""
    steps = Steps(prepare)
    return steps.run(1_000_000)


def cut(prepare: Callable[[], Callable[[], object]], length: int) -> None:
    """Kill the work after `length` instructions."""
    steps = Steps(prepare)
    try:
        steps.run(length)
    finally:
        steps.kill()


def begin_again(rig: FastPath, worker: str) -> None:
    rig.workers[worker].epoch += 1
    rig.workers[worker].asleep = 0


def tell_tables(rig: FastPath) -> None:
    rig.add_topic("T")
    rig.add_group("history")
    rig.tell_tables_end()


def delayed(number: str) -> RemotingCommand:
    """A send that the fast path leaves to the manager."""
    command = send_request("T", 0, [number.encode()], int(number))
    assert command.ext_fields is not None
    command.ext_fields["i"] = "DELAY\x011\x02"
    return command


def return_what_was_left(rig: FastPath) -> list[int]:
    """The manager's part: hand every send back as checked, complete it. Their opaques."""
    found = []
    for kind, data in rig.for_manager():
        if kind == lib.RP_MSG_SEND:
            found.append(ffi.cast("rp_msg_send *", ffi.from_buffer(data)).opaque)
            rig.hand_back(kind, data, lib.RP_REQUEST_RESOLVED)
            rig.complete(data)
    return found


def stored_numbers(rig: FastPath) -> list[str]:
    """Bodies of queue 0 in the order of the log; offsets are checked on the way."""
    end = lib.rp_control_header(rig.block).published_phy_offset
    assert end < FILE_SIZE
    records = [record for record in decode_records(rig.log(0, end), check_crc=True) if record.queue_id == 0]
    assert [record.queue_offset for record in records] == list(range(len(records)))
    return [bytes(record.body).decode() for record in records]


@steppable
def test_a_send_is_stored_once_and_in_order_wherever_the_send_worker_dies(rig: FastPath) -> None:
    """Holds: store, sequential appends."""
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/send")
    sent: list[str] = []
    answered: Counter[int] = Counter()
    length = 0

    def work() -> Callable[[], object]:
        send = rig.open_send()
        return lambda: lib.rp_send_run(send, 0)

    for turn in range(40):
        for _ in range(2):
            numbers = [str(len(sent) + i + 1) for i in range(4)]
            rig.frame(send_request("T", 0, [numbers[0].encode()], int(numbers[0])), CONNECTION)
            rig.frame(send_request("T", 0, [n.encode() for n in numbers[1:3]], int(numbers[1])), CONNECTION)
            rig.frame(delayed(numbers[3]), CONNECTION)
            sent += numbers
        lib.rp_send_close(rig.send)
        begin_again(rig, "send")
        tell_tables(rig)
        if turn == 0:
            length = whole_length(work)
            print(f"{length} instructions")
        else:
            cut(work, choose.randrange(length))
        begin_again(rig, "send")
        rig.send = rig.open_send()
        return_what_was_left(rig)
        tell_tables(rig)
        rig.turn()
        while return_what_was_left(rig):
            rig.turn()
        answered.update(reply.opaque for _, reply in rig.answers() if reply.code == 0)
        assert stored_numbers(rig) == sent, f"seed {SEED}, turn {turn}"
    requests = len(sent) // 4 * 3
    assert max(answered.values()) <= 2 and requests - len(answered) <= 40


@steppable
def test_a_delivery_is_stored_once_wherever_the_send_worker_dies_and_whoever_repeats_it(tmp_path: Path) -> None:
    """The manager repeats what it was not told of, and a restarted one repeats what the previous one may have put.
    Fault: A killed manager or send worker had delayed messages delivered again."""
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/delivery")
    delivered = DeliveryMarks(2, lambda: 0)
    rig = FastPath(tmp_path, marks=delivered.pointer)
    rig.add_topic("T")
    rig.tables_end()
    rig.frame(send_request("T", 1, [b"first"], 0))  # the first file is there
    rig.turn()
    wanted: list[str] = []
    last: dict[int, bytes] = {}

    def put_next(level: int) -> None:
        number = len(wanted)
        body = f"{level}.{number}".encode()
        message = MessageToPut("T", 0, body, b"", wait_store=False, delivery=Delivery(level, number * 100, number))
        last[level] = encode_put(message, number, 0)
        wanted.append(body.decode())
        for _ in range(choose.choice((1, 1, 2))):
            rig.put(last[level])

    def work() -> Callable[[], object]:
        send = rig.open_send()
        return lambda: lib.rp_send_run(send, 0)

    length = 0
    for turn in range(60):
        lib.rp_send_close(rig.send)
        begin_again(rig, "send")
        tell_tables(rig)
        for level in (1, 2, 1):
            if level in last and choose.random() < 0.3:
                rig.put(last[level])
            put_next(level)
        if turn == 0:
            length = whole_length(work)
            print(f"{length} instructions")
        else:
            cut(work, choose.randrange(length))
        begin_again(rig, "send")
        rig.send = rig.open_send()
        tell_tables(rig)
        for record in last.values():
            rig.put(record)
        rig.turn()
        assert stored_numbers(rig) == wanted, f"seed {SEED}, turn {turn}"
        results = [record for kind, record in rig.for_manager() if kind == lib.RP_MSG_PUT_RESULT]
        assert results and all(decode_put_result(record, ("127.0.0.1", 1))[1].is_stored for record in results)
    rig.close()


@steppable
def test_a_pull_is_answered_or_held_wherever_the_pull_worker_dies(rig: FastPath) -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/pull")
    opaque = 0

    def work() -> Callable[[], object]:
        pull = rig.open_pull()
        return lambda: lib.rp_pull_run(pull, 0)

    length = 0
    for turn in range(24):
        lib.rp_pull_close(rig.pull)  # what it holds is gone without an answer: it held nothing
        asked = set()
        for queue, hold_ms in ((1, 0), (2, 600_000), (1, 0), (3, 600_000)):
            opaque += 1
            command = pull_request("T", queue, 0, hold_ms=hold_ms)
            command.opaque = opaque
            asked.add(opaque)
            rig.frame(command, CONNECTION)
        tell_tables(rig)
        if turn == 0:
            length = whole_length(work)
            print(f"{length} instructions")
        else:
            cut(work, choose.randrange(length))
        rig.pull = rig.open_pull()
        tell_tables(rig)
        rig.turn()
        held = rig.workers["pull"].counters[lib.RP_COUNT_SUSPENDED]
        answered = {reply.opaque for _, reply in rig.answers()}
        assert answered <= asked and len(answered) + held >= len(asked), f"seed {SEED}, turn {turn}: {answered}, {held}"
        rig.closed(CONNECTION)
        rig.turn()
        assert rig.workers["pull"].counters[lib.RP_COUNT_SUSPENDED] == 0
        rig.for_manager()


@steppable
def test_a_frame_is_decoded_once_wherever_the_codec_dies(rig: FastPath) -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/codec")
    frames = lib.rp_ring_writer_open(rig.frames)
    sent: list[str] = []
    commands = 0
    length = 0
    codec = rig.open_codec(rig.frames)

    def work() -> Callable[[], object]:
        restarted = rig.open_codec(rig.frames)
        return lambda: lib.rp_codec_run(restarted, 0)

    def hand(command: RemotingCommand) -> None:
        origin = ffi.new("rp_origin *", {"connection": CONNECTION})
        frame = command.encode()[4:]
        spans = ffi.new("rp_span[2]", [(origin, ffi.sizeof("rp_origin")), (ffi.from_buffer(frame), len(frame))])
        assert lib.rp_ring_write(frames, lib.RP_MSG_FRAME, spans, 2) == lib.RP_OK

    for turn in range(24):
        for _ in range(2):
            numbers = [str(len(sent) + i + 1) for i in range(2)]
            hand(send_request("T", 0, [numbers[0].encode()], int(numbers[0])))
            hand(RemotingCommand.request(35, ext_fields={"clientID": "c"}))
            hand(send_request("T", 0, [numbers[1].encode()], int(numbers[1])))
            sent += numbers
        lib.rp_codec_close(codec)
        if turn == 0:
            length = whole_length(work)
            print(f"{length} instructions")
        else:
            cut(work, choose.randrange(length))
        codec = rig.open_codec(rig.frames)
        lib.rp_codec_run(codec, 0)
        rig.turn()
        rig.answers()
        commands += sum(kind == lib.RP_MSG_COMMAND for kind, _ in rig.for_manager())
        assert (stored_numbers(rig), commands) == (sent, 2 * (turn + 1)), f"seed {SEED}, turn {turn}"


def test_a_resume_point_that_proves_nothing_is_not_used_later(rig: FastPath) -> None:
    """The log grows by other inputs too: what they store says nothing about the request of this resume point."""
    point = rig.workers["send"].resume_points[0]
    rig.frame(send_request("T", 0, [b"1"], 1))
    point.output, point.output_position = 0xFFFFFFFF, lib.rp_control_header(rig.block).published_phy_offset + 1
    point.source_head = lib.rp_ring_tail(rig.to_send)  # set, and killed before the record was published
    lib.rp_send_close(rig.send)
    lib.rp_send_close(rig.open_send())  # a restarted worker that dies before it comes to this input
    rig.send = rig.open_send()
    assert point.source_head == 0
    tell_tables(rig)
    rig.turn()
    assert stored_numbers(rig) == ["1"]


@pytest.mark.parametrize("sync_flush", [0, 1])
def test_what_cannot_be_answered_is_not_stored(tmp_path: Path, sync_flush: int) -> None:
    """A selector that stands still, with thousands of sends for it: its ring fills, then the requests wait."""
    rig = FastPath(tmp_path, sync_flush=sync_flush)
    rig.add_topic("T")
    rig.tables_end()
    control = lib.rp_control_header(rig.block)
    sent = answers = refusals = 0
    while refusals < 3:  # the reply ring is full, and then the ring before it
        if rig.frame(send_request("T", 0, [str(sent).encode()], sent)) == lib.RP_OK:
            sent += 1
            continue
        refusals += 1
        for _ in range(50):
            rig.turn()
            control.durable_phy_offset = control.published_phy_offset
    assert len(stored_numbers(rig)) < sent or sync_flush  # thousands may wait for the disk with their answers
    while batch := len(rig.answers()):
        answers += batch
        for _ in range(50):
            rig.turn()
            control.durable_phy_offset = control.published_phy_offset
    assert stored_numbers(rig) == [str(n) for n in range(sent)]
    assert answers == sent
