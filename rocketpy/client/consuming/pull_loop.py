"""One task per assigned queue: pull, pass the messages on, pull again, while the queue is assigned.

FlowLimits (process_queue.py) says when a queue holds too much; this module only waits and asks.
Source: RocketMQ 4.9 `DefaultMQPushConsumerImpl#pullMessage`, `PullAPIWrapper`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import attrs

from rocketpy import aio
from rocketpy.codes import MQVersion, ResponseCode
from rocketpy.errors import BrokerError, ClientError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.client import SubscriptionData
from rocketpy.remoting.bodies.route import MASTER_ID
from rocketpy.remoting.headers.pull import PullMessageRequestHeader, PullSysFlag

from ..cluster.api import pull_result
from ..cluster.instance import ClientInstance
from ..cluster.route_renewal import tells_of_change
from ..messages import ReceivedMessage
from ..results import PullResult, PullStatus
from .process_queue import FlowLimits, ProcessQueue
from .subscription import TAG, keep_subscribed

logger = logging.getLogger(__name__)

FLOW_CONTROL_RECHECK_S = 1.0  # while a queue is full its loop is woken by consumption; this only bounds the wait
NOT_LOCKED_DELAY_S = 1.0
COMMIT_OFFSET, SUBSCRIPTION, CLASS_FILTER = map(
    int, (PullSysFlag.COMMIT_OFFSET, PullSysFlag.SUBSCRIPTION, PullSysFlag.CLASS_FILTER)
)  # numbers: an operation of an IntFlag takes a microsecond
SUBSCRIPTION_UNKNOWN = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)


@attrs.define(eq=False)
class Puller:
    """Sends pulls to the broker that the last response suggested."""

    group: str
    instance: ClientInstance
    _suggested: dict[MessageQueue, int] = attrs.field(factory=dict)

    async def pull(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        offset: int,
        *,
        count_max: int,
        sys_flag: int,
        suspend_s: float,
        timeout_s: float,
        commit_offset: int = 0,
    ) -> PullResult:
        """One pull; messages that the broker's hash filter let through by accident are dropped.

        Raises:
            ClientError: the broker is not known or too old for the expression.
            TransportError: as MQClientAPI.pull. BrokerError: as pull_result.
        """
        suggested = self._suggested.get(queue, MASTER_ID)
        broker_id, address = self.instance.known_reader(queue, suggested) or await self.instance.find_reader(
            queue, suggested
        )
        version = self.instance.broker_versions.get(address)
        if subscription.expression_type != TAG and version is not None and version < MQVersion.V4_1_0_SNAPSHOT:
            raise ClientError(f"broker {address} (version {version}) cannot filter by {subscription.expression_type}")
        if broker_id != MASTER_ID:
            sys_flag &= ~COMMIT_OFFSET
        header = PullMessageRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count_max,
            sys_flag=sys_flag,
            commit_offset=commit_offset,
            suspend_timeout_ms=int(suspend_s * 1000),
            subscription=subscription.sub_string if sys_flag & SUBSCRIPTION else None,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        result = pull_result(await self.instance.api.pull(address, header, timeout_s), address, queue.broker_name)
        self._suggested[queue] = result.suggest_which_broker_id
        if not subscription.tags_set:
            return result
        return attrs.evolve(result, messages=tuple(keep_subscribed(result.messages, subscription)))

    def addresses(self, queue: MessageQueue) -> Mapping[int, str]:
        """The addresses of the queue's broker, by id, as they are known now."""
        return self.instance.addresses(queue.broker_name)

    async def wait_changed(self, queue: MessageQueue, addresses: Mapping[int, str], within_s: float) -> None:
        """After a pull that failed: wait until the queue's broker has other addresses, or the time is over."""
        await self.instance.wait_changed(queue.topic, queue.broker_name, addresses, within_s)

    def forget(self, queue: MessageQueue) -> None:
        self._suggested.pop(queue, None)


@attrs.frozen
class PullSettings:
    """Pull settings of a kind of consumer."""

    count_max: int
    sys_flag: int  # PullSysFlag
    suspend_s: float
    timeout_s: float
    interval_s: float
    error_delay_s: float
    flow_control_delay_s: float
    needs_lock: bool = False


class PullHost(Protocol):
    """The consumer for which a loop pulls."""

    def subscription(self, topic: str) -> SubscriptionData | None: ...

    def subscription_refused(self) -> None:
        """A broker does not know the subscription, or not its newest version."""

    @property
    def limits(self) -> FlowLimits: ...

    async def wait_unpaused(self, queue: MessageQueue) -> None: ...

    def offset_to_commit(self, queue: MessageQueue) -> int:
        """Sent along with the pull, 0 for none."""

    def deliver(
        self, queue: MessageQueue, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]
    ) -> None: ...

    def nothing_matched(self, queue: MessageQueue, process_queue: ProcessQueue, next_offset: int) -> None:
        """No message up to `next_offset` matches: the committed offset may move there if nothing is cached."""

    async def offset_illegal(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> bool:
        """The broker has no such offset and proposes another. Returns True to continue there, False to end the loop."""

    def pulled(self, queue: MessageQueue, count: int, spent_s: float) -> None: ...

    def now_ms(self) -> int: ...


@attrs.define(eq=False)
class PullLoop:
    """Pulls one queue for one consumer, from `next_offset` on."""

    host: PullHost
    puller: Puller
    settings: PullSettings
    queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    _clock: Callable[[], float] = attrs.field(init=False, factory=aio.clock)

    async def run(self) -> None:
        """Pull until the queue is dropped."""
        while not self.process_queue.dropped:
            await self.host.wait_unpaused(self.queue)
            await self._wait_for_room()
            if self.process_queue.dropped:
                return
            self.process_queue.last_pull_ms = self.host.now_ms()
            if self.settings.needs_lock and not self.process_queue.locked:
                await aio.sleep(NOT_LOCKED_DELAY_S)
                continue
            delay_s = await self._pull_once()
            if delay_s is None:
                return
            if delay_s:  # else the pull itself has let other tasks run
                await aio.sleep(delay_s)

    async def _wait_for_room(self) -> None:
        while not self.process_queue.dropped and self.host.limits.blocks(self.process_queue):
            self.process_queue.last_pull_ms = self.host.now_ms()
            changed = self.process_queue.changed
            with aio.move_on_after(FLOW_CONTROL_RECHECK_S):
                await changed.wait()

    async def _pull_once(self) -> float | None:
        """One pull and what follows from it. Returns: seconds until the next, None when the loop ends."""
        subscription = self.host.subscription(self.queue.topic)
        if subscription is None:
            return self.settings.error_delay_s
        begin_s, addresses = self._clock(), self.puller.addresses(self.queue)
        try:
            result = await self._ask(subscription)
        except BrokerError as error:
            if error.code == ResponseCode.FLOW_CONTROL:
                return self.settings.flow_control_delay_s
            logger.warning(
                "the broker refused the pull of queue %s at offset %d: %s", self.queue, self.next_offset, error
            )
            if error.code in SUBSCRIPTION_UNKNOWN:
                self.host.subscription_refused()
            return self.settings.error_delay_s
        except RocketError as error:
            logger.warning("cannot pull queue %s at offset %d: %s", self.queue, self.next_offset, error)
            if not tells_of_change(error):
                return self.settings.error_delay_s
            await self.puller.wait_changed(self.queue, addresses, self.settings.error_delay_s)
            return 0.0
        self.host.pulled(self.queue, len(result.messages), self._clock() - begin_s)
        if self.process_queue.dropped:
            return None
        return await self._act(result)

    def _ask(self, subscription: SubscriptionData) -> Awaitable[PullResult]:
        commit_offset = self.host.offset_to_commit(self.queue)
        flag = self.settings.sys_flag
        if commit_offset > 0:
            flag |= COMMIT_OFFSET
        if subscription.class_filter_mode and not flag & SUBSCRIPTION:
            flag |= CLASS_FILTER
        return self.puller.pull(
            self.queue,
            subscription,
            self.next_offset,
            count_max=self.settings.count_max,
            sys_flag=flag,
            suspend_s=self.settings.suspend_s,
            timeout_s=self.settings.timeout_s,
            commit_offset=commit_offset,
        )

    async def _act(self, result: PullResult) -> float | None:
        if result.status is PullStatus.OFFSET_ILLEGAL:
            logger.warning(
                "offset %d of queue %s is outside of %d to %d: continuing at %d",
                self.next_offset,
                self.queue,
                result.min_offset,
                result.max_offset,
                result.next_begin_offset,
            )
            self.next_offset = result.next_begin_offset
            go_on = await self.host.offset_illegal(self.queue, self.process_queue, self.next_offset)
            return self.settings.interval_s if go_on else None
        self.next_offset = result.next_begin_offset
        if result.messages:
            self.host.deliver(self.queue, self.process_queue, result.messages)
            return self.settings.interval_s
        if result.status is not PullStatus.FOUND:
            self.host.nothing_matched(self.queue, self.process_queue, self.next_offset)
        return 0.0
