"""What one request does ends with it: whatever it holds or raises, the others are served."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import ResponseCode
from rocketpy.native.core import lib
from rocketpy.reactor.pools import Pool
from rocketpy.reactor.request_server import BATCH_NS
from rocketpy.reactor.worker_messages import WorkerMessage
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import REMARK_BYTES_MAX, RemotingCommand
from rocketpy.remoting.frame import FRAME_SIZE_MAX, SerializeType
from tests.support import ring_messages
from tests.support.request_bench import Bench, Handler, complete
from tests.support.request_scenes import collect, ok, play, waiting

BOTH = pytest.mark.parametrize("serialize_type", list(SerializeType))


def answering(**fields: object) -> Handler:
    async def answer(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return attrs.evolve(RemotingCommand.response(0), **fields)

    return answer


def raising(fault: BaseException) -> Handler:
    async def fail(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        raise fault

    return fail


# -- replies


@BOTH
@pytest.mark.parametrize("text", ["\x01" * 3_000_000, "\ud800" * 10_000, "é" * 3_000_000, "\U0001f680" * 3_000_000])
def test_a_remark_is_cut_at_a_character(
    open_bench: Callable[..., Bench], text: str, serialize_type: SerializeType
) -> None:
    bench = open_bench({1: ok, 2: answering(code=17, remark=text)})

    async def scene() -> None:
        bench.command(RemotingCommand(2, opaque=5, serialize_type=serialize_type))
        (answer,) = await collect(bench, 1)
        assert (answer.code, answer.opaque) == (17, 5)
        assert answer.remark is not None
        assert REMARK_BYTES_MAX - 4 < len(answer.remark.encode()) <= REMARK_BYTES_MAX
        assert set(answer.remark) <= {text[0], "?"}

    play(bench, scene)


@BOTH
@pytest.mark.parametrize(
    "fields",
    [
        {"body": bytes(FRAME_SIZE_MAX)},
        {"ext_fields": {"a": "\x01" * FRAME_SIZE_MAX}},
        {"ext_fields": {"a": object()}},
    ],
)
def test_a_response_that_fits_no_frame_becomes_a_short_error(
    open_bench: Callable[..., Bench], fields: dict[str, object], serialize_type: SerializeType
) -> None:
    """Fault: A reply that could not be encoded ended the manager, and eleven in a minute ended the broker."""
    bench = open_bench({1: ok, 2: answering(**fields)})

    async def scene() -> None:
        bench.command(RemotingCommand(2, opaque=-5, serialize_type=serialize_type))
        (answer,) = await collect(bench, 1)
        assert (answer.code, answer.opaque, answer.serialize_type) == (ResponseCode.SYSTEM_ERROR, -5, serialize_type)
        assert answer.remark is not None and answer.remark.startswith("the response cannot be sent")
        assert bench.server.gateway.faults.counts == {"a response": 1}

    play(bench, scene)


def test_a_push_that_fits_no_frame_is_dropped(open_bench: Callable[..., Bench]) -> None:
    """Fault: A notification of a leaving member that fits no frame ended the manager."""
    bench = open_bench({1: ok})

    async def scene() -> None:
        channel = bench.channel()
        channel.push(RemotingCommand.oneway(40, ext_fields={"consumerGroup": "\x01" * FRAME_SIZE_MAX}))
        await complete()
        assert bench.replies() == []
        assert bench.server.gateway.faults.counts == {"push of NOTIFY_CONSUMER_IDS_CHANGED": 1}

    play(bench, scene)


def test_a_reply_larger_than_the_backlog_waits_for_room(open_bench: Callable[..., Bench]) -> None:
    """Fault: A reply above 8 MiB was refused if another one was still on its way to the selector."""
    bench = open_bench({1: ok, 2: answering(body=bytes(200_000))})

    async def scene() -> None:
        bench.request(2, 1)
        bench.request(2, 2)
        answers = await collect(bench, 2)
        assert [(one.opaque, len(one.body or b"")) for one in answers] == [(1, 200_000), (2, 200_000)]

    play(bench, scene)


FAULTS = [
    KeyError("x" * 100_000),
    MemoryError(),
    RecursionError("deep"),
    OverflowError("large"),
    ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
    AssertionError(),
]


# -- what is raised


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_what_a_processor_raises_is_answered(open_bench: Callable[..., Bench], fault: Exception) -> None:
    bench = open_bench({1: ok, 34: raising(fault)})

    async def scene() -> None:
        for opaque in (1, 2, 3):
            bench.request(34, opaque)
        await complete()
        assert [(one.opaque, one.code) for one in bench.commands()] == [(n, 1) for n in (1, 2, 3)]
        assert bench.server.gateway.faults.counts == {"HEART_BEAT": 3}

    play(bench, scene)


@pytest.mark.parametrize("name", ["slow_send", "slow_pull", "commit_offset", "connection_closed"])
@pytest.mark.parametrize("fault", FAULTS[:2], ids=lambda fault: type(fault).__name__)
def test_what_a_callback_raises_stays_there(
    open_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, name: str, fault: Exception
) -> None:
    bench = open_bench({1: ok})

    def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(type(bench.slow_path), name, fail)
    send = ring_messages.send(bench.origin(), opaque=9)
    pull = ring_messages.pull(bench.origin(), opaque=8)
    commit = ring_messages.commit_offset()

    async def scene() -> None:
        for _ in range(3):
            bench.write(WorkerMessage.SEND, send)
            bench.write(WorkerMessage.PULL, pull)
            bench.write(WorkerMessage.COMMIT_OFFSET, commit)
            bench.closed()
        await complete()
        answered = {"slow_send": [(9, 1)] * 3, "slow_pull": [(8, 1)] * 3}.get(name, [])
        assert [(one.opaque, one.code) for one in bench.commands()] == answered
        assert sum(bench.server.gateway.faults.counts.values()) == 3

    play(bench, scene)


@pytest.mark.parametrize("kind", [*WorkerMessage, 0, 77, 65535])
def test_a_message_of_a_ring_that_makes_no_sense_is_counted_and_dropped(
    open_bench: Callable[..., Bench], kind: int
) -> None:
    bench = open_bench({1: ok})

    async def scene() -> None:
        counted = 0
        for size in (0, 1, 39, 40, 41, 100):
            bench.decoder.write(kind, b"\xff" * size)
            bench.decoder.finish_batch()
            await complete()
            counts = {**bench.server.gateway.faults.counts, **bench.server._refused.counts}
            before, counted = counted, sum(counts.values())
            assert counted >= before + (kind != WorkerMessage.CLOSED), size

    play(bench, scene)


@BOTH
def test_a_header_that_takes_long_to_read_closes_its_connection(
    open_bench: Callable[..., Bench], serialize_type: SerializeType
) -> None:
    """Fault: A header of 16 MB with a million fields blocked the manager's loop for seconds."""
    bench = open_bench({1: ok})

    async def scene() -> None:
        for count, answered in ((4_000, True), (40_000, False)):
            fields = {f"{n:x}": "" for n in range(count)}
            if serialize_type is SerializeType.ROCKETMQ:
                fields = dict.fromkeys(fields, "x")
            bench.command(RemotingCommand(1, opaque=5, ext_fields=fields, serialize_type=serialize_type))
            await complete()
            assert [one == "close" for one in bench.replies()] == [not answered]

    play(bench, scene)


def test_a_batch_ends_when_it_takes_long(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench({1: ok})
    taken: list[int] = []

    def slow_take(*_: object) -> None:
        taken.append(1)
        bench.clock[0] += BATCH_NS + 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(bench.server), "_take", slow_take)
        for opaque in range(5):
            bench.request(1, opaque)
        assert bench.server.turn()
        assert len(taken) == 1


# -- queues


def test_a_pool_is_bounded_by_bytes_and_one_large_request_always_fits(open_bench: Callable[..., Bench]) -> None:
    """Fault: Request queues were bounded by count only: 10 000 requests of 16 MiB could wait in each pool."""
    gate = trio.Event()

    async def wait(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        await gate.wait()
        return RemotingCommand.response(0)

    bench = open_bench({1: ok, 2: wait}, (Pool(name="small", tasks=1, queue_max=100, queue_bytes_max=10_000),))

    def ask(opaque: int, size: int, **fields: str) -> None:
        bench.command(RemotingCommand(2, opaque=opaque, body=bytes(size), ext_fields=fields or None))

    async def scene() -> None:
        ask(0, 1)  # in service
        await complete()
        ask(1, 50_000)  # alone in the queue
        ask(2, 1)  # beyond it
        await complete()
        assert [(one.opaque, one.code) for one in bench.commands()] == [(2, 2)]
        gate.set()
        await complete()
        assert [one.opaque for one in bench.commands()] == [0, 1]
        ask(3, 1)
        await complete()
        assert [one.opaque for one in bench.commands()] == [3], "what has been served counts no more"

    play(bench, scene)


def test_fields_count_for_what_they_cost(open_bench: Callable[..., Bench]) -> None:
    gate = trio.Event()

    async def wait(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        await gate.wait()
        return RemotingCommand.response(0)

    bench = open_bench({1: ok, 2: wait}, (Pool(name="small", tasks=1, queue_max=100, queue_bytes_max=100_000),))

    async def scene() -> None:
        fields = {f"{n:x}": "" for n in range(600)}
        for opaque in range(3):
            bench.command(RemotingCommand(2, opaque=opaque, ext_fields=fields))
            await complete()
        assert [(one.opaque, one.code) for one in bench.commands()] == [(2, 2)]
        gate.set()
        await complete()

    play(bench, scene)


# -- waiting for others


def test_busy_answers_are_counted(open_bench: Callable[..., Bench]) -> None:
    bench = open_bench({1: ok, 2: waiting(trio.Event(), at_once_max=0)})

    async def scene() -> None:
        bench.request(2, 1)
        await complete()
        assert bench.blocks[1].counters()[lib.RP_COUNT_BUSY] == 1

    play(bench, scene)
