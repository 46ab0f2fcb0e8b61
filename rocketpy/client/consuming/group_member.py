"""The common part of push and pull consumers: membership in a group, offsets, rebalance, jobs."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import TracebackType

from rocketpy import aio
from rocketpy.errors import ClientError, MessageInvalid
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import DEFAULT_CONSUMER_GROUP, check_group, with_namespace
from rocketpy.remoting.bodies.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

from ..cluster.brokers import Brokers
from ..cluster.instance import ClientInstance
from ..cluster.lifetime import Lifetime, Open
from ..options import ConsumeMode, ConsumerOptions, ms_since_epoch
from . import running_info
from .offset_store import LocalOffsetStore, OffsetStore, RemoteOffsetStore
from .process_queue import ProcessQueue
from .pull_loop import Puller
from .rebalance import QueueOwner, Rebalancer
from .statistics import SAMPLE_INTERVAL_S, ConsumerStatistics
from .subscription import TAG

logger = logging.getLogger(__name__)

LEAVE_MAX_S = 10.0  # to persist offsets and to release queues, without handlers
CANCELLED_LEAVE_MAX_S = 3.0  # the same, after an error or a cancellation


class GroupMember(AbstractAsyncContextManager["GroupMember"]):
    """Base class of consumers. `_join` is called once the connections are open."""

    consume_type = ConsumeType.CONSUME_PASSIVELY
    consume_from_where: ConsumeFromWhere
    ordered = False

    _instance: ClientInstance
    _brokers: Brokers
    _puller: Puller
    _offsets: OffsetStore
    _rebalancer: Rebalancer

    def __init__(self, group: str, options: ConsumerOptions, client_id: str, lifetime: Lifetime | None) -> None:
        self.namespace = options.namespace_in_use
        group = self._named(group)
        check_group(group)
        if group == DEFAULT_CONSUMER_GROUP:
            raise MessageInvalid(f"the group {group} is reserved: choose a name of your own")
        self.group = group
        self.client_id = lifetime.client_id if lifetime is not None else client_id
        self.statistics = ConsumerStatistics()
        self._settings = options
        self._lifetime = lifetime or Lifetime(options, client_id)
        self._now_ms: Callable[[], int] = self._lifetime.now_ms
        self._subscriptions: dict[str, SubscriptionData] = {}  # as heartbeats tell them
        self._started_ms = 0
        self._open: Open | None = None
        self._leave_max_s = LEAVE_MAX_S

    def _named(self, name: str) -> str:
        """A topic or group of the user as brokers know it."""
        return with_namespace(name, self.namespace)

    @property
    def is_clustering(self) -> bool:
        return self._settings.mode is ConsumeMode.CLUSTERING

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Leave the group, within a time; then close the connections."""
        assert self._open is not None
        self._rebalancer.close()
        opened, self._open = self._open, None
        try:
            await aio.shielded(self._leave_max_s if error is None else CANCELLED_LEAVE_MAX_S, self._leave, error)
        except BaseException as raised:
            await opened.close(type(raised), raised, raised.__traceback__)
            raise
        return await opened.close(kind, error, trace)

    @abstractmethod
    async def _leave(self, error: BaseException | None) -> None:
        """Persist offsets and release queues for the other members; `error`: the exception that ended the block."""

    async def _join(self, opened: Open, owner: QueueOwner) -> None:
        """Join the group: load offsets, prepare rebalance, register with the instance.

        Raises:
            ClientError: the file of a broadcasting consumer's offsets is damaged.
        """
        self._instance = opened.instance
        self._brokers = Brokers(opened.instance)
        self._puller = Puller(self.group, opened.instance)
        if self.is_clustering:
            self._offsets = RemoteOffsetStore(group=self.group, requests=self._brokers)
        else:
            path = self._settings.local_offset_dir / self.client_id / self.group / "offsets.json"
            self._offsets = LocalOffsetStore(path=path)
        await self._offsets.load()
        mode, allocation = self._settings.mode, self._settings.allocation
        self._rebalancer = Rebalancer(self.group, self.client_id, mode, allocation, owner, self._now_ms)

    def _start_jobs(self, opened: Open) -> None:
        opened.start()
        self._rebalancer.start(opened.jobs, self._settings.rebalance_interval)
        opened.jobs.every(self._settings.persist_offset_interval, self._persist_offsets)
        self._sample()
        opened.jobs.call_every(SAMPLE_INTERVAL_S, self._sample)

    def _running(self) -> Open:
        if self._open is None:
            raise ClientError("the consumer is not running: use it within `async with`")
        self._open.check_fork()
        return self._open

    async def _persist_offsets(self) -> None:
        await self._offsets.persist(set(self._queues))

    def _sample(self) -> None:
        self.statistics.sample(aio.now_s())

    async def _check_expression(self, subscription: SubscriptionData) -> None:
        """Check that a broker supports an expression that is not a tag expression. Raises BrokerError if it does
        not."""
        if subscription.expression_type != TAG:
            address = await self._instance.any_broker_of(subscription.topic)
            await self._instance.api.check_client_config(
                address, self.client_id, self.group, subscription, self._settings.api_timeout
            )

    @property
    def _queues(self) -> dict[MessageQueue, ProcessQueue]:
        """The assigned queues."""
        return self._rebalancer.queues

    @property
    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, in order."""
        return sorted(self._queues)

    # --- for the user -------------------------------------------------------------------------------------------------

    async def offset_for_time(self, queue: MessageQueue, when: datetime) -> int:
        """The first offset whose message was stored at or after `when` (an aware datetime); the maximum without one."""
        self._running()
        if when.tzinfo is None:
            raise ValueError("offset_for_time needs an aware datetime")
        return await self._brokers.offset_since(queue, ms_since_epoch(when), self.group)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that the queue still has."""
        self._running()
        return await self._brokers.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message to arrive."""
        self._running()
        return await self._brokers.max_offset(queue)

    # --- rebalance (part of QueueOwner) -------------------------------------------------------------------------------

    @property
    def topics(self) -> Collection[str]:
        return self._subscriptions.keys()

    async def readable_queues(self, topic: str) -> Collection[MessageQueue]:
        return await self._instance.readable_queues(topic)

    async def member_ids(self, topic: str) -> Collection[str]:
        return await self._brokers.member_ids(self.group, topic)

    # --- pulls (part of PullHost) -------------------------------------------------------------------------------------

    def pulled(self, queue: MessageQueue, count: int, spent_s: float) -> None:
        self.statistics.pulled(queue.topic, count, spent_s)

    def now_ms(self) -> int:
        return self._now_ms()

    # --- for brokers (part of AskedConsumer, ConsumerMember) ----------------------------------------------------------

    def consumer_data(self) -> ConsumerData:
        """The entry of this member in heartbeats."""
        return ConsumerData(
            group_name=self.group,
            consume_type=self.consume_type,
            message_model=MessageModel(self._settings.mode.value),
            consume_from_where=self.consume_from_where,
            unit_mode=self._settings.unit_mode,
            subscription_data_set=list(self._subscriptions.values()),
        )

    def wake_rebalance(self) -> None:
        self._rebalancer.wake()

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return self._offsets.snapshot(topic)

    def running_info(self, *, with_stack: bool) -> ConsumerRunningInfo:
        """The state of this member, for operators."""
        return running_info.build(
            options=self._settings,
            consume_type=self.consume_type,
            ordered=self.ordered,
            started_ms=self._started_ms,
            subscriptions=self._subscriptions.values(),
            queues=self._queues,
            offsets=self._offsets,
            statistics=self.statistics,
            with_stack=with_stack,
        )
