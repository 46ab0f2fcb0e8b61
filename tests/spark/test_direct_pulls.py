"""Direct pulls against a broker of numbers: what they read, what they leave to `Pulls`, their bounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rocketpy.client.results import PullStatus, StoredPull
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ConnectFailed, ConnectionLost, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.headers.pull import PullMessageRequestHeader
from rocketpy.spark import direct_pulls
from rocketpy.spark.direct_pulls import FULL_ANSWERS, DirectPulls
from rocketpy.spark.pulls import RUNS_AHEAD, Answer, PullSettings, Slice

QUEUE = MessageQueue("T", "b", 0)
Fault = Callable[[PullMessageRequestHeader], RocketError | StoredPull | None]


class Broker:
    """Answers pulls with offsets as bodies, at most `step` messages at a time. It is the connections to it as well."""

    def __init__(self, step: int = 32, fault: Fault = lambda header: None) -> None:
        self.step, self.fault = step, fault
        self.writes: list[list[PullMessageRequestHeader]] = []
        self.ask_fault: Callable[[], RocketError | None] = lambda: None
        self.in_flight: dict[int, PullMessageRequestHeader] = {}
        self.in_flight_max = self.messages_max = self.taken = self.given_back = 0
        self.numbers = 0

    def take(self, address: str, timeout_s: float) -> Broker:
        if address == "nowhere":
            raise ConnectFailed("connect to <nowhere> failed")
        self.taken += 1
        return self

    def give_back(self, connection: Broker) -> None:
        self.given_back += 1

    def ask(self, headers: Sequence[PullMessageRequestHeader]) -> list[int]:
        if error := self.ask_fault():
            raise error
        self.writes.append(list(headers))
        numbers = list(range(self.numbers, self.numbers + len(headers)))
        self.numbers += len(headers)
        self.in_flight |= dict(zip(numbers, headers, strict=True))
        self.in_flight_max = max(self.in_flight_max, len(self.in_flight))
        self.messages_max = max(self.messages_max, sum(one.max_msg_nums for one in self.in_flight.values()))
        return numbers

    def pulled(self, number: int) -> StoredPull:
        header = self.in_flight.pop(number)
        begin = header.queue_offset
        answer = self.fault(header)
        if isinstance(answer, RocketError):
            raise answer
        stop = begin + min(self.step, header.max_msg_nums)
        body = b"".join(b"%d " % offset for offset in range(begin, stop))
        return answer or StoredPull(PullStatus.FOUND, stop, 0, 10**6, body)


def pulls_of(broker: Broker, slices: list[Slice], address: str = "b:1", **settings: Any) -> DirectPulls:
    return DirectPulls(slices, PullSettings("g", **settings), broker, lambda queue: address)  # type: ignore[arg-type]


def read(pulls: DirectPulls, size: int = 1) -> list[Answer]:
    """All answers of direct pulls."""
    found: list[Answer] = []
    while answers := pulls.take(size):
        found += answers
    pulls.close()
    return found


def offsets(answers: list[Answer]) -> list[tuple[MessageQueue, int]]:
    return [(one.run.queue, int(word)) for one in answers for word in one.pulled.body.split()]


def of(slices: list[Slice]) -> list[tuple[MessageQueue, int]]:
    return [(one.queue, offset) for one in slices for offset in range(one.begin, one.end)]


@pytest.mark.parametrize("step", [1, 32, 100, 5000])
@pytest.mark.parametrize("pipeline", [1, 4, 9])
def test_offsets_come_once_and_in_order(step: int, pipeline: int) -> None:
    broker, slices = Broker(step), [Slice(QUEUE, 7, 2950)]
    pulls = pulls_of(broker, slices, batch_size=100, pipeline=pipeline)
    assert offsets(read(pulls)) == of(slices) and not pulls.rest
    assert broker.taken == broker.given_back == 1 and not broker.in_flight


def test_an_answer_says_from_where_it_is() -> None:
    answers = read(pulls_of(Broker(30), [Slice(QUEUE, 0, 100)], batch_size=50))
    assert sum(one.offsets for one in answers) == 100
    assert all(one.is_within and int(one.pulled.body.split()[0]) == one.begin for one in answers)


@pytest.mark.parametrize("seed", range(20))
def test_direct_and_other_pulls_together_read_each_offset_once(seed: int) -> None:
    """Whatever fails at whatever time, nothing is left out between the paths, and nothing comes twice."""
    rng = random.Random(seed)
    slices = [
        Slice(MessageQueue("T", rng.choice("ab"), number), 5, 6 + rng.choice((0, 1, 60, 500)))
        for number in range(rng.randrange(1, 30))
    ]
    left = [rng.randrange(60)]

    def fails() -> RocketError | None:
        left[0] -= 1
        return ConnectionLost("gone") if left[0] == 0 else None

    broker = Broker(rng.choice((1, 7, 50)), fault=lambda header: fails())
    broker.ask_fault = fails
    pulls = pulls_of(broker, slices, batch_size=50, pipeline=rng.choice((1, 3)))
    assert offsets(read(pulls, rng.choice((1, 300)))) + of(pulls.rest) == of(slices), f"seed {seed}"


def test_an_answer_is_not_lost_with_the_request_for_the_rest_of_its_run() -> None:
    broker = Broker(10)
    failures = [ConnectionLost("gone"), None]
    broker.ask_fault = lambda: failures.pop() if failures else None
    pulls = pulls_of(broker, [Slice(QUEUE, 0, 40)])
    assert offsets(read(pulls)) + of(pulls.rest) == of([Slice(QUEUE, 0, 40)])


@pytest.mark.parametrize(
    "unusual",
    [
        ConnectionLost("gone"),
        BrokerError(ResponseCode.SYSTEM_BUSY, "busy"),
        StoredPull(PullStatus.OFFSET_ILLEGAL, 50, 50, 100, b""),
        StoredPull(PullStatus.NO_NEW_MSG, 20, 0, 20, b""),
        StoredPull(PullStatus.NO_MATCHED_MSG, 40, 0, 100, b""),
        StoredPull(PullStatus.FOUND, 20, 0, 100, b"20 "),
    ],
)
def test_the_slow_path_deals_with_all_that_is_unusual(unusual: RocketError | StoredPull) -> None:
    broker = Broker(20, fault=lambda header: unusual if header.queue_offset == 20 else None)
    pulls = pulls_of(broker, [Slice(QUEUE, 0, 100)], batch_size=20)
    assert offsets(read(pulls)) == of([Slice(QUEUE, 0, 20)])
    assert of(pulls.rest) == of([Slice(QUEUE, 20, 100)])
    assert broker.taken == broker.given_back


def test_a_broker_that_cannot_be_reached_is_left_to_the_slow_path() -> None:
    pulls = pulls_of(Broker(), [Slice(QUEUE, 0, 100)], "nowhere")
    assert not read(pulls) and of(pulls.rest) == of([Slice(QUEUE, 0, 100)])


def test_offsets_without_match_are_passed_over_where_a_query_filters() -> None:
    def none_below_60(header: PullMessageRequestHeader) -> StoredPull | None:
        stop = header.queue_offset + header.max_msg_nums
        return StoredPull(PullStatus.NO_MATCHED_MSG, stop, 0, 100, b"") if stop <= 60 else None

    pulls = pulls_of(Broker(20, fault=none_below_60), [Slice(QUEUE, 0, 100)], batch_size=20, expression="a || b")
    assert offsets(read(pulls)) == of([Slice(QUEUE, 60, 100)]) and not pulls.rest


def test_runs_have_as_many_messages_as_brokers_give_at_once() -> None:
    """A broker that gives 60 of 64 is not asked for the other 4 of each run by themselves."""
    broker = Broker(60)
    answers = read(pulls_of(broker, [Slice(QUEUE, 0, 60_000)], batch_size=64, pipeline=4))
    tried = 1 + len(answers) // FULL_ANSWERS
    assert tried > 3 and len(answers) <= 1000 + 4 * tried, "short runs after a longer one was tried"
    one_short = Broker(
        64, fault=lambda header: StoredPull(PullStatus.FOUND, 3, 0, 9, b"") if is_first(header) else None
    )
    answers = read(pulls_of(one_short, [Slice(QUEUE, 0, 64_000)], batch_size=64, pipeline=4))
    assert len(answers) < 1000 + 6 * FULL_ANSWERS, "longer runs are tried again"


def is_first(header: PullMessageRequestHeader) -> bool:
    return header.queue_offset == 0


def test_what_is_asked_for_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(1000)
    read(pulls_of(broker, [Slice(QUEUE, 0, 100_000)], batch_size=1000, pipeline=3))
    assert broker.messages_max == 3000
    broker = Broker()
    read(pulls_of(broker, [Slice(MessageQueue("T", "b", number), 3, 5) for number in range(300)], batch_size=1000))
    assert broker.in_flight_max == RUNS_AHEAD
    monkeypatch.setattr(direct_pulls, "BYTES_AHEAD", 1000)
    broker = Broker(100)  # answers of 290 to 590 bytes
    found = offsets(read(pulls_of(broker, [Slice(QUEUE, 0, 10_000)], batch_size=100, pipeline=9)))
    assert found == of([Slice(QUEUE, 0, 10_000)])
    late = [len(headers) for headers in broker.writes[10:]]
    assert set(late) == {1}, "two answers of 500 bytes would be more than may be under way"


def test_requests_leave_together() -> None:
    broker, slices = Broker(), [Slice(MessageQueue("T", "b", number), 3, 4 + number % 7) for number in range(320)]
    assert offsets(read(pulls_of(broker, slices, batch_size=1000))) == of(slices)
    assert len(broker.writes) <= 1 + 2 * 320 // RUNS_AHEAD


def test_answers_come_in_portions() -> None:
    slices = [Slice(MessageQueue("T", "b", number), 3, 5) for number in range(100)]
    pulls, sizes = pulls_of(Broker(), slices), []
    while answers := pulls.take(100):
        sizes.append(sum(len(one.pulled.body) for one in answers))
    assert all(100 <= size < 104 for size in sizes[:-1]), "as much as asked for, and at most one answer more"


def test_an_end_before_the_end_of_the_slices() -> None:
    broker = Broker()
    pulls = pulls_of(broker, [Slice(QUEUE, 0, 10_000)], batch_size=32)
    assert len(pulls.take(1)) == 1
    pulls.close()
    assert broker.given_back == broker.taken == 1
    assert not pulls.take(1), "it is closed"
