"""Automatic batches: messages that are sent within `linger` seconds of each other share a request.

A batch is of one topic. It has one queue if its messages choose theirs, and else gets one in turn when it leaves. What
goes to a chosen queue leaves one request after the other, so a repeated attempt changes no order; other batches leave
together. A batch leaves when it is full, or `linger` seconds after its first message.

Source: RocketMQ 5 `ProduceAccumulator`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn, TypeAlias

import attrs

from rocketpy import aio
from rocketpy.errors import ClientError, RequestTimeout, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import RETRY_PREFIX

from ..messages import Message, Reply
from ..results import SendResult, results_of_members
from .handles import InFlight, SendHandle
from .sender import OutgoingMessage, Sender, batch_of

Deliver: TypeAlias = Callable[[OutgoingMessage, MessageQueue | None, float, float], Awaitable[SendResult]]
"""Sends a message or a batch, to the queue if there is one; since when its timeout runs, and the timeout."""
Kind: TypeAlias = tuple[bool, int, float]  # wait_store, born_at_ms, timeout: equal for all messages of a batch


@attrs.define(eq=False)
class _Shipment:
    """One request: its message or batch, and the handles that get the outcome."""

    outgoing: OutgoingMessage
    queue: MessageQueue | None
    begin_s: float
    timeout_s: float
    handles: Sequence[SendHandle]
    size: int

    def finish(self, outcome: SendResult | RocketError | None) -> None:
        """End all waits: with a result, an error, or because the producer was closed."""
        if not isinstance(outcome, SendResult):
            for handle in self.handles:
                handle.finish(None, outcome)
        elif self.outgoing.is_batch:
            results = results_of_members(outcome, [handle.msg_id for handle in self.handles])
            for handle, result in zip(self.handles, results, strict=True):
                handle.finish(result)
        else:
            self.handles[0].finish(outcome)


@attrs.define(eq=False)
class _Batch:
    """A batch that takes more messages."""

    topic: str
    queue: MessageQueue | None
    kind: Kind
    begin_s: float  # since when the timeout of its first message runs
    due_s: float
    size: int = attrs.field(init=False, default=0)
    entries: list[bytes] = attrs.field(init=False, factory=list)
    handles: list[SendHandle] = attrs.field(init=False, factory=list)

    def shipment(self) -> _Shipment:
        wait_store, born_at_ms, timeout_s = self.kind
        ids = [handle.msg_id for handle in self.handles]
        outgoing = batch_of(self.topic, b"".join(self.entries), ids, wait_store=wait_store, born_at_ms=born_at_ms)
        return _Shipment(outgoing, self.queue, self.begin_s, timeout_s, self.handles, self.size)


@attrs.define(eq=False)
class Accumulator:
    """The batches of one producer, bounded by `in_flight`."""

    sender: Sender
    in_flight: InFlight
    deliver: Deliver
    nursery: aio.Nursery
    _linger_s: float = attrs.field(init=False)
    _bytes_max: int = attrs.field(init=False)
    _count_max: int = attrs.field(init=False)
    _size_max: int = attrs.field(init=False)  # of a message's body
    _has_closed: bool = attrs.field(init=False, default=False)  # a batch waits for the loop
    _is_over: bool = attrs.field(init=False, default=False)  # `run` has ended
    _clock: Callable[[], float] = attrs.field(init=False, factory=aio.clock)
    _open: dict[MessageQueue | str, _Batch] = attrs.field(init=False, factory=dict)  # by queue or topic; oldest first
    _lines: dict[MessageQueue, deque[_Shipment]] = attrs.field(init=False, factory=dict)  # behind the one under way
    _opened: aio.Event = attrs.field(init=False, factory=aio.Event)

    def __attrs_post_init__(self) -> None:
        options = self.sender.options
        self._linger_s = options.linger
        self._bytes_max = min(options.batch_bytes_max, options.message_size_max)
        self._count_max = options.batch_count_max
        self._size_max = min(options.compress_over, self._bytes_max)

    def takes(self, message: Message) -> bool:
        """Return True if the message may be in a batch: brokers refuse some kinds, and batches are not compressed."""
        return (
            len(message.body) < self._size_max
            and not (message.delay_level or message.delay_ms or message.deliver_at_ms)
            and message.__class__ is not Reply
            and not message.topic.startswith(RETRY_PREFIX)
        )

    def add_nowait(
        self, message: Message, timeout_s: float, on_done: Callable[[SendHandle], None] | None
    ) -> SendHandle | None:
        """As `add`, to any queue, if there is room at once, and other tasks have had their turn since the last batch
        was closed; None if not."""
        if self._has_closed or self._is_over or self.in_flight.is_waited_for:
            return None
        msg_id, entry = self.sender.prepare_member(message)
        if not self.in_flight.take(len(entry)):
            return None
        return self._put(message, None, timeout_s, None, SendHandle(msg_id, on_done), entry)

    async def add(
        self,
        message: Message,
        queue: MessageQueue | None,
        timeout_s: float,
        begin_s: float | None = None,
        on_done: Callable[[SendHandle], None] | None = None,
    ) -> SendHandle:
        """Put a message into the open batch of its queue, or of its topic, as soon as there is room.

        Args:
            begin_s: since when its timeout runs; None: since now. That of a batch is its first message's.
        Raises:
            MessageInvalid: no broker would take it. RequestTimeout: there was no room. ClientError: the producer was
                closed meanwhile.
        """
        msg_id, entry = self.sender.prepare_member(message)
        if self._has_closed:
            self._has_closed = False
            await aio.sleep(0)
        if not self.in_flight.take(len(entry)):
            begin_s = await self._wait_for_room(len(entry), timeout_s, begin_s)
        if self._is_over:
            self._refuse(msg_id, len(entry))
        return self._put(message, queue, timeout_s, begin_s, SendHandle(msg_id, on_done), entry)

    def _put(
        self,
        message: Message,
        queue: MessageQueue | None,
        timeout_s: float,
        begin_s: float | None,
        handle: SendHandle,
        entry: bytes,
    ) -> SendHandle:
        """Put an encoded message, which has its place, into a batch."""
        kind, size = (message.wait_store, message.born_at_ms, timeout_s), len(entry)
        place = message.topic if queue is None else queue
        batch = self._open.get(place)
        if batch is not None and (batch.kind != kind or batch.size + size > self._bytes_max):
            self._close(place)
            batch = None
        if batch is None:
            now_s = self._clock()
            begin_s = now_s if begin_s is None else begin_s
            batch = self._open[place] = _Batch(message.topic, queue, kind, begin_s, now_s + self._linger_s)
            self._opened.set()
        batch.entries.append(entry)
        batch.handles.append(handle)
        batch.size += size
        if batch.size >= self._bytes_max or len(batch.handles) >= self._count_max:
            self._close(place)
        return handle

    async def _wait_for_room(self, size: int, timeout_s: float, begin_s: float | None) -> float:
        """Take a place as soon as there is one. Returns: since when the timeout runs."""
        begin_s = self._clock() if begin_s is None else begin_s
        if self.in_flight.take(size):
            return begin_s
        if not self.in_flight.is_waited_for:
            self.flush()
        with aio.move_on_at(begin_s + timeout_s):
            await self.in_flight.acquire(size)
            return begin_s
        raise RequestTimeout(f"no room among the {self.in_flight.count} messages under way: raise in_flight_max")

    async def add_alone(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | None,
        timeout_s: float,
        begin_s: float | None = None,
        on_done: Callable[[SendHandle], None] | None = None,
    ) -> SendHandle:
        """As `add`, for a message that cannot be in a batch: it leaves behind those that were sent to its queue before
        it."""
        size = len(outgoing.body)
        begin_s = await self._wait_for_room(size, timeout_s, begin_s)
        if self._is_over:
            self._refuse(outgoing.msg_id, size)
        if queue is not None and queue in self._open:
            self._close(queue)
        handle = SendHandle(outgoing.msg_id, on_done)
        self._ship(_Shipment(outgoing, queue, begin_s, timeout_s, [handle], size))
        return handle

    def _refuse(self, msg_id: str, size: int) -> NoReturn:
        """Give the place of a message away that came too late: nothing would send it, nor end its wait."""
        self.in_flight.release(size)
        raise ClientError(f"message {msg_id} was not sent: the producer was closed")

    def flush(self) -> None:
        """Let all open batches leave."""
        for place in list(self._open):
            self._close(place)

    async def run(self) -> None:
        """Let batches leave when they are due; those that are open at the end are given up."""
        try:
            while True:
                while not self._open:
                    self._opened = aio.Event()
                    await self._opened.wait()
                await aio.sleep_until(next(iter(self._open.values())).due_s)
                now_s = self._clock()
                for place in [place for place, batch in self._open.items() if batch.due_s <= now_s]:
                    self._close(place)
        finally:
            self._is_over = True
            for batch in self._open.values():
                self._finish(batch.shipment(), None)

    def _close(self, place: MessageQueue | str) -> None:
        self._has_closed = True
        self._ship(self._open.pop(place).shipment())

    def _ship(self, shipment: _Shipment) -> None:
        if shipment.queue is None:
            self.nursery.start_soon(self._send, shipment)
        elif shipment.queue in self._lines:
            self._lines[shipment.queue].append(shipment)
        else:
            self._lines[shipment.queue] = deque([shipment])
            self.nursery.start_soon(self._send_line, shipment.queue)

    async def _send_line(self, queue: MessageQueue) -> None:
        """Send what goes to one queue, one request after the other."""
        line = self._lines[queue]
        try:
            while line:
                await self._send(line.popleft())
        finally:
            del self._lines[queue]
            for shipment in line:
                self._finish(shipment, None)

    async def _send(self, shipment: _Shipment) -> None:
        outcome: SendResult | RocketError | None = None
        try:
            outcome = await self.deliver(shipment.outgoing, shipment.queue, shipment.begin_s, shipment.timeout_s)
        except RocketError as error:
            outcome = error
        finally:
            self._finish(shipment, outcome)
            del shipment, outcome  # an error among the locals of its own traceback would be a cycle

    def _finish(self, shipment: _Shipment, outcome: SendResult | RocketError | None) -> None:
        self.in_flight.release(shipment.size, len(shipment.handles))
        shipment.finish(outcome)
