"""PushConsumer: calls a handler with the messages of a group's share of the queues.

    async def handle(message: ReceivedMessage) -> None: ...

    options = PushOptions(name_servers="127.0.0.1:9876")
    async with PushConsumer("billing", {"OrderTopic": "paid || refunded"}, handle, options=options):
        await aio.sleep_forever()

Returning None (or ConsumeResult SUCCESS) acknowledges; raising retries. At least once: a handler meets a message again
after a crash, a lost lock or a rebalance, so it must not mind. Source: RocketMQ 4.9 `DefaultMQPushConsumer`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Self

from rocketpy import aio
from rocketpy.errors import ClientError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import CLIENT_INNER_PRODUCER_GROUP, retry_topic
from rocketpy.remoting.bodies.client import (
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    SubscriptionData,
)
from rocketpy.remoting.headers.pull import PullSysFlag

from .cluster.lifetime import Lifetime, Open, build_client_id
from .consuming import running_info
from .consuming.concurrent import ConcurrentService
from .consuming.context import ConsumeContext, ConsumeHandler, ConsumeService, restore_topic
from .consuming.group_member import GroupMember
from .consuming.handler import BatchHandler, Handler, MessageHandler
from .consuming.offset_store import start_offset
from .consuming.orderly import OrderlyService
from .consuming.process_queue import FlowLimits, ProcessQueue, limits_for_queue
from .consuming.pull_loop import PullLoop, PullSettings
from .consuming.queue_locks import FIRST_LOCK_S, QueueLocks
from .consuming.retry_sender import RetrySender
from .consuming.subscription import Sql92, build_subscription
from .consuming.traced_handler import TracedHandler
from .hooks.layer import HookChain
from .messages import Message, ReceivedMessage
from .options import ConsumeMode, ProducerOptions, PushOptions
from .results import SendResult
from .sending.send_loop import SendBudget, SendLoop
from .sending.sender import Sender
from .tracing import TraceWriter

logger = logging.getLogger(__name__)

CONSUME_LOCK_WAIT_S = 1.0  # how long giving an ordered queue away waits for its handler, per round


class PushConsumer(GroupMember):
    """A member of a consumer group.

    Args:
        group: the group; all its members need equal subscriptions and one allocation strategy.
        subscriptions: topic -> `*`, `TagA || TagB`, or Sql92(...).
        handler: gets one message. `batch_handler` gets up to `batch_size_max` instead. Plain functions run in worker
            threads, coroutine functions in the loop; at most `concurrency` at once.
        options: all settings; the defaults take the name servers from NAMESRV_ADDR.
        lifetime: for tests: how connections, clocks and randomness are made.
    """

    def __init__(
        self,
        group: str,
        subscriptions: Mapping[str, str | Sql92 | None],
        handler: MessageHandler | None = None,
        *,
        batch_handler: BatchHandler | None = None,
        options: PushOptions | None = None,
        lifetime: Lifetime | None = None,
    ) -> None:
        self.options = options or PushOptions()
        client_id = build_client_id(self.options, unique=self.options.mode is ConsumeMode.CLUSTERING)
        super().__init__(group, self.options, client_id, lifetime)
        if (handler is None) == (batch_handler is None):
            raise ClientError("a consumer needs a handler or a batch_handler, and not both")
        if not subscriptions:
            raise ClientError(f"group {group} subscribes to no topic")
        if handler is not None and self.options.batch_size_max > 1:
            raise ClientError("batch_size_max > 1 needs a batch_handler")
        self._function: Any = handler if handler is not None else batch_handler
        self._expressions = {self._named(topic): expression for topic, expression in subscriptions.items()}
        self._announced: dict[str, SubscriptionData] = {}  # as pulls name them
        self._leave_max_s += self.options.shutdown_grace
        self._unpaused = aio.Event()
        self._unpaused.set()
        self._resets: dict[MessageQueue, int] = {}  # that brokers asked for, and handlers get time before
        self._is_resetting = False
        self._limits = FlowLimits(
            self.options.pull_threshold_for_queue,
            self.options.pull_threshold_size_for_queue,
            None if self.options.ordered else self.options.consume_span_max,
        )
        self.ordered = self.options.ordered
        self.consume_from_where = ConsumeFromWhere(self.options.start.wire_name)

    # --- lifetime -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        now_ms = self._started_ms = self._now_ms()
        for topic, expression in self._expressions.items():
            self._subscriptions[topic] = build_subscription(topic, expression, now_ms)
        if self.is_clustering:
            retry = retry_topic(self.group)
            self._subscriptions[retry] = build_subscription(retry, None, now_ms)
        self._announced = dict(self._subscriptions)
        self._open = opened = await self._lifetime.open()
        try:
            await self._start(opened)
        except BaseException:
            self._open = None
            await opened.abort()
            raise
        return self

    async def _start(self, opened: Open) -> None:
        instance = opened.instance
        await self._join(opened, self)
        self._locks = QueueLocks(self.group, self._brokers, self._queues, self._now_ms)
        hooks = HookChain.of(self.options.hooks, self.group, self.client_id)
        self._handler = Handler(self._function, self.options.batch_size_max > 1, self.options.concurrency, hooks)
        self._service = self._consume_service(opened)
        instance.consumer = self
        instance.producer_groups.add(CLIENT_INNER_PRODUCER_GROUP)
        opened.requests.consumer = self
        for topic in self._expressions:
            try:
                await instance.update_route(topic)
            except RocketError as error:
                logger.warning(
                    "group %s: subscribed to topic %s, whose route is unknown yet: %s", self.group, topic, error
                )
        for subscription in self._subscriptions.values():
            await self._check_expression(subscription)
        await instance.heartbeat()
        self._start_jobs(opened)
        self._service.start(opened.nursery)
        if self.options.ordered:
            opened.jobs.every(self.options.lock_interval, self._locks.lock_all, first_s=FIRST_LOCK_S)
        else:
            opened.jobs.every(self.options.consume_timeout, self._expire_stuck)
        self._rebalancer.wake()

    def _consume_service(self, opened: Open) -> ConsumeService:
        send = partial(self._send, opened)
        self._context = ConsumeContext(
            group=self.group,
            namespace=self.namespace,
            options=self.options,
            handler=self._traced(opened),
            offsets=self._offsets,
            retries=RetrySender(self.group, self._brokers, send, self.options.reconsume_times_max),
            statistics=self.statistics,
            now_ms=self._now_ms,
        )
        if self.options.ordered:
            return OrderlyService(self._context, self._locks.lock)
        return ConcurrentService(self._context)

    async def _send(self, opened: Open, message: Message) -> SendResult:
        """Send as the inner producer. It is made anew: few messages need it, and most consumers never do."""
        options = ProducerOptions.of_client(self.options)
        sender = Sender(opened.instance, CLIENT_INNER_PRODUCER_GROUP, options, opened.next_id)
        budget = SendBudget(options.send_timeout, 1 + options.retries, aio.now_s())
        loop = SendLoop(sender, options, opened.instance.rng)
        return await loop.send(sender.prepare_unchecked(message), budget)

    def _traced(self, opened: Open) -> ConsumeHandler:
        """The handler, with traces if the options ask for them."""
        self._traces = TraceWriter.opened(opened, self.group, "CONSUME", self.options)
        if self._traces is None:
            return self._handler
        return TracedHandler(self.group, self._handler, self._traces, opened.next_id, self._now_ms)

    async def _leave(self, error: BaseException | None) -> None:
        await self._service.stop(self.options.shutdown_grace if error is None else 0)
        if self._traces is not None:
            await self._traces.close()
        owned = list(self._rebalancer.queues)
        await self._offsets.persist(owned)
        await self._rebalancer.drop_all()
        if self.options.ordered and owned:
            await self._locks.unlock(owned)
        self._handler.close()

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def _expire_stuck(self) -> None:
        assert isinstance(self._service, ConcurrentService)
        for queue, process_queue in list(self._rebalancer.queues.items()):
            if self.is_clustering:
                await self._service.expire(process_queue, queue)

    # --- rebalance (QueueOwner) ---------------------------------------------------------------------------------------

    async def acquire(self, queue: MessageQueue) -> tuple[ProcessQueue, int] | None:
        process_queue = ProcessQueue(self._now_ms())
        if self.options.ordered:
            if not await self._locks.lock(queue):
                return None
            process_queue.locked = True
            process_queue.last_lock_ms = self._now_ms()
        self._offsets.remove(queue)
        offset = await start_offset(queue, self.options.start, self._offsets, self._brokers, self.group)
        return process_queue, offset

    def begin_pulling(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        assert self._open is not None
        loop = PullLoop(self, self._puller, self._pull_settings, queue, process_queue, offset)
        loop.start(self._open.nursery)

    @property
    def _pull_settings(self) -> PullSettings:
        flag = PullSysFlag.SUSPEND
        if self.options.post_subscription_when_pull:
            flag |= PullSysFlag.SUBSCRIPTION
        return PullSettings(
            count_max=self.options.pull_batch_size,
            sys_flag=int(flag),
            suspend_s=self.options.broker_suspend,
            timeout_s=self.options.pull_timeout,
            interval_s=self.options.pull_interval,
            error_delay_s=self.options.pull_error_delay,
            flow_control_delay_s=self.options.pull_flow_control_delay,
            needs_lock=self.options.ordered,
        )

    async def release(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """Store the offset and forget the queue; an ordered one is unlocked once its handler has ended."""
        if self.options.ordered:
            with aio.move_on_after(CONSUME_LOCK_WAIT_S):
                async with process_queue.consume_lock:
                    await self._persist_and_forget(queue)
                    self._unlock_soon(queue, process_queue)
                    return True
            process_queue.try_unlock_times += 1
            return False
        await self._persist_and_forget(queue)
        return True

    async def _persist_and_forget(self, queue: MessageQueue) -> None:
        await self._offsets.persist_one(queue)
        self._offsets.remove(queue)
        self._puller.forget(queue)

    def _unlock_soon(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        """At once, or 20 s later when messages are still cached, as a pull may just have brought them."""
        delay_s = self.options.unlock_delay if process_queue.cached_count else 0.0

        async def unlock() -> None:
            await aio.sleep(delay_s)
            if queue not in self._rebalancer.queues:
                await self._locks.unlock([queue])

        if self._open is not None:
            self._open.nursery.start_soon(unlock)

    async def queues_changed(self, topic: str, mine: Collection[MessageQueue]) -> None:
        logger.info("group %s: assigned %d queues of topic %s", self.group, len(mine), topic)
        announced = self._subscriptions[topic]
        newer = self._subscriptions[topic] = build_subscription(topic, self._expressions.get(topic), self._now_ms())

        async def announce() -> None:
            """Pulls name the new version only after brokers have heard of it; they refuse what is newer than theirs."""
            await self._instance.heartbeat()
            if self._announced.get(topic) is announced:
                self._announced[topic] = newer

        if self._open is not None:
            self._open.nursery.start_soon(announce)

    def subscription_refused(self) -> None:
        """A broker does not know our subscription, as after its restart: tell it."""
        if self._open is not None:
            self._open.nursery.start_soon(self._instance.heartbeat)

    # --- pulls (PullHost) ---------------------------------------------------------------------------------------------

    def subscription(self, topic: str) -> SubscriptionData | None:
        return self._announced.get(topic)

    @property
    def limits(self) -> FlowLimits:
        return limits_for_queue(
            self._limits,
            len(self._rebalancer.queues),
            self.options.pull_threshold_for_topic,
            self.options.pull_threshold_size_for_topic,
        )

    async def wait_unpaused(self, queue: MessageQueue) -> None:
        await self._unpaused.wait()

    def offset_to_commit(self, queue: MessageQueue) -> int:
        return (self._offsets.in_memory(queue) or 0) if self.is_clustering else 0

    def deliver(self, queue: MessageQueue, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        begin_task = process_queue.put(messages)
        if begin_task or not self.options.ordered:
            self._service.submit(queue, process_queue, messages)

    def nothing_matched(self, queue: MessageQueue, process_queue: ProcessQueue, next_offset: int) -> None:
        if not process_queue.cached_count:
            self._offsets.update(queue, next_offset, increase_only=True)

    async def offset_illegal(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> bool:
        """Drop the queue, let handlers end, store the broker's offset even backwards; rebalance takes it again."""
        process_queue.drop()
        await aio.sleep(self.options.offset_illegal_delay)
        self._offsets.update(queue, offset, increase_only=False)
        await self._offsets.persist_one(queue)
        await self._rebalancer.remove(queue)
        self._rebalancer.wake()
        return False

    # --- for the user -------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pull nothing more until `resume`; what is cached is still consumed."""
        if self._unpaused.is_set():
            self._unpaused = aio.Event()

    def resume(self) -> None:
        """Undo `pause`."""
        self._unpaused.set()
        self._rebalancer.wake()

    async def run(self) -> None:
        """Consume until cancelled."""
        async with self:
            await aio.sleep_forever()

    # --- for brokers (AskedConsumer, ConsumerMember) ------------------------------------------------------------------

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Move offsets of our queues as the broker says. Pulls stop, handlers get time to end, then the move.

        A call during that time only adds its queues, so that any number of calls costs one task.
        """
        for queue, process_queue in self._rebalancer.queues.items():
            if queue.topic == topic and queue in offsets:
                process_queue.drop()
                process_queue.clear()
                self._resets[queue] = offsets[queue]
        if self._is_resetting or not self._resets:
            return
        self._is_resetting = True
        self.pause()
        try:
            while self._resets:  # also those that come while others are moved
                known = 0
                while known < (known := len(self._resets)):  # the handlers of queues that were added get their time too
                    await aio.sleep(self.options.reset_offset_delay)
                due, self._resets = self._resets, {}
                for queue, offset in due.items():
                    logger.info("group %s: reset the offset of queue %s to %d", self.group, queue, offset)
                    self._offsets.update(queue, offset, increase_only=False)
                    await self._rebalancer.remove(queue)
        finally:
            self._is_resetting = False
            self._resets.clear()
            self.resume()

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        handled = await self._handler.handle([restore_topic(message, self.group, self.namespace)])
        return running_info.directly_result(handled, ordered=self.options.ordered)
