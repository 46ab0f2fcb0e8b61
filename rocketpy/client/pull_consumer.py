"""PullConsumer: the program asks for messages (Java: DefaultLitePullConsumer).

    async with PullConsumer("reports", name_servers="127.0.0.1:9876") as consumer:
        await consumer.subscribe("OrderTopic", "*")
        for message in await consumer.poll(timeout=5.0): ...

Either `subscribe` (queues are shared in the group) or `assign` (these queues, nobody else is considered). Messages are
fetched ahead in the background. There is no retry topic: what is not committed is read again after a restart.
Source: RocketMQ 4.9 `DefaultLitePullConsumerImpl`, `DefaultMQPullConsumer`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import attrs
import trio

from rocketpy.errors import ClientError, MessageInvalid, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import DEFAULT_CONSUMER_GROUP, check_group
from rocketpy.remoting.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketpy.remoting.bodies.running_info import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpy.remoting.headers.pull import PullSysFlag

from . import running_info
from .brokers import Brokers
from .client_id import build_client_id
from .lifetime import Lifetime, Open
from .messages import ReceivedMessage
from .offset_store import LocalOffsetStore, OffsetStore, RemoteOffsetStore
from .options import ConsumeMode, PullOptions
from .process_queue import ProcessQueue
from .pull_loop import Puller, PullLoop, PullSettings
from .pull_rules import FlowLimits, PullResult
from .rebalance import Rebalancer
from .start_offset import start_offset
from .statistics import SAMPLE_INTERVAL_S, ConsumerStatistics
from .subscription import ALL, TAG, Sql92, build_subscription

logger = logging.getLogger(__name__)

ASSIGN_RETRY_S = 3.0  # when an assigned queue's start offset could not be found


@attrs.define(eq=False)
class _Assigned:
    """What a pull consumer keeps per queue beside the ProcessQueue."""

    process_queue: ProcessQueue
    scope: trio.CancelScope
    unpaused: trio.Event


class PullConsumer:
    """A consumer that is asked for messages.

    Args:
        group: offsets are stored under this name.
        options: all settings; or pass single ones by keyword (`auto_commit=False`).
    """

    def __init__(
        self, group: str, *, options: PullOptions | None = None, lifetime: Lifetime | None = None, **settings: Any
    ) -> None:
        check_group(group)
        if group == DEFAULT_CONSUMER_GROUP:
            raise MessageInvalid(f"the group {group} is reserved: choose a name of your own")
        self.group = group
        self.options = attrs.evolve(options, **settings) if options else PullOptions(**settings)
        self.client_id = build_client_id(self.options, unique=self.is_clustering, stream=True)
        self.statistics = ConsumerStatistics()
        self._lifetime = lifetime or Lifetime(self.options, self.client_id)
        self._now_ms = self._lifetime.now_ms
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._assigned: dict[MessageQueue, _Assigned] = {}
        self._assign_mode = False
        self._expression: str | Sql92 = ALL
        self._paused: set[MessageQueue] = set()
        self._ready: deque[tuple[MessageQueue, ProcessQueue, Sequence[ReceivedMessage]]] = deque()
        self._ready_count = 0
        self._arrived = trio.Event()
        self._consumed: dict[MessageQueue, int] = {}  # one past what was polled
        self._next_commit_s = 0.0
        self._started_ms = 0
        self._open: Open | None = None

    # --- lifetime -----------------------------------------------------------------------------------------------------

    @property
    def is_clustering(self) -> bool:
        return self.options.mode is ConsumeMode.CLUSTERING

    async def __aenter__(self) -> Self:
        self._started_ms = self._now_ms()
        self._open = opened = await self._lifetime.open()
        self._instance = opened.instance
        self._brokers = Brokers(self._instance)
        self._puller = Puller(self.group, self._instance)
        self._offsets: OffsetStore
        if self.is_clustering:
            self._offsets = RemoteOffsetStore(group=self.group, requests=self._brokers)
        else:
            path = self.options.local_offset_dir / self.client_id / self.group / "offsets.json"
            self._offsets = LocalOffsetStore(path=path)
        try:
            await self._offsets.load()
        except BaseException:
            self._open = None
            await opened.abort()
            raise
        self._rebalancer = Rebalancer(
            self.group, self.client_id, self.options.mode, self.options.allocation, self, self._now_ms,
            drops_idle_pulls=False,
        )  # fmt: skip
        self._instance.consumer = self
        opened.requests.consumer = self
        opened.start()
        opened.nursery.start_soon(self._rebalancer.run, self.options.rebalance_interval)
        opened.nursery.start_soon(self._persist_offsets)
        opened.nursery.start_soon(self._sample)
        self._next_commit_s = trio.current_time() + self.options.auto_commit_interval
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Unlike Java, leaving without an error commits what was polled when `auto_commit` is on."""
        assert self._open is not None
        opened, self._open = self._open, None
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
            if error is None and self.options.auto_commit:
                self._store_consumed(self._consumed)
            await self._offsets.persist(set(self._assigned))
            for assigned in self._assigned.values():
                assigned.process_queue.drop()
            await self._rebalancer.drop_all()
        return await opened.close(kind, error, trace)

    async def _persist_offsets(self) -> None:
        while True:
            await trio.sleep(self.options.persist_offset_interval)
            await self._offsets.persist(set(self._assigned))

    async def _sample(self) -> None:
        while True:
            self.statistics.sample(trio.current_time())
            await trio.sleep(SAMPLE_INTERVAL_S)

    def _running(self) -> Open:
        if self._open is None:
            raise ClientError("the consumer is not running: use it within `async with`")
        return self._open

    # --- what to read -------------------------------------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: str | Sql92 | None = ALL) -> None:
        """Share the topic's queues with the group. Raises ClientError after `assign`."""
        self._running()
        if self._assign_mode:
            raise ClientError("subscribe and assign exclude each other")
        subscription = build_subscription(topic, expression, self._now_ms())
        try:
            await self._instance.update_route(topic)
        except RocketError as error:
            logger.warning("group %s subscribes without a route of %s: %s", self.group, topic, error)
        if subscription.expression_type != TAG:
            address = await self._instance.any_broker_of(topic)
            await self._instance.api.check_client_config(
                address, self.client_id, self.group, subscription, self.options.api_timeout
            )
        self._subscriptions[topic] = subscription
        await self._instance.heartbeat()
        self._rebalancer.wake()

    def unsubscribe(self, topic: str) -> None:
        self._subscriptions.pop(topic, None)
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
            process_queue = ProcessQueue(self._now_ms())
            self._assigned[queue] = _Assigned(process_queue, trio.CancelScope(), self._unpaused_event(queue))
            opened.nursery.start_soon(self._pull_assigned, queue, process_queue)

    async def _pull_assigned(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        """Find where to begin, however long it takes, then pull."""
        while not process_queue.dropped and self._assigned.get(queue) is not None:
            try:
                offset = await self._start_offset(queue)
            except RocketError as error:
                logger.warning("group %s: no start offset for %s: %s", self.group, queue, error)
                await trio.sleep(ASSIGN_RETRY_S)
                continue
            if not process_queue.dropped:
                self.begin_pulling(queue, process_queue, offset)
            return

    async def _start_offset(self, queue: MessageQueue) -> int:
        in_memory = self._offsets.in_memory(queue)
        if in_memory is not None:
            return in_memory
        return await start_offset(queue, self.options.start, self._offsets, self._brokers)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of the topic that can be read, from the name server."""
        self._running()
        await self._instance.update_route(topic)
        return sorted(await self._instance.readable_queues(topic))

    @property
    def assignment(self) -> list[MessageQueue]:
        return sorted(self._assigned)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def poll(self, *, max_messages: int | None = None, timeout: float | None = None) -> list[ReceivedMessage]:
        """The next messages, of one queue, in order; an empty list when none came within `timeout` seconds.

        With `auto_commit`, what earlier polls returned counts as done now and is committed every few seconds.
        """
        self._running()
        if self.options.auto_commit and trio.current_time() >= self._next_commit_s:
            self._store_consumed(self._consumed)
            self._next_commit_s = trio.current_time() + self.options.auto_commit_interval
        with trio.move_on_after(self.options.poll_timeout if timeout is None else timeout):
            while True:
                if messages := self._take(max_messages):
                    return messages
                self._arrived = trio.Event()
                await self._arrived.wait()
        return self._take(max_messages)

    def _take(self, max_messages: int | None) -> list[ReceivedMessage]:
        while self._ready:
            queue, process_queue, messages = self._ready.popleft()
            self._ready_count -= len(messages)
            if process_queue.dropped:
                continue
            taken = list(messages if max_messages is None else messages[:max_messages])
            if rest := messages[len(taken) :]:
                self._ready.appendleft((queue, process_queue, rest))
                self._ready_count += len(rest)
            offset = process_queue.remove(taken)
            if offset >= 0:
                self._consumed[queue] = offset
            return taken
        return []

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Single messages, for ever. A message counts as done when the next one is asked for (stronger than Java)."""
        while True:
            for message in await self.poll(max_messages=1):
                yield message

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: str | Sql92 = ALL,
        max_messages: int = 32,
        suspend: float = 0.0,
        timeout: float | None = None,
    ) -> PullResult:
        """One pull by hand, beside subscriptions and offsets; OFFSET_ILLEGAL is the caller's to handle.

        Args:
            suspend: seconds the broker may wait for a message to arrive; 0 answers at once.
        """
        self._running()
        flag = PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if suspend else PullSysFlag(0))
        return await self._puller.pull(
            queue,
            build_subscription(queue.topic, expression, 0),
            offset,
            count_max=max_messages,
            sys_flag=flag,
            suspend_s=suspend,
            timeout_s=(10.0 + suspend) if timeout is None else timeout,
        )

    def pause(self, *queues: MessageQueue) -> None:
        """Pull nothing more of these queues until `resume`; what is fetched already is still polled."""
        for queue in queues:
            self._paused.add(queue)
            if (assigned := self._assigned.get(queue)) and assigned.unpaused.is_set():
                assigned.unpaused = trio.Event()

    def resume(self, *queues: MessageQueue) -> None:
        for queue in queues:
            self._paused.discard(queue)
            if assigned := self._assigned.get(queue):
                assigned.unpaused.set()

    # --- offsets ------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store what was polled, or `offsets`, and wait until the brokers have it (Java does not wait).

        Raises:
            RocketError: a broker did not take one.
        """
        self._running()
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
        """Go on reading at `offset`; what was fetched of the queue is forgotten.

        Raises:
            ClientError: the queue is not ours, or the offset is outside of its limits.
        """
        opened = self._running()
        assigned = self._assigned.get(queue)
        if assigned is None:
            raise ClientError(f"{queue} is not assigned to this consumer")
        low, high = await self._brokers.min_offset(queue), await self._brokers.max_offset(queue)
        if not low <= offset <= high:
            raise ClientError(f"offset {offset} of {queue} is outside of {low}..{high}")
        assigned.process_queue.drop()
        assigned.scope.cancel()
        self._forget_ready(queue)
        self._consumed[queue] = offset
        self._offsets.update(queue, offset, increase_only=False)
        process_queue = ProcessQueue(self._now_ms())
        self._assigned[queue] = _Assigned(process_queue, trio.CancelScope(), self._unpaused_event(queue))
        if queue in self._rebalancer.queues:
            self._rebalancer.queues[queue] = process_queue
        opened.nursery.start_soon(self._run_loop, queue, process_queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self.seek(queue, await self._brokers.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self.seek(queue, await self._brokers.max_offset(queue))

    async def offset_for_time(self, queue: MessageQueue, when: datetime) -> int:
        """The first offset whose message was stored at or after `when` (an aware datetime)."""
        self._running()
        if when.tzinfo is None:
            raise ValueError("offset_for_time needs an aware datetime")
        return await self._brokers.search_offset(queue, int(when.timestamp() * 1000))

    async def min_offset(self, queue: MessageQueue) -> int:
        self._running()
        return await self._brokers.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        self._running()
        return await self._brokers.max_offset(queue)

    # --- rebalance (QueueOwner) ---------------------------------------------------------------------------------------

    @property
    def topics(self) -> Collection[str]:
        return self._subscriptions.keys()

    async def readable_queues(self, topic: str) -> Collection[MessageQueue]:
        return await self._instance.readable_queues(topic)

    async def member_ids(self, topic: str) -> Collection[str]:
        return await self._brokers.member_ids(self.group, topic)

    async def acquire(self, queue: MessageQueue) -> tuple[ProcessQueue, int] | None:
        return ProcessQueue(self._now_ms()), await self._start_offset(queue)

    def begin_pulling(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        if queue not in self._assigned:
            self._assigned[queue] = _Assigned(process_queue, trio.CancelScope(), self._unpaused_event(queue))
        self._running().nursery.start_soon(self._run_loop, queue, process_queue, offset)

    def _unpaused_event(self, queue: MessageQueue) -> trio.Event:
        event = trio.Event()
        if queue not in self._paused:
            event.set()
        return event

    async def _run_loop(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None:
        assigned = self._assigned.get(queue)
        if assigned is None or assigned.process_queue is not process_queue:
            return
        settings = PullSettings(
            count_max=self.options.pull_batch_size,
            sys_flag=PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION | PullSysFlag.LITE_PULL,
            suspend_s=self.options.broker_suspend,
            timeout_s=self.options.pull_timeout,
            interval_s=0.0,
            error_delay_s=self.options.pull_error_delay,
            flow_control_delay_s=self.options.pull_flow_control_delay,
        )
        with assigned.scope:
            await PullLoop(self, self._puller, settings, queue, process_queue, offset).run()

    async def release(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        process_queue.drop()
        assigned = self._assigned.pop(queue, None)
        if assigned is not None:
            assigned.scope.cancel()
        self._forget_ready(queue)
        if self.options.auto_commit and queue in self._consumed:
            self._offsets.update(queue, self._consumed[queue], increase_only=False)
        self._consumed.pop(queue, None)
        await self._offsets.persist_one(queue)
        self._offsets.remove(queue)
        self._puller.forget(queue)
        return True

    def _forget_ready(self, queue: MessageQueue) -> None:
        self._ready = deque(entry for entry in self._ready if entry[0] != queue)
        self._ready_count = sum(len(entry[2]) for entry in self._ready)

    async def queues_changed(self, topic: str, mine: Collection[MessageQueue]) -> None:
        logger.info("group %s: %d queues of %s are mine", self.group, len(mine), topic)

    # --- pulls (PullHost) ---------------------------------------------------------------------------------------------

    def subscription(self, topic: str) -> SubscriptionData | None:
        if self._assign_mode:
            return build_subscription(topic, self._expression, 0)
        return self._subscriptions.get(topic)

    def subscription_refused(self) -> None:
        """Cannot be: every pull brings its subscription along."""

    @property
    def limits(self) -> FlowLimits:
        """Per queue; nothing at all may be fetched while all queues together hold `pull_threshold_for_all`."""
        count = -1 if self._ready_count > self.options.pull_threshold_for_all else self.options.pull_threshold_for_queue
        return FlowLimits(count, self.options.pull_threshold_size_for_queue, self.options.consume_span_max)

    async def wait_unpaused(self, queue: MessageQueue) -> None:
        while (assigned := self._assigned.get(queue)) is not None and not assigned.unpaused.is_set():
            await assigned.unpaused.wait()

    def offset_to_commit(self, queue: MessageQueue) -> int:
        return 0

    def deliver(self, queue: MessageQueue, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        process_queue.put(messages)
        self._ready.append((queue, process_queue, messages))
        self._ready_count += len(messages)
        self._arrived.set()

    def nothing_matched(self, queue: MessageQueue, process_queue: ProcessQueue, next_offset: int) -> None:
        if not process_queue.cached_count:
            self._consumed[queue] = max(next_offset, self._consumed.get(queue, 0))

    async def offset_illegal(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> bool:
        """Reading goes on where the broker says; what was committed stays."""
        return True

    def pulled(self, queue: MessageQueue, count: int, spent_s: float) -> None:
        self.statistics.pulled(queue.topic, count, spent_s)

    def now_ms(self) -> int:
        return self._now_ms()

    # --- for brokers (AskedConsumer, ConsumerMember) ------------------------------------------------------------------

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            message_model=MessageModel(self.options.mode.value),
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            unit_mode=self.options.unit_mode,
            subscription_data_set=list(self._subscriptions.values()),
        )

    def wake_rebalance(self) -> None:
        self._rebalancer.wake()

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        for queue, offset in offsets.items():
            if queue.topic == topic and queue in self._assigned:
                try:
                    await self.seek(queue, offset)
                except RocketError as error:
                    logger.warning("group %s: %s not reset to %d: %s", self.group, queue, offset, error)

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self._offsets.snapshot(topic)

    def running_info(self, *, with_stack: bool) -> ConsumerRunningInfo:
        return running_info.build(
            options=self.options,
            consume_type=ConsumeType.CONSUME_ACTIVELY,
            ordered=False,
            started_ms=self._started_ms,
            subscriptions=self._subscriptions.values(),
            queues={queue: assigned.process_queue for queue, assigned in self._assigned.items()},
            offsets=self._offsets,
            statistics=self.statistics,
            with_stack=with_stack,
        )

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        return ConsumeMessageDirectlyResult(
            consume_result=CMResult.CR_RETURN_NULL, remark="a pull consumer has no handler", spent_time_ms=0
        )


LitePullConsumer = PullConsumer
