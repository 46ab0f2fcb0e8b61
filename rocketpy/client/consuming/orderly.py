"""Ordered consumption: one handler call at a time per queue, in queue order, under the broker's lock.

A failed message stops its queue until it succeeds or was retried too often. The lock lasts 60 s at the broker and
counts for 30 s here, so a queue has one consumer as long as renewals (every 20 s) succeed.
Source: RocketMQ 4.9 `ConsumeMessageOrderlyService`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import attrs

from rocketpy import aio
from rocketpy.errors import RocketError
from rocketpy.message.message_queue import MessageQueue

from ..messages import ReceivedMessage
from ..results import ConsumeAction
from .context import ConsumeContext
from .handler import Handled, InProgress
from .process_queue import ProcessQueue

logger = logging.getLogger(__name__)

NOT_LOCKED_DELAY_S = 3.0
LOCKED_DELAY_S = 0.1  # after the lock was won late
SUSPEND_MIN_S, SUSPEND_MAX_S = 0.01, 30.0
NEXT_TURN_DELAY_S = 0.01
UNLIMITED = (1 << 31) - 1


@attrs.define(eq=False)
class OrderlyService:
    """One task per queue that has messages; the handler's limiter bounds how many of them run."""

    context: ConsumeContext
    lock_queue: Callable[[MessageQueue], Awaitable[bool]]  # asks the broker; marks the process queue
    _nursery: aio.Nursery | None = None
    _in_progress: InProgress = attrs.field(init=False, factory=InProgress)

    def submit(self, queue: MessageQueue, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Start a task for the queue. Called only when `ProcessQueue.put` says that none is running."""
        if self._nursery is not None and not self._in_progress.is_stopping:
            self._nursery.start_soon(self._consume_queue, queue, process_queue)

    def start(self, nursery: aio.Nursery) -> None:
        self._nursery = nursery

    async def stop(self, grace_s: float) -> None:
        await self._in_progress.stop(grace_s)

    async def _consume_queue(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        """Run turns until nothing is left; each turn returns the seconds to wait before the next one."""
        delay_s: float | None = 0.0
        while delay_s is not None and not process_queue.dropped and not self._in_progress.is_stopping:
            await aio.sleep(delay_s)
            delay_s = await self._turn(queue, process_queue)

    async def _turn(self, queue: MessageQueue, process_queue: ProcessQueue) -> float | None:
        context = self.context
        begin_s = aio.now_s()
        while not process_queue.dropped and not self._in_progress.is_stopping:
            if not self._is_locked(process_queue):
                return LOCKED_DELAY_S if await self.lock_queue(queue) else NOT_LOCKED_DELAY_S
            if aio.now_s() - begin_s > context.options.consume_continuously_max:
                return NEXT_TURN_DELAY_S
            messages = process_queue.take(context.options.batch_size_max)
            if not messages:
                return None
            handled = await self._handle(process_queue, messages)
            if handled is None:
                return None
            delay_s = await self._process(queue, process_queue, messages, handled)
            if delay_s is not None:
                return delay_s
        return None

    def _is_locked(self, process_queue: ProcessQueue) -> bool:
        return process_queue.locked and not process_queue.is_lock_expired(self.context.now_ms())

    async def _handle(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> Handled | None:
        """Call the handler under the queue's consume lock; None if the queue was released meanwhile."""
        self._in_progress.begin()
        try:
            async with process_queue.consume_lock:
                if process_queue.dropped:
                    return None
                process_queue.last_consume_ms = self.context.now_ms()
                return await self.context.handler.handle(self.context.restored(messages))
        finally:
            self._in_progress.end()

    async def _process(
        self, queue: MessageQueue, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage], handled: Handled
    ) -> float | None:
        """Apply the result. Returns: seconds to pause the queue, None to continue."""
        result, context = handled.result, self.context
        ok = result.action in (ConsumeAction.SUCCESS, ConsumeAction.COMMIT)
        context.statistics.consumed(
            queue.topic, len(messages) if ok else 0, 0 if ok else len(messages), handled.spent_s
        )
        match result.action:
            case ConsumeAction.SUCCESS if not result.auto_commit:
                return None
            case ConsumeAction.SUCCESS | ConsumeAction.COMMIT:
                self._commit(queue, process_queue)
                return None
            case ConsumeAction.ROLLBACK:
                process_queue.rollback()
                return self._suspend_s(result.suspend_s)
        times_max = 0 if result.delay_level < 0 else context.options.reconsume_times_max
        if await self._give_up_or_count(process_queue, messages, times_max):
            self._commit(queue, process_queue)
            return None
        return self._suspend_s(result.suspend_s)

    def _commit(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        offset = process_queue.commit()
        if offset >= 0 and not process_queue.dropped:
            self.context.offsets.update(queue, offset, increase_only=False)

    def _suspend_s(self, asked_s: float | None) -> float:
        wanted = self.context.options.suspend_queue if asked_s is None else asked_s
        return min(max(wanted, SUSPEND_MIN_S), SUSPEND_MAX_S)

    async def _give_up_or_count(
        self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage], times_max: int
    ) -> bool:
        """After a failure: send what was tried too often to the dead letters, count the attempt of the rest.

        Unlike Java, a batch of which only some messages are over the limit does not send those twice: the ones that
        were sent leave the batch at once.
        Returns: True when nothing is left to retry.
        """
        limit = UNLIMITED if times_max == -1 else times_max
        retried = []
        for message in messages:
            if message.reconsume_times >= limit:
                try:
                    await self.context.retries.send_to_retry_topic(message, limit)
                    continue
                except RocketError as error:
                    logger.warning(
                        "group %s: cannot move %s to the retry topic: %s", self.context.group, message.msg_id, error
                    )
            older = message.tried_again()
            process_queue.replace(older)
            retried.append(older)
        process_queue.put_back(retried)
        return not retried
