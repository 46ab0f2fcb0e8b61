"""Pulls of slices: order, gaps, retries and lost messages, against a broker of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.client.results import PullStatus, StoredPull
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ClientError, ConnectionLost, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.headers.pull import PullMessageRequestHeader
from rocketpy.spark.pulls import ANSWERS_AHEAD, RUNS_AHEAD, Answer, DataLost, Pulls, PullSettings, Slice

QUEUE = MessageQueue("T", "b", 0)
Rule = Callable[[int], RocketError | None]


class Broker:
    """Answers pulls with offsets as bodies, some messages at a time. It is the instance and its api as well."""

    def __init__(self, first: int, end: int, step: int = 32, fault: Rule = lambda offset: None) -> None:
        self.first, self.end, self.step, self.fault = first, end, step, fault
        self.in_flight = self.in_flight_max = self.pulls = 0
        self.api = self

    async def find_reader(self, queue: MessageQueue, broker_id: int) -> tuple[int, str]:
        return 0, "b:1"

    async def update_route(self, topic: str) -> bool:
        return True

    async def pull_stored(self, address: str, header: PullMessageRequestHeader, timeout_s: float) -> StoredPull:
        offset = header.queue_offset
        self.pulls += 1
        if error := self.fault(offset):
            raise error
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        await trio.sleep(0.001 * (offset * 7919 % 13))
        self.in_flight -= 1
        if offset < self.first:
            return StoredPull(PullStatus.OFFSET_ILLEGAL, self.first, self.first, self.end, b"")
        if offset >= self.end:
            return StoredPull(PullStatus.NO_NEW_MSG, offset, self.first, self.end, b"")
        stop = min(offset + min(self.step, header.max_msg_nums), self.end)
        body = b"".join(b"%d " % number for number in range(offset, stop))
        return StoredPull(PullStatus.FOUND, stop, self.first, self.end, body)


def pulls_of(broker: Broker, slices: list[Slice], **settings: Any) -> Pulls:
    return Pulls(broker, slices, PullSettings("g", **settings))  # type: ignore[arg-type]


def read(broker: Broker, begin: int, end: int, **settings: Any) -> tuple[list[int], Pulls]:
    pulls = pulls_of(broker, [Slice(QUEUE, begin, end)], **settings)

    async def main() -> list[int]:
        found: list[int] = []
        with trio.fail_after(1000):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pulls.run)
                while answers := await pulls.take():
                    found += [int(word) for answer in answers for word in answer.pulled.body.split()]
                assert await pulls.take() == []
        return found

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)), pulls


@pytest.mark.parametrize("step", [1, 32, 100, 5000])
@pytest.mark.parametrize("pipeline", [1, 4, 9])
def test_offsets_come_once_and_in_order(step: int, pipeline: int) -> None:
    broker = Broker(5, 3000, step)
    found, _ = read(broker, 7, 2950, batch_size=100, pipeline=pipeline)
    assert found == list(range(7, 2950))
    assert broker.in_flight_max <= pipeline
    if pipeline > 1:
        assert broker.in_flight_max > 1


def test_an_empty_slice() -> None:
    assert read(Broker(0, 10), 4, 4)[0] == []


def test_a_reading_that_was_ended_is_not_taken_for_a_short_slice() -> None:
    pulls = pulls_of(Broker(0, 5000), [Slice(QUEUE, 0, 5000)], batch_size=32)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pulls.run)
            assert await pulls.take()
            pulls.stop()
            with pytest.raises(ClientError, match="ended before its end"):
                while await pulls.take():
                    pass

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_lost_messages_are_an_error_or_counted() -> None:
    with pytest.raises(BaseException) as caught:
        read(Broker(50, 100), 10, 90, batch_size=20)
    assert flat(caught.value) == {"queue 0 of topic T on b: offset 10 is wanted, 50 to 100 are there"}
    found, pulls = read(Broker(50, 100), 10, 90, batch_size=20, fail_on_data_loss=False)
    assert found == list(range(50, 90)) and pulls.lost == {QUEUE: 40}
    found, pulls = read(Broker(0, 60), 10, 90, batch_size=20, fail_on_data_loss=False)
    assert found == list(range(10, 60)) and pulls.lost == {QUEUE: 30}


def flat(error: BaseException) -> set[str]:
    if isinstance(error, BaseExceptionGroup):
        return set().union(*(flat(inner) for inner in error.exceptions))
    assert isinstance(error, DataLost)
    return {str(error).split(". ")[0]}


def test_a_lost_connection_is_tried_again() -> None:
    failures = [ConnectionLost("gone"), ConnectionLost("gone")]
    broker = Broker(0, 100, fault=lambda offset: failures.pop() if failures and offset == 40 else None)
    assert read(broker, 0, 100, batch_size=40)[0] == list(range(100))
    assert not failures


def test_a_refusal_is_not_tried_again() -> None:
    refusal = BrokerError(ResponseCode.NO_PERMISSION, "no")
    broker = Broker(0, 100, fault=lambda offset: refusal)
    with pytest.raises(BaseException) as caught:
        read(broker, 0, 100, pipeline=1)
    errors = caught.value.exceptions if isinstance(caught.value, BaseExceptionGroup) else (caught.value,)
    assert errors == (refusal,) and broker.pulls == 1


def test_what_is_read_ahead_is_bounded() -> None:
    broker = Broker(0, 100_000, step=10)
    pulls = pulls_of(broker, [Slice(QUEUE, 0, 100_000)], batch_size=1000, pipeline=3)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pulls.run)
            await trio.sleep(60)
            assert broker.pulls <= 3 * 9, "8 answers of each run, and one that waits for room"
            pulls.stop()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_short_slices_are_read_side_by_side_and_come_in_order() -> None:
    broker = Broker(0, 10)
    slices = [Slice(MessageQueue("T", "b", number), 3, 3 + number % 3) for number in range(300)]
    pulls = pulls_of(broker, slices, batch_size=1000, pipeline=1)

    async def main() -> list[list[Answer]]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pulls.run)
            found = []
            while answers := await pulls.take(100):
                found.append(answers)
        return found

    taken = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    found = [answer for answers in taken for answer in answers]
    assert [answer.run for answer in found] == [one for one in slices if one.count]
    assert 4 < broker.in_flight_max <= RUNS_AHEAD
    sizes = [sum(len(answer.pulled.body) for answer in answers) for answers in taken]
    assert all(100 <= size < 110 for size in sizes[:-1]), "each time as much as asked for, and at most one answer more"


def test_long_slices_are_not_all_read_at_once() -> None:
    broker = Broker(0, 1000, step=1000)
    slices = [Slice(MessageQueue("T", "b", number), 0, 1000) for number in range(20)]
    pulls = pulls_of(broker, slices, batch_size=500, pipeline=3)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pulls.run)
            await trio.sleep(60)
            assert broker.pulls == 3
            pulls.stop()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_large_answers_of_short_slices_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketpy.spark.pulls.BYTES_AHEAD", 100)
    broker = Broker(0, 1000, step=5)
    slices = [Slice(MessageQueue("T", "b", number), 100, 200) for number in range(20)]
    pulls = pulls_of(broker, slices, batch_size=1000, pipeline=2)
    found: list[int] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pulls.run)
            await trio.sleep(60)
            assert broker.pulls <= 20 + ANSWERS_AHEAD, "one of each run, and those of the first"
            while answers := await pulls.take():
                found.extend(int(word) for answer in answers for word in answer.pulled.body.split())

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert found == list(range(100, 200)) * 20
