"""Sends the messages of tasks: requests of one topic and queue, several in flight, each one acknowledged in the end.

One producer per process serves all of its tasks. A task's Transfer holds what it has under way: at most inFlight
requests and about as many bytes of messages that wait for theirs to be full.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import attrs
import trio
import trio.lowlevel

from rocketpy.client.options import ProducerOptions
from rocketpy.client.producer import Producer
from rocketpy.client.results import SEND_STATUS, SendResult, SendStatus
from rocketpy.client.sending.queue_selection import JavaHashSelector
from rocketpy.client.sync import Blocking, blocking
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ClientError, MessageInvalid, RocketError, TransportError
from rocketpy.message.message_queue import MessageQueue

from .connection import BUSY_CODES
from .outgoing import Outgoing, PlainRow, RowRefused, SinkOptions, row_text

LATE_CODES: dict[SendStatus, int] = {
    status: code for code, status in SEND_STATUS.items() if status is not SendStatus.SEND_OK
}
REPEATABLE_CODES = BUSY_CODES | {ResponseCode.SYSTEM_ERROR, *LATE_CODES.values()}
NOT_STORED_OK = {
    SendStatus.FLUSH_DISK_TIMEOUT: "its disk is too slow (syncFlushTimeout): relieve the disk",
    SendStatus.FLUSH_SLAVE_TIMEOUT: "its slave is too slow (slaveTimeout): relieve the slave",
    SendStatus.SLAVE_NOT_AVAILABLE: "it has no slave in sync: start the slave",
}
"""Reason and remedy; the messages are stored, and consumers get them."""
RETRY_S, RETRY_MAX_S = 0.25, 5.0  # before the second attempt; each next wait is twice as long, up to this
SENDERS_MAX = 4

Target = tuple[str, MessageQueue | None]
"""Topic, and the queue if it matters."""


@attrs.define
class Receipt:
    """The messages that a task has stored in one queue: their number, first and last offset.

    Attributes:
        delayed: those of them that brokers keep elsewhere until their time; they have no offsets yet.
    """

    count: int = 0
    first_offset: int = -1  # no message has an offset yet
    last_offset: int = -1
    delayed: int = 0

    def add(self, first: int, count: int) -> None:
        self.join(Receipt(count, first, first + count - 1))

    def join(self, other: Receipt) -> None:
        """Count what another task has stored in the same queue."""
        if other.last_offset >= 0:
            firsts = (other.first_offset, self.first_offset)
            self.first_offset = min(first for first in firsts if first >= 0)
            self.last_offset = max(self.last_offset, other.last_offset)
        self.count += other.count
        self.delayed += other.delayed

    def span(self) -> str:
        """The offsets for a log line, after a comma; nothing if there are none."""
        offsets = f", offsets {self.first_offset} to {self.last_offset}" if self.last_offset >= 0 else ""
        return offsets + (f", {self.delayed} delayed" if self.delayed else "")


@attrs.define(eq=False)
class Transfer:
    """The messages of one task on their way. Its methods run in the thread of the producer."""

    producer: Producer
    nursery: trio.Nursery
    options: SinkOptions
    receipts: dict[MessageQueue, Receipt] = attrs.field(init=False, factory=dict)
    _waiting: dict[Target, list[Outgoing | PlainRow]] = attrs.field(init=False, factory=dict)
    _bytes: dict[Target, int] = attrs.field(init=False, factory=dict)
    _size: int = attrs.field(init=False, default=0)  # of all together
    _last: dict[MessageQueue, trio.Event] = attrs.field(init=False, factory=dict)  # a queue's newest request is done
    _error: RocketError | None = attrs.field(init=False, default=None)
    _slots: trio.CapacityLimiter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._slots = trio.CapacityLimiter(self.options.in_flight)

    async def add(self, outgoing: Sequence[Outgoing | PlainRow]) -> None:
        """Send these messages, now or with later ones; waits for room.

        Raises:
            RowRefused, ClientError, TransportError, BrokerError: a message was not stored, or may still be lost
                (onNotStoredOk). All but TransportError name its row. After a ClientError the same message may be stored
                later: its topic has no route now.
        """
        options, waiting, sizes = self.options, self._waiting, self._bytes
        for one in outgoing:
            if isinstance(one, PlainRow):
                target: Target = (one.topic, None)
                size, alone = len(one.member.body), False
            else:
                target = await self._target(one)
                size = len(one.message.body)
                alone = one.message.is_delayed or size >= options.compress_above
            batch = waiting.get(target)
            if batch is not None and (
                alone
                or len(batch) >= options.batch_records
                or batch[0].born_at_ms != one.born_at_ms  # a batch has one time
                or sizes[target] + size > options.batch_bytes
            ):
                await self._flush(target)
                batch = None
            if batch is None:
                batch = waiting[target] = []
                sizes[target] = 0
            batch.append(one)
            sizes[target] += size
            self._size += size
            if alone:
                await self._flush(target)
            elif self._size > options.in_flight * options.batch_bytes:
                await self._flush(max(sizes, key=sizes.__getitem__))

    async def finish(self) -> dict[MessageQueue, Receipt]:
        """Wait until everything is stored. Raises as `add`."""
        for target in list(self._waiting):
            await self._flush(target)
        for _ in range(self.options.in_flight):  # each slot is free when its request is answered
            await self._slots.acquire_on_behalf_of(object())
        self._raise()
        return self.receipts

    async def _target(self, one: Outgoing) -> Target:
        if one.queue is not None or one.sharding_key is None:
            return one.topic, one.queue
        try:
            queues = await self.producer.queues(one.message.topic)
        except ClientError as error:
            raise _of_row(error, one) from error
        return one.message.topic, JavaHashSelector().select(queues, one.message, one.sharding_key)

    async def _flush(self, target: Target) -> None:
        batch = self._waiting.pop(target, [])
        self._size -= self._bytes.pop(target, 0)
        if not batch:
            return
        borrower = object()
        await self._slots.acquire_on_behalf_of(borrower)
        if self._error is not None:
            self._slots.release_on_behalf_of(borrower)
            self._raise()
        queue, done = target[1], trio.Event()
        before = None if queue is None else self._last.get(queue)
        if queue is not None:
            self._last[queue] = done
        self.nursery.start_soon(self._send, batch, queue, before, done, borrower)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    async def _send(
        self,
        batch: list[Outgoing | PlainRow],
        queue: MessageQueue | None,
        before: trio.Event | None,
        done: trio.Event,
        borrower: object,
    ) -> None:
        try:
            if before is not None:  # a chosen queue keeps its order: a repeated request must not overtake the next
                await before.wait()
            await self._send_batch(batch, queue)
        except RocketError as error:
            self._error = self._error or error
        finally:
            done.set()
            self._slots.release_on_behalf_of(borrower)

    async def _send_batch(self, batch: list[Outgoing | PlainRow], queue: MessageQueue | None) -> None:
        if self._error is not None:
            return
        try:
            result = await self._attempt(batch, queue)
        except (BrokerError, ClientError, MessageInvalid) as error:
            row, topic = batch[0].row, batch[0].topic
            if isinstance(error, BrokerError) and error.code != ResponseCode.MESSAGE_ILLEGAL:
                raise BrokerError(
                    error.code, f"{row_text(row, topic)}: {error.remark}", address=error.address
                ) from error
            if isinstance(error, ClientError):  # it is of all messages of a topic and queue
                raise _of_row(error, batch[0]) from error
            if len(batch) == 1:
                raise RowRefused(row, topic, str(error)) from error
            middle = len(batch) // 2  # nobody says which it was; or with their properties all are too large together
            await self._send_batch(batch[:middle], queue)
            await self._send_batch(batch[middle:], queue)
            return
        receipt = self.receipts.setdefault(result.queue, Receipt())
        if isinstance(batch[0], Outgoing) and batch[0].message.is_delayed:  # the offset is of a queue of the schedule
            receipt.join(Receipt(len(batch), delayed=len(batch)))
        else:
            receipt.add(result.queue_offset, len(batch))

    async def _attempt(self, batch: list[Outgoing | PlainRow], queue: MessageQueue | None) -> SendResult:
        """Send, and again while that can help: elsewhere, if any queue will do.

        The producer itself goes to other brokers after a failure; here this is done after a status that is not SEND_OK.
        """
        elsewhere: MessageQueue | None = None
        for attempt in range(self.options.retries + 1):
            target, elsewhere = queue or elsewhere, None
            try:
                result = await self._request(batch, target)
                if result.status is SendStatus.SEND_OK or self.options.on_not_stored_ok == "accept":
                    return result
                elsewhere = await self._queue_elsewhere(batch[0].topic, result.queue)
                raise _not_stored_ok(result)
            except (TransportError, BrokerError) as error:
                may_pass = not isinstance(error, BrokerError) or error.code in REPEATABLE_CODES
                if not may_pass or attempt == self.options.retries or self._error is not None:  # the task has failed
                    raise
                await trio.sleep(min(RETRY_S * 2**attempt, RETRY_MAX_S))
        raise AssertionError("the last attempt returns or raises")

    async def _request(self, batch: list[Outgoing | PlainRow], queue: MessageQueue | None) -> SendResult:
        if len(batch) == 1:
            return await self.producer.send(batch[0].message, queue=queue)
        members = [one.member for one in batch if isinstance(one, PlainRow)]
        if len(members) < len(batch):
            return await self.producer.send_batch([one.message for one in batch], queue=queue)
        topic, born_at_ms = batch[0].topic, batch[0].born_at_ms
        return await self.producer.send_members(topic, members, queue=queue, born_at_ms=born_at_ms)

    async def _queue_elsewhere(self, topic: str, last: MessageQueue) -> MessageQueue | None:
        """Return a queue of the topic on another broker than `last`, if there is one."""
        queues = await self.producer.queues(topic)
        others = [queue for queue in queues if queue.broker_name != last.broker_name]
        return others[last.queue_id % len(others)] if others else None


def _not_stored_ok(result: SendResult) -> BrokerError:
    """Return a status that is not SEND_OK as an error with a remedy."""
    reason = (
        f"broker {result.queue.broker_name} has stored it, but {NOT_STORED_OK[result.status]}, or set "
        "onNotStoredOk=accept, which may lose messages with the master"
    )
    return BrokerError(LATE_CODES[result.status], reason)


def _of_row(error: ClientError, one: Outgoing | PlainRow) -> ClientError:
    """Return the error with the row that it was met at."""
    return ClientError(f"{row_text(one.row, one.topic)}: {error}", code=error.code)


class AsyncSender:
    """An open producer, and the tasks that send with it."""

    def __init__(self, group: str, options: ProducerOptions) -> None:
        self._producer = Producer(group, options)
        self._stack = AsyncExitStack()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._producer)
        self._nursery = await self._stack.enter_async_context(trio.open_nursery())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    async def begin(self, options: SinkOptions) -> Transfer:
        """A task begins."""
        assert self._nursery is not None, "use it within `async with`"
        return Transfer(self._producer, self._nursery, options)

    async def add(self, transfer: Transfer, outgoing: Sequence[Outgoing | PlainRow]) -> None:
        await transfer.add(outgoing)

    async def finish(self, transfer: Transfer) -> dict[MessageQueue, Receipt]:
        return await transfer.finish()


class Sender(Blocking[AsyncSender]):
    """AsyncSender, blocking: for Spark's threads."""

    backend = "trio"

    def __init__(self, group: str, options: ProducerOptions) -> None:
        super().__init__(AsyncSender(group, options))

    @property
    def is_open(self) -> bool:
        return not self._ended.done()

    begin = blocking(AsyncSender.begin)
    add = blocking(AsyncSender.add)
    finish = blocking(AsyncSender.finish)


class SenderPool:
    """The open producers of this process."""

    def __init__(self) -> None:
        self._senders: dict[tuple[int, str, ProducerOptions], Sender] = {}

    def get(self, group: str, options: ProducerOptions) -> Sender:
        """The sender for these options, opened if there is none."""
        key = (os.getpid(), group, options)
        if key in self._senders and not self._senders[key].is_open:
            del self._senders[key]
        if key not in self._senders:
            while len(self._senders) >= SENDERS_MAX:
                oldest = next(iter(self._senders))
                sender = self._senders.pop(oldest)
                if oldest[0] == os.getpid():
                    sender.close()
            self._senders[key] = Sender(group, options).start()
        return self._senders[key]


SENDERS = SenderPool()
