"""Sends and pulls of the slow path: what Python answers has a line in the request log, what it passes back has none."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import RequestRefused
from rocketpy.native.core import lib
from rocketpy.reactor import request_server
from rocketpy.reactor.worker_messages import SERVED, WorkerMessage
from rocketpy.remoting.command import FLAG_RESPONSE, RemotingCommand
from rocketpy.remoting.fast_path import PullRequest, SendRequest
from tests.support import ring_messages
from tests.support.request_bench import NOW_NS, Bench, complete

LINE = "served request %s of client 127.0.0.1:4000: topic T, group G, queue 0, offset %s, answered %d, duration 20.0 ms"


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "served request" in record.getMessage()]


def answer(request: SendRequest | PullRequest, code: int, **fields: str) -> None:
    request.channel.push(RemotingCommand(code, request.opaque, flag=FLAG_RESPONSE, ext_fields=fields))


def test_each_answer_has_a_line(open_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture) -> None:
    bench = open_bench({}, request_log_sample=1)

    async def scene() -> None:
        bench.clock[0] = NOW_NS
        for opaque in (1, 2, 3):
            bench.write(WorkerMessage.SEND, ring_messages.send(bench.origin(), opaque=opaque))
        bench.write(WorkerMessage.PULL, ring_messages.pull(bench.origin(), opaque=4, queue_offset=5))
        await complete()
        stored, refused, passed_back, pulled = bench.slow_path.told
        assert lines(caplog) == []
        assert isinstance(stored, SendRequest) and isinstance(refused, SendRequest) and isinstance(pulled, PullRequest)
        assert isinstance(passed_back, SendRequest)
        passed_back.channel.push(RemotingCommand.oneway(40))  # of the same connection, and no answer
        bench.clock[0] += 20_000_000
        answer(stored, 0, queueOffset="8")
        answer(refused, 17)
        answer(pulled, 21)
        sends = [LINE % ("SEND_MESSAGE_V2", offset, code) for offset, code in (("8", 0), ("-", 17))]
        assert lines(caplog) == [*sends, LINE % ("PULL_MESSAGE", "5", 21)]
        await complete()
        assert [one.code for one in bench.replies()] == [40, 0, 17, 21], "each is answered all the same"

    bench.run(scene)


def test_a_send_that_fails_has_a_line(open_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture) -> None:
    bench = open_bench({}, request_log_sample=1)
    bench.slow_path.fail_with = RequestRefused(14, "no write")

    async def scene() -> None:
        bench.write(WorkerMessage.SEND, ring_messages.send(bench.origin(), opaque=9))
        await complete()
        assert [line.partition("offset ")[2].partition(", duration")[0] for line in lines(caplog)] == ["-, answered 14"]

    bench.run(scene)


@pytest.mark.parametrize(("every", "expected"), [(0, []), (1, [*range(1, 13)]), (5, [5, 10])])
def test_every_nth(
    open_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture, every: int, expected: list[int]
) -> None:
    """As in the workers of C, which count to N as well."""
    bench = open_bench({}, request_log_sample=every)

    async def scene() -> None:
        for number in range(1, 13):
            bench.write(WorkerMessage.SEND, ring_messages.send(bench.origin(), opaque=number))
        await complete()
        for request in bench.slow_path.told:
            assert isinstance(request, SendRequest)
            answer(request, 0, queueOffset=str(request.opaque))
        bench.clock[0] += 20_000_000
        offsets = [int(line.partition("offset ")[2].partition(",")[0]) for line in lines(caplog)]
        assert offsets == expected

    bench.run(scene)


def served(bench: Bench, offset: int) -> bytes:
    """The SERVED message of a send."""
    origin = bench.origin() | {"received_ns": 5_000_000}
    sizes = {"group_size": 1, "topic_size": 1}
    return SERVED.write(origin=origin, code=310, opaque=7, answered_ns=25_000_000, queue_offset=offset, **sizes) + b"GT"


def test_what_c_has_answered_is_written_after_what_others_wait_for(
    open_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: A send of the slow path waited until the lines before it in the ring were written."""
    bench, written_before = open_bench({}), []

    class Told(list[object]):
        def append(self, told: object) -> None:
            written_before.append(len(lines(caplog)))

    bench.slow_path.told = Told()

    async def scene() -> None:
        for offset in range(100):
            assert bench.decoder.write(WorkerMessage.SERVED, served(bench, offset))
        bench.write(WorkerMessage.SEND, ring_messages.send(bench.origin()))
        await complete()
        assert written_before == [0]
        assert lines(caplog) == [LINE % ("SEND_MESSAGE_V2", str(offset), 0) for offset in range(100)]

    bench.run(scene)


def test_lines_beyond_the_bound_are_dropped_and_counted(
    open_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = open_bench({})
    monkeypatch.setattr(request_server, "LINES_MAX", 3)

    async def scene() -> None:
        for offset in range(5):
            assert bench.decoder.write(WorkerMessage.SERVED, served(bench, offset))
        bench.decoder.finish_batch()
        await complete()
        assert lines(caplog) == [LINE % ("SEND_MESSAGE_V2", str(offset), 0) for offset in range(3)]
        assert bench.blocks[1].counter(lib.RP_COUNT_REQUEST_LOG_DROPPED) == 2

    bench.run(scene)
