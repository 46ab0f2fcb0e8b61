"""A task's messages on their way: requests, order, retries, refusals, bounds; with a producer that stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.client.messages import Message
from rocketpy.client.results import SendResult, SendStatus
from rocketpy.client.sending.sender import Member
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ClientError, ConnectionLost, MessageInvalid, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.properties import decode_properties
from rocketpy.spark.options import parse_options
from rocketpy.spark.outgoing import Outgoing, PlainRow, RowRefused, SinkOptions
from rocketpy.spark.sending import Receipt, Transfer

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
Fault = Callable[[list[Message]], RocketError | None]


class Stored:
    """Stands for the producer: keeps what was sent, some time after it was asked."""

    def __init__(self, fault: Fault = lambda messages: None) -> None:
        self.requests: list[tuple[MessageQueue, list[bytes]]] = []
        self.fault = fault
        self.no_route: ClientError | None = None
        self.known_queues = (Q0, Q1)
        self.statuses: list[SendStatus] = []  # of the next requests
        self.ends: dict[MessageQueue, int] = {}
        self.in_flight = self.in_flight_max = self.calls = self.by_members = 0

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        if self.no_route is not None:
            raise self.no_route
        return self.known_queues

    async def send(self, message: Message, *, queue: MessageQueue | None = None) -> SendResult:
        return await self.send_batch([message], queue=queue)

    async def send_batch(self, messages: Sequence[Message], *, queue: MessageQueue | None = None) -> SendResult:
        self.calls += 1
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        await trio.sleep(0.001 * (self.calls * 7919 % 13))
        self.in_flight -= 1
        if error := self.fault(list(messages)):
            raise error
        place = queue or Q0
        first = self.ends.get(place, 0)
        self.ends[place] = first + len(messages)
        self.requests.append((place, [message.body for message in messages]))
        status = self.statuses.pop(0) if self.statuses else SendStatus.SEND_OK
        return SendResult(status, "id", "offset id", place, first)

    async def send_members(
        self, topic: str, members: Sequence[Member], *, queue: MessageQueue | None = None, born_at_ms: int = 0
    ) -> SendResult:
        self.by_members += 1
        made = [Message(topic, one.body, properties=decode_properties(one.properties)) for one in members]
        return await self.send_batch(made, queue=queue)


def plain(count: int, topic: str = "T", born_at_ms: int = 0) -> list[PlainRow]:
    return [PlainRow(topic, n, Member(b"%d" % n), born_at_ms) for n in range(count)]


def rows(count: int, **fields: Any) -> list[Outgoing]:
    return [Outgoing(Message("T", b"%d" % n), n, **fields) for n in range(count)]


def run(producer: Stored, outgoing: Sequence[Outgoing | PlainRow], **given: Any) -> dict[MessageQueue, Receipt]:
    texts = {"nameServer": "n:1", **{key: str(value) for key, value in given.items()}}
    options = parse_options(SinkOptions, texts)

    async def main() -> dict[MessageQueue, Receipt]:
        with trio.fail_after(10_000):
            async with trio.open_nursery() as nursery:
                transfer = Transfer(producer, nursery, options)  # type: ignore[arg-type]
                for at in range(0, len(outgoing), 7):
                    await transfer.add(outgoing[at : at + 7])
                return await transfer.finish()

    try:
        return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    except ExceptionGroup as group:
        (error,) = group.exceptions
        raise error from None


def bodies(producer: Stored) -> list[int]:
    return [int(body) for _, batch in producer.requests for body in batch]


def test_every_row_is_sent_once_in_requests_of_the_asked_size() -> None:
    producer = Stored()
    receipts = run(producer, rows(1000), batchRecords=64, inFlight=3)
    assert sorted(bodies(producer)) == list(range(1000))
    assert {len(batch) for _, batch in producer.requests} == {64, 1000 % 64}
    assert 1 < producer.in_flight_max <= 3
    assert receipts == {Q0: Receipt(1000, 0, 999)}
    by_bytes = Stored()
    run(by_bytes, rows(1000), batchBytes=30)
    assert sorted(bodies(by_bytes)) == list(range(1000))
    assert max(sum(map(len, batch)) for _, batch in by_bytes.requests) <= 30


def test_plain_rows_travel_as_members() -> None:
    producer = Stored()
    assert run(producer, plain(1000), batchRecords=64) == {Q0: Receipt(1000, 0, 999)}
    assert sorted(bodies(producer)) == list(range(1000))
    assert producer.by_members == producer.calls == 1000 // 64 + 1


def test_plain_rows_and_others_share_requests() -> None:
    mixed = [*plain(10), *rows(10), *plain(3, born_at_ms=5), *plain(1)]
    producer = Stored()
    run(producer, mixed)
    assert sorted(len(batch) for _, batch in producer.requests) == [1, 3, 20]
    assert producer.by_members == 1


def test_the_plain_row_that_a_broker_refuses_is_found_in_its_batch() -> None:
    def refuse(messages: list[Message]) -> RocketError | None:
        is_there = any(message.body == b"17" for message in messages)
        return BrokerError(ResponseCode.MESSAGE_ILLEGAL, "too odd") if is_there else None

    with pytest.raises(RowRefused, match=r"row 17 of this task \(topic T\): .*too odd"):
        run(Stored(refuse), plain(40), batchRecords=20)


def test_a_message_with_a_time_travels_alone() -> None:
    timed = [Outgoing(Message("T", b"%d" % n, deliver_at_ms=n), n) for n in (1, 2)]
    producer = Stored()
    run(producer, [*rows(1), *timed], batchRecords=64)
    assert sorted(len(batch) for _, batch in producer.requests) == [1, 1, 1] and sorted(bodies(producer)) == [0, 1, 2]


def test_a_request_has_one_born_timestamp() -> None:
    producer = Stored()
    times = [5, 5, 5, 0, 0, 7, 5]
    run(producer, [Outgoing(Message("T", b"%d" % n, born_at_ms=time), n) for n, time in enumerate(times)])
    assert sorted(sent for _, sent in producer.requests) == [[b"0", b"1", b"2"], [b"3", b"4"], [b"5"], [b"6"]]


def test_nothing_to_send() -> None:
    assert run(Stored(), []) == {}


def test_a_chosen_queue_keeps_its_order_through_retries() -> None:
    failures = [ConnectionLost("gone")] * 5
    producer = Stored(lambda messages: failures.pop() if failures and b"50" in [m.body for m in messages] else None)
    run(producer, rows(300, queue=Q1), batchRecords=10, inFlight=8, retryTimes=5)
    assert bodies(producer) == list(range(300)) and not failures


def test_equal_keys_go_to_one_queue() -> None:
    outgoing = [Outgoing(Message("T", b"%d" % n), n, sharding_key=f"k{n % 5}") for n in range(200)]
    producer = Stored()
    run(producer, outgoing, batchRecords=9)
    for key in range(5):
        places = {queue for queue, batch in producer.requests for body in batch if int(body) % 5 == key}
        assert len(places) == 1
    for queue in (Q0, Q1):
        numbers = [int(body) for place, batch in producer.requests if place == queue for body in batch]
        assert numbers == sorted(numbers)


def test_delayed_and_compressed_messages_travel_alone() -> None:
    outgoing = rows(3)
    outgoing[1] = Outgoing(Message("T", b"1", delay_level=3), 1)
    producer = Stored()
    run(producer, outgoing)
    assert sorted(len(batch) for _, batch in producer.requests) == [1, 1, 1]
    large = Stored()
    run(large, [*rows(2), Outgoing(Message("T", b"9" * 50), 2), *rows(2)], compressAbove=50)
    assert [b"9" * 50] in [batch for _, batch in large.requests]


def test_a_failure_that_may_pass_is_tried_again_and_ends_the_task_at_last() -> None:
    busy = [BrokerError(ResponseCode.SYSTEM_BUSY, "busy") for _ in range(2)]
    producer = Stored(lambda messages: busy.pop() if busy else None)
    run(producer, rows(5))
    assert sorted(bodies(producer)) == [0, 1, 2, 3, 4]
    down = Stored(lambda messages: ConnectionLost("gone"))
    with pytest.raises(ConnectionLost):
        run(down, rows(5), retryTimes=3)
    assert down.calls == 4


def test_a_refusal_is_not_tried_again() -> None:
    producer = Stored(lambda messages: BrokerError(ResponseCode.NO_PERMISSION, "no"))
    with pytest.raises(BrokerError, match="NO_PERMISSION"):
        run(producer, rows(1000), batchRecords=10, inFlight=2)
    assert producer.calls <= 3, "what follows an error is not sent"


LATE = [status for status in SendStatus if status is not SendStatus.SEND_OK]


@pytest.mark.parametrize("status", LATE, ids=lambda status: status.name)
@pytest.mark.parametrize("outgoing", [rows(5), plain(5), rows(1)], ids=["messages", "members", "one"])
def test_a_message_that_may_still_be_lost_is_sent_again(
    outgoing: Sequence[Outgoing | PlainRow], status: SendStatus
) -> None:
    """Fault: The sink counted messages as stored that a slow disk or an absent slave had not confirmed."""
    for_a_while, always, accepted = Stored(), Stored(), Stored()
    for_a_while.statuses = [status] * 2
    assert run(for_a_while, outgoing) == {Q0: Receipt(len(outgoing), len(outgoing) * 2, len(outgoing) * 3 - 1)}
    always.statuses = [status] * 100
    with pytest.raises(BrokerError, match=rf"{status.name}.*row 0 of this task .*: .*set onNotStoredOk=accept"):
        run(always, outgoing)
    assert (for_a_while.calls, always.calls) == (3, 3)
    accepted.statuses = [status]
    assert run(accepted, outgoing, onNotStoredOk="accept") == {Q0: Receipt(len(outgoing), 0, len(outgoing) - 1)}


def test_a_message_that_may_still_be_lost_goes_to_another_broker() -> None:
    """Unless its queue is chosen."""
    other, producer = MessageQueue("T", "other", 0), Stored()
    producer.known_queues = (Q0, Q1, other)
    producer.statuses = [SendStatus.SLAVE_NOT_AVAILABLE]
    assert run(producer, rows(5)) == {other: Receipt(5, 0, 4)}
    producer.statuses = [SendStatus.SLAVE_NOT_AVAILABLE]
    assert run(producer, rows(5, queue=Q1)) == {Q1: Receipt(5, 5, 9)}


def test_waits_between_attempts_are_bounded() -> None:
    """Fault: The wait doubled with each attempt, to three days at retryTimes=20."""
    producer = Stored()
    producer.statuses = [SendStatus.SLAVE_NOT_AVAILABLE] * 1000
    with pytest.raises(BrokerError, match="SLAVE_NOT_AVAILABLE"):
        run(producer, rows(5), retryTimes=100)
    assert producer.calls == 101  # `run` ends after 10 000 s


def test_after_a_failure_no_other_batch_is_repeated() -> None:
    """Fault: A failed task sent what it had in flight until all retries were used, beside the task that repeats it."""

    def fault(messages: list[Message]) -> RocketError | None:
        is_bad = any(message.body == b"0" for message in messages)
        code = ResponseCode.MESSAGE_ILLEGAL if is_bad else ResponseCode.SYSTEM_BUSY
        return BrokerError(code, "refused")

    async def main() -> None:
        options = parse_options(SinkOptions, {"nameServer": "n:1", "batchRecords": "1", "retryTimes": "50"})
        async with trio.open_nursery() as nursery:  # which ends when nothing is sent any more
            transfer = Transfer(producer, nursery, options)  # type: ignore[arg-type]
            with pytest.raises(RowRefused):
                await transfer.add(rows(8))
                await transfer.finish()

    producer = Stored(fault)
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert producer.calls <= 16


def test_every_refusal_names_a_row() -> None:
    """Fault: A query that failed because of a queue or a topic that is not there did not name a row."""
    illegal = BrokerError(ResponseCode.SYSTEM_ERROR, "request queueId[7] is illegal")
    with pytest.raises(BrokerError, match=r"SYSTEM_ERROR.*row 0 of this task \(topic T\): request queueId\[7\]"):
        run(Stored(lambda messages: illegal), rows(20, queue=Q1), retryTimes=0)
    no_route = ClientError("no route for topic T")
    with pytest.raises(ClientError, match=r"row 0 of this task \(topic T\): no route for topic T"):
        run(Stored(lambda messages: no_route), rows(20))
    keyed = [Outgoing(Message("T", b"x"), 3, sharding_key="k")]
    producer = Stored()
    producer.no_route = no_route
    with pytest.raises(ClientError, match=r"row 3 of this task \(topic T\): no route for topic T"):
        run(producer, keyed)


def test_the_row_that_a_broker_refuses_is_found_in_its_batch() -> None:
    def refuse(messages: list[Message]) -> RocketError | None:
        is_there = any(message.body == b"17" for message in messages)
        return BrokerError(ResponseCode.MESSAGE_ILLEGAL, "too odd") if is_there else None

    with pytest.raises(RowRefused, match=r"row 17 of this task \(topic T\): .*too odd"):
        run(Stored(refuse), rows(40), batchRecords=20)


def test_a_row_that_the_client_cannot_encode_is_found_in_its_batch() -> None:
    """Fault: A row with 0x01 or 0x02 in its properties failed a query without being named."""

    def refuse(messages: list[Message]) -> RocketError | None:
        is_there = any(message.body == b"17" for message in messages)
        return MessageInvalid("property 'a' holds one of the separators 0x01, 0x02") if is_there else None

    with pytest.raises(RowRefused, match=r"row 17 of this task \(topic T\): property 'a' holds"):
        run(Stored(refuse), rows(40), batchRecords=20)


def test_messages_that_are_too_large_together_are_sent_in_smaller_requests() -> None:
    """batchBytes counts bodies; properties may be many times larger.
    Fault: Messages too large together with their properties failed a query."""
    producer = Stored(lambda messages: MessageInvalid("too large") if len(messages) > 6 else None)
    run(producer, rows(100, queue=Q1), batchRecords=50)
    assert bodies(producer) == list(range(100)), "in their order"


def test_what_waits_is_bounded_over_many_queues() -> None:
    """Messages of a thousand topics, none of which fills a request: the largest go before the bound is passed."""
    outgoing = [Outgoing(Message(f"T{n % 1000}", b"x" * 10), n) for n in range(3000)]
    producer = Stored()
    run(producer, outgoing, batchBytes=100, inFlight=4)
    assert sum(len(batch) for _, batch in producer.requests) == 3000
    assert producer.calls >= 3000 * 10 / (4 * 100)
