"""Concurrent consumption: messages of all queues go to the handler in any order; failed ones come back later.

Source: RocketMQ 4.9 `ConsumeMessageConcurrentlyService`.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import attrs

from rocketpy import aio
from rocketpy.errors import RocketError
from rocketpy.message.message_queue import MessageQueue

from ..messages import ReceivedMessage
from ..results import acknowledged_count
from .context import ConsumeContext
from .handler import InProgress
from .process_queue import ProcessQueue

logger = logging.getLogger(__name__)

CONSUME_AGAIN_DELAY_S = 5.0  # after a send-back that failed
EXPIRED_DELAY_LEVEL = 3  # of messages whose handler takes too long
EXPIRED_PER_ROUND_MAX = 16
TURN = 64  # chunks of handlers that do not wait; then other tasks have their turn


class _Chunk(NamedTuple):
    """The messages of one handler call."""

    queue: MessageQueue
    process_queue: ProcessQueue
    messages: Sequence[ReceivedMessage]


class _RankedChunks:
    """As a deque; a chunk of a lower rank is taken first, those of one rank in order."""

    def __init__(self, rank: Callable[[_Chunk], int]) -> None:
        self._heap: list[tuple[int, int, _Chunk]] = []  # the numbers keep the order, and chunks from being compared
        self._numbers = itertools.count()
        self._rank = rank

    def __len__(self) -> int:
        return len(self._heap)

    def append(self, chunk: _Chunk) -> None:
        heappush(self._heap, (self._rank(chunk), next(self._numbers), chunk))

    def popleft(self) -> _Chunk:
        return heappop(self._heap)[2]


@attrs.define(eq=False)
class ConcurrentService:
    """At most `concurrency` workers share one queue of chunks.

    The queue has no bound of its own: the flow control of each queue's pulls bounds what can be in it. A worker that
    takes a chunk calls another one for the next, before its handler may wait: so handlers run beside each other, and
    those that do not wait are called by one task.
    """

    context: ConsumeContext
    _chunks: deque[_Chunk] | _RankedChunks | None = attrs.field(init=False, default=None)  # an empty one: 760 bytes
    _nursery: aio.Nursery | None = attrs.field(init=False, default=None)
    _worker_count: int = attrs.field(init=False, default=0)
    _idle: list[aio.Future[None]] = attrs.field(init=False, factory=list)  # of workers without a chunk
    _is_called: bool = attrs.field(init=False, default=False)  # a worker is on its way
    _in_progress: InProgress = attrs.field(init=False, factory=InProgress)

    def _rank(self, chunk: _Chunk) -> int:
        """A message that is retried counts as one of its first topic."""
        return self.context.options.topic_rank(self.context.restored(chunk.messages[:1])[0].topic)

    def submit(self, queue: MessageQueue, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        size, chunks = self.context.options.batch_size_max, self._chunks
        if chunks is None:
            chunks = self._chunks = _RankedChunks(self._rank) if self.context.options.topic_priority else deque()
        for start in range(0, len(messages), size):
            chunks.append(_Chunk(queue, process_queue, messages[start : start + size]))
        self._call_worker()

    def _call_worker(self) -> None:
        if self._is_called or not self._chunks or self._nursery is None or self._in_progress.is_stopping:
            return
        if self._idle:
            called = self._idle.pop()
            if called.done():  # it was cancelled, as all are then
                return
            called.set_result(None)
        elif self._worker_count < self.context.options.concurrency:
            self._worker_count += 1
            self._nursery.start_soon(self._work, self._nursery)
        else:
            return
        self._is_called = True

    def start(self, nursery: aio.Nursery) -> None:
        self._nursery = nursery
        self._call_worker()

    async def stop(self, grace_s: float) -> None:
        await self._in_progress.stop(grace_s)

    async def _work(self, nursery: aio.Nursery) -> None:
        backend = aio.running()
        while True:
            self._is_called = False
            handled = 0
            while self._chunks:
                chunk = self._chunks.popleft()
                if chunk.process_queue.dropped or self._in_progress.is_stopping:
                    continue
                self._call_worker()
                self._in_progress.begin()
                try:
                    await self._consume(chunk, nursery)
                finally:
                    self._in_progress.end()
                handled += 1
                if handled % TURN == 0:
                    await aio.sleep(0)
            place = backend.future()
            self._idle.append(place)
            await place

    async def _consume(self, chunk: _Chunk, nursery: aio.Nursery) -> None:
        context, process_queue = self.context, chunk.process_queue
        process_queue.begin_call(chunk.messages, context.now_ms())
        handled = await context.handler.handle(context.restored(chunk.messages))
        process_queue.end_call(chunk.messages)
        if process_queue.dropped:
            logger.info(
                "group %s: ignored the result of %d messages of queue %s, which was assigned to another client",
                context.group,
                len(chunk.messages),
                chunk.queue,
            )
            return
        done = acknowledged_count(handled.result, len(chunk.messages))
        failed = chunk.messages[done:]
        context.statistics.consumed(chunk.queue.topic, done, len(failed), handled.spent_s)
        again: list[ReceivedMessage] = []
        if failed and context.is_clustering:
            again = await self._send_back(failed, handled.result.delay_level)
        elif failed:
            logger.warning(
                "group %s (broadcasting): skipped %d messages that the handler failed on", context.group, len(failed)
            )
        finished = chunk.messages
        if again:
            nursery.start_soon(self._consume_again, chunk._replace(messages=again))
            again_offsets = {message.queue_offset for message in again}
            finished = [message for message in finished if message.queue_offset not in again_offsets]
        self._finish(chunk, finished)

    def _finish(self, chunk: _Chunk, finished: Sequence[ReceivedMessage]) -> None:
        offset = chunk.process_queue.remove(finished)
        if offset >= 0 and not chunk.process_queue.dropped:
            self.context.offsets.update(chunk.queue, offset, increase_only=True)

    async def _send_back(self, messages: Sequence[ReceivedMessage], delay_level: int) -> list[ReceivedMessage]:
        """Send each message back to its broker. Returns the messages for which this failed, with one more attempt
        counted."""
        kept = []
        for message in messages:
            try:
                await self.context.retries.send_back(message, delay_level)
            except RocketError as error:
                logger.warning(
                    "group %s: cannot send message %s back to the broker: %s; consuming it again in %.0f s",
                    self.context.group,
                    message.msg_id,
                    error,
                    CONSUME_AGAIN_DELAY_S,
                )
                kept.append(message.tried_again())
        return kept

    async def _consume_again(self, chunk: _Chunk) -> None:
        for message in chunk.messages:
            chunk.process_queue.replace(message)
        await aio.sleep(CONSUME_AGAIN_DELAY_S)
        assert self._chunks is not None  # this one was in it
        self._chunks.append(chunk)
        self._call_worker()

    async def expire(self, process_queue: ProcessQueue, queue: MessageQueue) -> int:
        """Send back the head of a queue whose handler has run for longer than `consume_timeout`.

        The handler is not interrupted; if it ends well after all the message is consumed twice.
        Returns: how many were sent back.
        """
        timeout_ms = self.context.options.consume_timeout * 1000
        for count in range(EXPIRED_PER_ROUND_MAX):
            oldest = process_queue.oldest
            called_ms = None if oldest is None else process_queue.called_ms(oldest.queue_offset)
            if oldest is None or called_ms is None or self.context.now_ms() - called_ms <= timeout_ms:
                return count
            try:
                await self.context.retries.send_back(oldest, EXPIRED_DELAY_LEVEL)
            except RocketError as error:
                logger.warning(
                    "group %s: cannot send message %s back, whose handler takes too long: %s",
                    self.context.group,
                    oldest.msg_id,
                    error,
                )
                return count
            current = process_queue.oldest
            if current is not None and current.queue_offset == oldest.queue_offset:
                self._finish(_Chunk(queue, process_queue, [oldest]), [oldest])
        return EXPIRED_PER_ROUND_MAX
