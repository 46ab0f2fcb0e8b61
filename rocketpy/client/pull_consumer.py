"""PullConsumer: the program asks for messages (Java: DefaultLitePullConsumer).

    options = PullOptions(name_servers="127.0.0.1:9876")
    async with PullConsumer("reports", options) as consumer:
        await consumer.subscribe("OrderTopic", "*")
        for message in await consumer.poll(timeout=5.0): ...

Either `subscribe` (queues are shared in the group) or `assign` (these queues, nobody else is considered). Messages are
fetched ahead in the background. There is no retry topic: what is not committed is read again after a restart.
Source: RocketMQ 4.9 `DefaultLitePullConsumerImpl`, `DefaultMQPullConsumer`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Self

import attrs

from rocketpy import aio
from rocketpy.errors import ClientError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import without_namespace
from rocketpy.remoting.bodies.client import (
    CMResult,
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumeType,
    SubscriptionData,
)
from rocketpy.remoting.headers.pull import PullSysFlag

from .cluster.lifetime import Lifetime, build_client_id
from .consuming.assigned_queues import AssignedQueues
from .consuming.fetched import Fetched, Taken
from .consuming.group_member import GroupMember
from .consuming.offset_store import start_offset
from .consuming.process_queue import FlowLimits, ProcessQueue
from .consuming.pull_loop import Pull, PullLoop, PullSettings
from .consuming.subscription import ALL, Sql92, build_subscription
from .hooks.layer import HookChain
from .messages import ReceivedMessage
from .options import ConsumeMode, PullOptions
from .results import PullResult

logger = logging.getLogger(__name__)

ASSIGN_RETRY_S = 3.0  # when an assigned queue's start offset could not be found


class PullConsumer(GroupMember):
    """A consumer that is asked for messages.

    Args:
        group: offsets are stored under this name.
        options: all settings; the defaults take the name servers from NAMESRV_ADDR.
        lifetime: for tests: how connections, clocks and randomness are made.
    """

    consume_type = ConsumeType.CONSUME_ACTIVELY
    consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET  # whatever the option says, as in Java

    def __init__(self, group: str, options: PullOptions | None = None, *, lifetime: Lifetime | None = None) -> None:
        self.options = options or PullOptions()
        unique = self.options.mode is ConsumeMode.CLUSTERING
        super().__init__(group, self.options, build_client_id(self.options, unique=unique, stream=True), lifetime)
        self._hooks = HookChain.of(self.options.hooks, group, self.client_id)
        self._assigned = AssignedQueues()
        self._assign_mode = False
        self._expression: str | Sql92 = ALL
        self._fetched = Fetched(self.options.topic_rank if self.options.topic_priority else None)
        self._consumed: dict[MessageQueue, int] = {}  # one past what was polled, the last poll left out
        self._in_hand: tuple[MessageQueue, int] | None = None  # the last poll: the program may still work on it
        self._next_commit_s = 0.0

    # --- lifetime -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._started_ms = self._now_ms()
        self._open = opened = await self._lifetime.open()
        try:
            await self._join(opened, self)
        except BaseException:
            self._open = None
            await opened.abort()
            raise
        self._instance.consumer = self
        opened.requests.consumer = self
        self._start_jobs(opened)
        self._next_commit_s = aio.now_s() + self.options.auto_commit_interval
        return self

    async def _leave(self, error: BaseException | None) -> None:
        """Unlike Java, leaving without an error commits what was polled when `auto_commit` is on."""
        if error is None and self.options.auto_commit:
            self._finish_in_hand()
            self._store_consumed(self._consumed)
        await self._offsets.persist(set(self._assigned))
        for assigned in self._assigned.values():
            assigned.process_queue.drop()
        await self._rebalancer.drop_all()

    # --- what to read -------------------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: str | Sql92 | None = ALL) -> None:
        """Share the topic's queues with the group. Raises ClientError after `assign`."""
        self._running()
        if self._assign_mode:
            raise ClientError("subscribe and assign exclude each other")
        topic = self._named(topic)
        subscription = build_subscription(topic, expression, self._now_ms())
        try:
            await self._instance.update_route(topic)
        except RocketError as error:
            logger.warning("group %s: subscribed to topic %s, whose route is unknown yet: %s", self.group, topic, error)
        await self._check_expression(subscription)
        self._subscriptions[topic] = subscription
        await self._instance.heartbeat()
        self._rebalancer.wake()

    def unsubscribe(self, topic: str) -> None:
        """Leave the topic's queues to the other members of the group."""
        self._subscriptions.pop(self._named(topic), None)
        self._rebalancer.wake()

    async def assign(self, queues: Iterable[MessageQueue], expression: str | Sql92 = ALL) -> None:
        """Read exactly these queues. Raises ClientError after `subscribe`."""
        opened = self._running()
        if self._subscriptions and not self._assign_mode:
            raise ClientError("subscribe and assign exclude each other")
        self._assign_mode = True
        self._expression = expression
        wanted = set(queues)
        for queue in [queue for queue in self._assigned if queue not in wanted]:
            await self.release(queue, self._assigned[queue].process_queue)
        for queue in sorted(wanted - self._assigned.keys()):
            process_queue = self._process_queue()
            self._assigned.add(queue, process_queue)
            opened.nursery.start_soon(self._pull_assigned, queue, process_queue)

    async def _pull_assigned(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        """Find the start offset, trying until it is known, then pull."""
        while not process_queue.dropped and self._assigned.get(queue) is not None:
            try:
                offset = await self._start_offset(queue)
            except RocketError as error:
                logger.warning("group %s: cannot find the start offset of queue %s: %s", self.group, queue, error)
                await aio.sleep(ASSIGN_RETRY_S)
                continue
            if not process_queue.dropped:
                self.begin_pulling(queue, process_queue, offset)
            return

    async def _start_offset(self, queue: MessageQueue) -> int:
        in_memory = self._offsets.in_memory(queue)
        if in_memory is not None:
            return in_memory
        return await start_offset(queue, self.options.start, self._offsets, self._brokers, self.group)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of the topic that can be read, from the name server."""
        self._running()
        topic = self._named(topic)
        await self._instance.update_route(topic)
        return sorted(await self._instance.readable_queues(topic))

    # --- reading ------------------------------------------------------------------------------------------------------

    async def poll(
        self,
        *,
        max_messages: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - running out of it is no error here
    ) -> list[ReceivedMessage]:
        """The next messages, of one queue, in order; an empty list when none came within `timeout` seconds.

        With `auto_commit`, what earlier polls returned counts as done now and is committed every few seconds.
        """
        self._running()
        self._finish_in_hand()
        if self.options.auto_commit and aio.now_s() >= self._next_commit_s:
            self._store_consumed(self._consumed)
            self._next_commit_s = aio.now_s() + self.options.auto_commit_interval
        with aio.move_on_after(self.options.poll_timeout if timeout is None else timeout):
            while not (taken := self._fetched.take(max_messages)):
                await self._fetched.wait()
        return await self._received(taken) if taken else []

    async def _received(self, taken: Taken) -> list[ReceivedMessage]:
        """The messages as they come through the hooks; these have all the time that they need."""
        messages = self._shown(list(taken.messages))
        if self._hooks is not None:
            try:
                messages = await self._hooks.received(messages)
            except BaseException:
                self._fetched.put_back(taken)
                raise
        next_offset = taken.finish()
        if next_offset >= 0:
            self._finish_in_hand()
            self._in_hand = (taken.queue, next_offset)
        return messages

    def _shown(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """The messages with the topics that the user knows."""
        if not self.namespace:
            return messages
        return [attrs.evolve(each, topic=without_namespace(each.topic, self.namespace)) for each in messages]

    def _finish_in_hand(self) -> None:
        """The program asks for more, or commits: it has done what it got."""
        if self._in_hand is not None:
            queue, next_offset = self._in_hand
            self._consumed[queue] = next_offset
            self._in_hand = None

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Single messages, for ever. A message counts as done when the next one is asked for (stronger than Java)."""
        return self

    async def __anext__(self) -> ReceivedMessage:
        while not (messages := await self.poll(max_messages=1)):
            pass
        return messages[0]

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: str | Sql92 = ALL,
        max_messages: int = 32,
        suspend: float = 0.0,
        timeout: float | None = None,  # noqa: ASYNC109 - a budget of the protocol, not of the caller
    ) -> PullResult:
        """One pull by hand, beside subscriptions and offsets; OFFSET_ILLEGAL is the caller's to handle.

        Args:
            suspend: seconds the broker may wait for a message to arrive; 0 answers at once.
        """
        self._running()
        flag = PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if suspend else PullSysFlag(0))
        pull = Pull(
            queue,
            build_subscription(queue.topic, expression, 0),
            offset,
            count_max=max_messages,
            sys_flag=int(flag),
            suspend_s=suspend,
            timeout_s=(10.0 + suspend) if timeout is None else timeout,
        )
        result = await self._puller.pull(pull)
        if self.namespace:
            result = attrs.evolve(result, messages=tuple(self._shown(list(result.messages))))
        if self._hooks is None or not result.messages:
            return result
        return attrs.evolve(result, messages=tuple(await self._hooks.received(result.messages)))

    def pause(self, *queues: MessageQueue) -> None:
        """Pull nothing more of these queues until `resume`; what is fetched already is still polled."""
        for queue in queues:
            self._assigned.pause(queue)

    def resume(self, *queues: MessageQueue) -> None:
        """Undo `pause`."""
        for queue in queues:
            self._assigned.resume(queue)

    # --- offsets ------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store what was polled, or `offsets`, and wait until the brokers have it (Java does not wait).

        Raises:
            RocketError: a broker did not take one.
        """
        self._running()
        if offsets is None:
            self._finish_in_hand()
        chosen = dict(self._consumed if offsets is None else offsets)
        self._store_consumed(chosen)
        for queue, offset in chosen.items():
            if self.is_clustering:
                await self._brokers.update_consumer_offset(self.group, queue, offset, oneway=False)
        if not self.is_clustering:
            await self._offsets.persist(set(self._assigned) | chosen.keys())

    def _store_consumed(self, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            self._offsets.update(queue, offset, increase_only=False)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of a queue, None when there is none."""
        self._running()
        in_memory = self._offsets.in_memory(queue)
        return in_memory if in_memory is not None else await self._offsets.stored(queue)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset`; fetched messages of the queue are dropped.

        Raises:
            ClientError: the queue is not ours, or the offset is outside of its limits.
        """
        self._running()
        assigned = self._assigned.get(queue)
        if assigned is None:
            raise ClientError(f"{queue} is not assigned to this consumer")
        low, high = await self._brokers.min_offset(queue), await self._brokers.max_offset(queue)
        if not low <= offset <= high:
            raise ClientError(f"offset {offset} of queue {queue} is outside of {low} to {high}")
        assigned.process_queue.drop()
        assigned.end_pulls()
        self._forget(queue)
        self._consumed[queue] = offset
        self._offsets.update(queue, offset, increase_only=False)
        process_queue = self._process_queue()
        self._assigned.add(queue, process_queue)
        if queue in self._rebalancer.queues:
            self._rebalancer.queues[queue] = process_queue
        self.begin_pulling(queue, process_queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue at the oldest message. Raises: as `seek`."""
        await self.seek(queue, await self._brokers.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue with the next message to arrive. Raises: as `seek`."""
        await self.seek(queue, await self._brokers.max_offset(queue))

    # --- rebalance (QueueOwner) ---------------------------------------------------------------------------------------

    @property
    def _queues(self) -> dict[MessageQueue, ProcessQueue]:
        return {queue: assigned.process_queue for queue, assigned in self._assigned.items()}

    def _process_queue(self) -> ProcessQueue:
        """A queue that stays with its owner however rarely that polls."""
        return ProcessQueue(self._now_ms(), pull_idle_max_ms=None)

    async def acquire(self, queue: MessageQueue) -> tuple[ProcessQueue, int] | None:
        return self._process_queue(), await self._start_offset(queue)

    def begin_pulling(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        if queue not in self._assigned:
            self._assigned.add(queue, process_queue)
        assigned = self._assigned[queue]
        if assigned.process_queue is process_queue and self._open is not None:  # else it is leaving its group
            assigned.pulls = PullLoop(self, self._puller, self._pull_settings, queue, process_queue, offset)
            assigned.pulls.start(self._open.nursery)

    @property
    def _pull_settings(self) -> PullSettings:
        return PullSettings(
            count_max=self.options.pull_batch_size,
            sys_flag=int(PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION | PullSysFlag.LITE_PULL),
            suspend_s=self.options.broker_suspend,
            timeout_s=self.options.pull_timeout,
            interval_s=0.0,
            error_delay_s=self.options.pull_error_delay,
            flow_control_delay_s=self.options.pull_flow_control_delay,
        )

    async def release(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        process_queue.drop()
        self._assigned.remove(queue)
        self._forget(queue)
        if self.options.auto_commit and queue in self._consumed:
            self._offsets.update(queue, self._consumed[queue], increase_only=False)
        self._consumed.pop(queue, None)
        await self._offsets.persist_one(queue)
        self._offsets.remove(queue)
        self._puller.forget(queue)
        return True

    def _forget(self, queue: MessageQueue) -> None:
        """Drop what was fetched of the queue; what the program has in hand may be consumed again."""
        self._fetched.forget(queue)
        if self._in_hand is not None and self._in_hand[0] == queue:
            self._in_hand = None

    async def queues_changed(self, topic: str, mine: Collection[MessageQueue]) -> None:
        logger.info("group %s: assigned %d queues of topic %s", self.group, len(mine), topic)

    # --- pulls (PullHost) ---------------------------------------------------------------------------------------------

    def subscription(self, topic: str) -> SubscriptionData | None:
        if self._assign_mode:
            return build_subscription(topic, self._expression, 0)
        return self._subscriptions.get(topic)

    def subscription_refused(self) -> None:
        """Never called: every pull carries its subscription."""

    @property
    def limits(self) -> FlowLimits:
        """Per queue; nothing at all may be fetched while all queues together hold `pull_threshold_for_all`."""
        is_full = self._fetched.count > self.options.pull_threshold_for_all
        count = -1 if is_full else self.options.pull_threshold_for_queue
        return FlowLimits(count, self.options.pull_threshold_size_for_queue, self.options.consume_span_max)

    async def wait_unpaused(self, queue: MessageQueue) -> None:
        await self._assigned.wait_unpaused(queue)

    def offset_to_commit(self, queue: MessageQueue) -> int:
        return 0

    def deliver(self, queue: MessageQueue, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        self._fetched.put(queue, process_queue, messages)

    def nothing_matched(self, queue: MessageQueue, process_queue: ProcessQueue, next_offset: int) -> None:
        if process_queue.cached_count:
            return
        if self._in_hand is not None and self._in_hand[0] == queue:
            self._in_hand = (queue, max(next_offset, self._in_hand[1]))
        else:
            self._consumed[queue] = max(next_offset, self._consumed.get(queue, 0))

    async def offset_illegal(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> bool:
        """Continue at the offset that the broker proposes; the committed offset stays."""
        return True

    # --- for brokers (AskedConsumer, ConsumerMember) ------------------------------------------------------------------

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            if queue.topic == topic and queue in self._assigned:
                try:
                    await self.seek(queue, offset)
                except RocketError as error:
                    logger.warning(
                        "group %s: cannot reset the offset of queue %s to %d: %s", self.group, queue, offset, error
                    )

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        return ConsumeMessageDirectlyResult(
            consume_result=CMResult.CR_RETURN_NULL, remark="a pull consumer has no handler", spent_time_ms=0
        )


LitePullConsumer = PullConsumer
