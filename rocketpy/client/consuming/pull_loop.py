"""The pulls of each assigned queue: pull, pass the messages on, pull again, while the queue is assigned.

While messages come, one task per queue pulls them. A pull of a queue without messages waits at the broker, and here in
a table of its connection: the answer begins a task. 1 000 idle consumers of four queues and a retry topic would have
5 000 tasks otherwise (docs/adr/0060-a-client-runs-in-its-users-loop.md).

FlowLimits (process_queue.py) says when a queue holds too much; this module only waits and asks.
Source: RocketMQ 4.9 `DefaultMQPushConsumerImpl#pullMessage`, `PullAPIWrapper`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import Context, copy_context
from typing import NamedTuple, Protocol

import attrs

from rocketpy import aio
from rocketpy.codes import MQVersion, ResponseCode
from rocketpy.errors import BrokerError, ClientError, ConnectionLost, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.client import SubscriptionData
from rocketpy.remoting.bodies.route import MASTER_ID
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.pull import PullMessageRequestHeader, PullSysFlag
from rocketpy.transport.channel import Waiter

from ..cluster.api import pull_result
from ..cluster.instance import NO_ADDRESSES, ClientInstance
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


class Pull(NamedTuple):
    """The arguments of a pull.

    Attributes:
        suspend_s: how long the broker may hold it. timeout_s: of the whole request. commit_offset: 0: none.
    """

    queue: MessageQueue
    subscription: SubscriptionData
    offset: int
    count_max: int
    sys_flag: int  # PullSysFlag
    suspend_s: float
    timeout_s: float
    commit_offset: int = 0

    def header(self, group: str, broker_id: int) -> PullMessageRequestHeader:
        sys_flag, subscription = self.sys_flag, self.subscription
        if broker_id != MASTER_ID:
            sys_flag &= ~COMMIT_OFFSET
        return PullMessageRequestHeader(
            consumer_group=group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=self.offset,
            max_msg_nums=self.count_max,
            sys_flag=sys_flag,
            commit_offset=self.commit_offset,
            suspend_timeout_ms=int(self.suspend_s * 1000),
            subscription=subscription.sub_string if sys_flag & SUBSCRIPTION else None,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            broker_name=self.queue.broker_name,
        )


@attrs.define(eq=False)
class Puller:
    """Sends pulls to the broker that the last response suggested. `inflate`: as `decode_messages`."""

    group: str
    instance: ClientInstance
    inflate: bool = attrs.field(default=True, kw_only=True)
    _suggested: dict[MessageQueue, int] = attrs.field(factory=dict)

    async def pull(self, pull: Pull) -> PullResult:
        """One pull; messages that the broker's hash filter let through by accident are dropped.

        Raises:
            ClientError: the broker is not known or too old for the expression.
            TransportError: as MQClientAPI.pull. BrokerError: as pull_result.
        """
        queue, suggested = pull.queue, self._suggested.get(pull.queue, MASTER_ID)
        broker_id, address = self.instance.known_reader(queue, suggested) or await self.instance.find_reader(
            queue, suggested
        )
        self._check(pull, address)
        response = await self.instance.api.pull(address, pull.header(self.group, broker_id), pull.timeout_s)
        return self.result(pull, address, response)

    def pull_without_task(self, pull: Pull, waiter: Waiter) -> str | None:
        """Send a pull whose outcome `waiter` gets; `result` reads a response.

        Returns: the broker's address; None: no broker is known, or its connection takes nothing now; nothing was sent.

        Raises:
            ClientError: the broker is too old for the expression. TransportError: too many pulls wait.
        """
        known = self.instance.known_reader(pull.queue, self._suggested.get(pull.queue, MASTER_ID))
        if known is None:
            return None
        broker_id, address = known
        self._check(pull, address)
        header = pull.header(self.group, broker_id)
        return address if self.instance.api.pull_without_task(address, header, pull.timeout_s, waiter) else None

    def _check(self, pull: Pull, address: str) -> None:
        version, kind = self.instance.broker_versions.get(address), pull.subscription.expression_type
        if kind != TAG and version is not None and version < MQVersion.V4_1_0_SNAPSHOT:
            raise ClientError(f"broker {address} (version {version}) cannot filter by {kind}")

    def result(self, pull: Pull, address: str, response: RemotingCommand) -> PullResult:
        """Read the response to a pull. Raises: BrokerError: it is an error."""
        result = pull_result(response, address, pull.queue.broker_name, inflate=self.inflate)
        self._suggested[pull.queue] = result.suggest_which_broker_id
        if not pull.subscription.tags_set:
            return result
        return attrs.evolve(result, messages=tuple(keep_subscribed(result.messages, pull.subscription)))

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
    """Pulls one queue for one consumer, from `next_offset` on, until the queue is dropped. It is the Waiter of a pull
    that waits without a task."""

    host: PullHost
    puller: Puller
    settings: PullSettings
    queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    _nursery: aio.OpenNursery | None = attrs.field(init=False, default=None)
    _task: aio.StartedTask | None = attrs.field(init=False, default=None)
    _context: Context = attrs.field(init=False)  # of the consumer: handlers run in copies of it
    _is_idle: bool = attrs.field(init=False, default=True)  # the last answer, if any, brought no message
    _waiting: tuple[Pull, str] | None = attrs.field(init=False, default=None)  # the pull without a task, its address
    _outcome: RemotingCommand | RocketError | None = attrs.field(init=False, default=None)  # of that pull
    _asked_s: float = attrs.field(init=False, default=0.0)  # when the pull was sent, and the addresses of its broker
    _addresses: Mapping[int, str] = attrs.field(init=False, default=NO_ADDRESSES)

    def start(self, nursery: aio.OpenNursery) -> None:
        """Begin to pull, in tasks of `nursery`."""
        self._nursery = nursery
        self._context = copy_context()
        self._task = nursery.start(self._run)

    def end(self) -> None:
        """Cancel the task. A pull without a task ends when its answer comes, because the queue has been dropped."""
        if self._task is not None:
            self._task.cancel()

    def done(self) -> bool:
        return self.process_queue.dropped

    def set_result(self, outcome: RemotingCommand | RocketError | None, /) -> None:
        assert self._nursery is not None
        self._outcome = outcome
        self._task = self._context.run(self._nursery.start, self._run)  # not that of the call that connected

    async def _run(self) -> None:
        """Act on the pull that waited, if any, and pull on: while messages come, the task waits for the answers."""
        delay_s = 0.0 if self._waiting is None else await self._finish(self._answer())
        while delay_s is not None:
            if delay_s:  # else the pull itself has let other tasks run
                await aio.sleep(delay_s)
            if self.process_queue.dropped:
                break
            delay_s = await self._next()
        self._task = None

    async def _next(self) -> float | None:
        """Pull, when that is allowed. Returns: seconds until the next pull; None: this task ends."""
        await self.host.wait_unpaused(self.queue)
        await self._wait_for_room()
        if self.process_queue.dropped:
            return None
        self.process_queue.last_pull_ms = self.host.now_ms()
        if self.settings.needs_lock and not self.process_queue.locked:
            return NOT_LOCKED_DELAY_S
        subscription = self.host.subscription(self.queue.topic)
        if subscription is None:
            return self.settings.error_delay_s
        return await self._finish(self._ask(self._pull(subscription)))

    async def _wait_for_room(self) -> None:
        while not self.process_queue.dropped and self.host.limits.blocks(self.process_queue):
            self.process_queue.last_pull_ms = self.host.now_ms()
            changed = self.process_queue.changed
            with aio.move_on_after(FLOW_CONTROL_RECHECK_S):
                await changed.wait()

    def _pull(self, subscription: SubscriptionData) -> Pull:
        commit_offset = self.host.offset_to_commit(self.queue)
        flag = self.settings.sys_flag
        if commit_offset > 0:
            flag |= COMMIT_OFFSET
        if subscription.class_filter_mode and not flag & SUBSCRIPTION:
            flag |= CLASS_FILTER
        settings = self.settings
        return Pull(
            self.queue,
            subscription,
            self.next_offset,
            settings.count_max,
            flag,
            settings.suspend_s,
            settings.timeout_s,
            commit_offset,
        )

    async def _ask(self, pull: Pull) -> PullResult | None:
        """Pull. Returns: None if the pull waits without a task."""
        self._asked_s, self._addresses = self.puller.instance.clock(), self.puller.addresses(self.queue)
        if self._is_idle and (address := self.puller.pull_without_task(pull, self)) is not None:
            self._waiting = pull, address
            return None
        return await self.puller.pull(pull)

    async def _answer(self) -> PullResult:
        """The result of the pull that waited without a task."""
        assert self._waiting is not None
        (pull, address), self._waiting = self._waiting, None
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, RemotingCommand):
            return self.puller.result(pull, address, outcome)
        await aio.sleep(0)  # a cancellation comes first: a client that closes ends without this warning
        try:
            raise outcome or ConnectionLost(f"the connection to <{address}> closed before the response of a pull came")
        finally:
            del outcome  # an error among the locals of its own traceback would be a cycle, which only gc ends

    async def _finish(self, answer: Awaitable[PullResult | None]) -> float | None:
        """Wait for the result of a pull and act on it. Returns: as `_next`."""
        try:
            result = await answer
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
            await self.puller.wait_changed(self.queue, self._addresses, self.settings.error_delay_s)
            return 0.0
        if result is None:
            return None
        self.host.pulled(self.queue, len(result.messages), self.puller.instance.clock() - self._asked_s)
        self._is_idle = not result.messages
        return None if self.process_queue.dropped else await self._act(result)

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
