"""Pulls of slices: order, gaps, retries and lost messages, against a broker of numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.client.results import ClientCode, PullStatus, StoredPull
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ClientError, ConnectionLost, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.headers.pull import PullMessageRequestHeader
from rocketpy.spark.data_lost import MessagesMissing, QueueGone, ReplicaBehind
from rocketpy.spark.pulls import (
    ANSWERS_AHEAD,
    ATTEMPTS,
    RUNS_AHEAD,
    RUNS_TOGETHER,
    Answer,
    Pulls,
    PullSettings,
    Slice,
    grouped,
)

QUEUE = MessageQueue("T", "b", 0)
Rule = Callable[[int], RocketError | None]


class Broker:
    """Answers pulls with offsets as bodies, some messages at a time. It is the instance and its api as well."""

    def __init__(
        self, first: int, end: int, step: int = 32, fault: Rule = lambda offset: None, gone: range = range(0)
    ) -> None:
        """`gone`: offsets of the queue whose records were deleted; answers leave them out."""
        self.first, self.end, self.step, self.fault, self.gone = first, end, step, fault, gone
        self.broker_id = 0
        self.has_route = True
        self.in_flight = self.in_flight_max = self.pulls = self.together = self.asked = 0
        self.api = self

    async def find_reader(self, queue: MessageQueue, broker_id: int) -> tuple[int, str]:
        return self.broker_id, "b:1"

    async def update_route(self, topic: str) -> bool:
        self.asked += 1
        return self.has_route

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
        body = b"".join(b"%d " % number for number in range(offset, stop) if number not in self.gone)
        status = PullStatus.FOUND if body else PullStatus.NO_MATCHED_MSG
        return StoredPull(status, stop, self.first, self.end, body)

    async def pull_all_stored(
        self, address: str, headers: Sequence[PullMessageRequestHeader], timeout_s: float
    ) -> list[StoredPull]:
        """All of them at once; the first error is the answer of all."""
        self.together += 1
        answers: dict[int, StoredPull] = {}
        errors: list[RocketError] = []

        async def ask(number: int) -> None:
            try:
                answers[number] = await self.pull_stored(address, headers[number], timeout_s)
            except RocketError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            for number in range(len(headers)):
                nursery.start_soon(ask, number)
        if errors:
            raise errors[0]
        return [answers[number] for number in range(len(headers))]


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
    assert isinstance(error, MessagesMissing | ReplicaBehind)
    return {str(error).split(". ")[0]}


def test_messages_whose_records_are_gone_are_not_taken_for_others_that_do_not_match() -> None:
    """Brokers say "no match, go on behind them" of both.
    Fault: Spark left out messages with damaged or just deleted records, even with failOnDataLoss."""
    broker = Broker(0, 100, gone=range(40, 60))
    with pytest.raises(BaseException) as caught:
        read(broker, 0, 100, batch_size=20)
    reason = "its record was deleted a moment ago, or is damaged"
    assert flat(caught.value) == {f"queue 0 of topic T on b: the broker skips offset 40: {reason}"}
    found, pulls = read(broker, 0, 100, batch_size=20, fail_on_data_loss=False)
    assert found == [*range(40), *range(60, 100)] and pulls.lost == {QUEUE: 20}
    found, pulls = read(broker, 0, 100, batch_size=20, expression="a || b")
    assert found == [*range(40), *range(60, 100)] and not pulls.lost, "with tags it may be that none matches"


@pytest.mark.parametrize("fail", [True, False])
def test_what_a_slave_lacks_is_not_lost(fail: bool) -> None:
    """The master had 100 messages when the query was planned, and is away now.
    Fault: Spark skipped messages that a slave lacked while its master was away."""
    slave = Broker(0, 60)
    slave.broker_id = 1
    with pytest.raises(BaseException) as caught:
        read(slave, 0, 100, batch_size=50, pipeline=1, fail_on_data_loss=fail)
    (text,) = flat(caught.value)
    assert text.startswith("queue 0 of topic T on b: offset 60 is wanted, but the master is away, and the slave b:1")
    assert slave.asked == ATTEMPTS - 1, "the master may be back meanwhile"


def test_a_queue_that_is_behind_for_a_moment_is_read_to_the_end() -> None:
    broker = Broker(0, 60)

    def grow(offset: int) -> None:
        broker.end = 100 if offset == 60 and broker.asked else broker.end

    broker.fault = grow
    assert read(broker, 0, 100, batch_size=50, pipeline=1, fail_on_data_loss=False)[0] == list(range(100))


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


def test_a_topic_that_is_deleted_meanwhile_is_lost() -> None:
    """Fault: A task failed when its topic was deleted while it read, also with failOnDataLoss=false."""
    gone = BrokerError(ResponseCode.TOPIC_NOT_EXIST, "no topic")
    no_broker = ClientError("broker b is not known", code=ClientCode.BROKER_NOT_EXIST)
    for error in (gone, no_broker):
        broker = Broker(0, 100, step=10, fault=lambda offset, error=error: error if offset >= 30 else None)  # type: ignore[misc]
        with pytest.RaisesGroup(type(error)):  # the name server still has a route
            read(broker, 0, 100, fail_on_data_loss=False)
        broker.has_route = False
        with pytest.RaisesGroup(pytest.RaisesExc(QueueGone, match="queue 0 of topic T on b: was read up to 30")):
            read(broker, 0, 100, batch_size=100)
        found, pulls = read(broker, 0, 100, batch_size=100, fail_on_data_loss=False)
        assert found == list(range(30)) and pulls.lost[QUEUE] == 70


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


def read_all(broker: Broker, slices: list[Slice], **settings: Any) -> list[tuple[MessageQueue, int]]:
    """The messages of the slices, as they come."""
    pulls = pulls_of(broker, slices, **settings)

    async def main() -> list[Answer]:
        found: list[Answer] = []
        with trio.fail_after(1000):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pulls.run)
                while answers := await pulls.take():
                    found += answers
        return found

    answers = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return [(one.run.queue, int(word)) for one in answers for word in one.pulled.body.split()]


def short_slices(count: int) -> tuple[list[Slice], list[tuple[MessageQueue, int]]]:
    """One after the other from the queues of a topic, and what they hold."""
    slices = [Slice(MessageQueue("T", "b", number), 3, 5 + number % 7) for number in range(count)]
    return slices, [(one.queue, offset) for one in slices for offset in range(one.begin, one.end)]


def test_short_slices_are_pulled_together() -> None:
    slices, expected = short_slices(100)
    broker = Broker(0, 100)
    assert read_all(broker, slices) == expected
    assert broker.pulls == 100 and broker.together == -(-100 // RUNS_TOGETHER)


@pytest.mark.parametrize("step", [1, 3])
def test_what_pulls_together_do_not_give_is_pulled_afterwards(step: int) -> None:
    slices, expected = short_slices(100)
    assert read_all(Broker(0, 100, step), slices) == expected


def test_pulls_together_that_fail_are_made_one_by_one() -> None:
    slices, expected = short_slices(40)
    failures = [ConnectionLost("gone"), BrokerError(ResponseCode.SYSTEM_BUSY, "busy")]
    broker = Broker(0, 100, fault=lambda offset: failures.pop() if failures else None)
    assert read_all(broker, slices) == expected and not failures


def test_a_refusal_of_one_of_many_ends_the_reading() -> None:
    slices, _ = short_slices(40)
    refusal = BrokerError(ResponseCode.NO_PERMISSION, "no")
    with pytest.raises(BaseException) as caught:
        read_all(Broker(0, 100, fault=lambda offset: refusal), slices)
    errors = caught.value.exceptions if isinstance(caught.value, BaseExceptionGroup) else (caught.value,)
    assert errors == (refusal,)


def test_lost_messages_of_short_slices_are_an_error_or_passed_over() -> None:
    slices, expected = short_slices(40)
    with pytest.raises(BaseException) as caught:
        read_all(Broker(4, 100), slices)
    assert all("offset 3 is wanted, 4 to 100 are there" in text for text in flat(caught.value))
    found = read_all(Broker(4, 100), slices, fail_on_data_loss=False)
    assert found == [(queue, offset) for queue, offset in expected if offset >= 4]


@pytest.mark.parametrize("seed", range(20))
def test_groups_hold_all_runs_in_order(seed: int) -> None:
    rng = random.Random(seed)
    runs = [
        Slice(MessageQueue("T", rng.choice("ab"), number), 5, 5 + rng.choice((1, 1, 1, 60, 100)))
        for number in range(rng.randrange(80))
    ]
    groups = list(grouped(runs, 100))
    assert [run for group in groups for run in group] == runs, f"seed {seed}"
    for group in groups:
        assert len(group) <= RUNS_TOGETHER and len({run.queue.broker_name for run in group}) == 1
        assert sum(run.count for run in group) <= 100


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
