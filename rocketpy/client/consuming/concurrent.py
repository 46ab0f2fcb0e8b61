"""Concurrent consumption: messages of all queues go to the handler in any order; failed ones come back later.

Source: RocketMQ 4.9 `ConsumeMessageConcurrentlyService`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import attrs

from rocketpy import aio
from rocketpy.errors import RocketError
from rocketpy.message.message_queue import MessageQueue

from ..messages import ReceivedMessage
from ..results import acknowledged_count
from .context import ConsumeContext, restore_topic, restore_topics
from .handler import InProgress
from .process_queue import ProcessQueue

logger = logging.getLogger(__name__)

CONSUME_AGAIN_DELAY_S = 5.0  # after a send-back that failed
EXPIRED_DELAY_LEVEL = 3  # of messages whose handler takes too long
EXPIRED_PER_ROUND_MAX = 16


@attrs.frozen(eq=False)
class _Chunk:
    """The messages of one handler call."""

    queue: MessageQueue
    process_queue: ProcessQueue
    messages: Sequence[ReceivedMessage]


@attrs.define(eq=False)
class ConcurrentService:
    """`concurrency` workers share one queue of chunks.

    The queue has no bound of its own: the flow control of each queue's pulls bounds what can be in it.
    """

    context: ConsumeContext
    _chunks: aio.Queue[_Chunk] | aio.PriorityQueue[_Chunk] = attrs.field(init=False)
    _in_progress: InProgress = attrs.field(init=False, factory=InProgress)

    def __attrs_post_init__(self) -> None:
        self._chunks = aio.PriorityQueue(self._rank) if self.context.options.topic_priority else aio.Queue()

    def _rank(self, chunk: _Chunk) -> int:
        """A message that is retried counts as one of its first topic."""
        return self.context.options.topic_rank(restore_topic(chunk.messages[0], self.context.group).topic)

    def submit(self, queue: MessageQueue, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        size = self.context.options.batch_size_max
        for start in range(0, len(messages), size):
            self._submit_chunk(_Chunk(queue, process_queue, messages[start : start + size]))

    def _submit_chunk(self, chunk: _Chunk) -> None:
        if not self._in_progress.is_stopping:
            self._chunks.put(chunk)

    async def run(self) -> None:
        async with aio.open_nursery() as nursery:
            for _ in range(self.context.options.concurrency):
                nursery.start_soon(self._work, nursery)

    async def stop(self, grace_s: float) -> None:
        await self._in_progress.stop(grace_s)

    async def _work(self, nursery: aio.OpenNursery) -> None:
        while True:
            chunk = await self._chunks.get()
            if chunk.process_queue.dropped or self._in_progress.is_stopping:
                continue
            with self._in_progress.one():
                await self._consume(chunk, nursery)

    async def _consume(self, chunk: _Chunk, nursery: aio.OpenNursery) -> None:
        context, process_queue = self.context, chunk.process_queue
        now_ms = context.now_ms()
        process_queue.last_consume_ms = now_ms
        for message in chunk.messages:
            process_queue.started_ms[message.queue_offset] = now_ms
        handled = await context.handler.handle(restore_topics(chunk.messages, context.group))
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
        if again:
            nursery.start_soon(self._consume_again, attrs.evolve(chunk, messages=again))
        again_offsets = {message.queue_offset for message in again}
        self._finish(chunk, [message for message in chunk.messages if message.queue_offset not in again_offsets])

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
                kept.append(attrs.evolve(message, reconsume_times=message.reconsume_times + 1))
        return kept

    async def _consume_again(self, chunk: _Chunk) -> None:
        for message in chunk.messages:
            chunk.process_queue.replace(message)
        await aio.sleep(CONSUME_AGAIN_DELAY_S)
        self._submit_chunk(chunk)

    async def expire(self, process_queue: ProcessQueue, queue: MessageQueue) -> int:
        """Send back the head of a queue whose handler has run for longer than `consume_timeout`.

        The handler is not interrupted; if it ends well after all the message is consumed twice.
        Returns: how many were sent back.
        """
        timeout_ms = self.context.options.consume_timeout * 1000
        for count in range(EXPIRED_PER_ROUND_MAX):
            oldest = process_queue.oldest
            started_ms = None if oldest is None else process_queue.started_ms.get(oldest.queue_offset)
            if oldest is None or started_ms is None or self.context.now_ms() - started_ms <= timeout_ms:
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
