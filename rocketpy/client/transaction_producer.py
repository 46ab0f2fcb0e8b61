"""TransactionProducer: a message that is delivered if, and only if, a local transaction commits.

    class Orders:
        def execute(self, message: Message, argument: object) -> LocalTransactionState: ...
        def check(self, message: ReceivedMessage) -> LocalTransactionState: ...

    async with TransactionProducer("orders", Orders(), options) as producer:
        result = await producer.send_in_transaction(Message("OrderTopic", b"..."), order)

The message is stored as a half message first. Then `execute` runs the local transaction, and the broker is told the
result. If it is not told (UNKNOWN, a lost request, a producer that died), it asks a producer of the group: `check`. So
`check` must be able to decide on any message of the group, also one that another process has sent.

Source: RocketMQ 4.9 `TransactionMQProducer`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, Self

import attrs

from rocketpy import aio
from rocketpy.errors import RecordCorrupt, RocketError
from rocketpy.logs import LogLimit, and_more
from rocketpy.message import properties as names
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import without_namespace
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.headers.send import CheckTransactionStateRequestHeader, EndTransactionRequestHeader

from .cluster.instance import ClientInstance
from .cluster.lifetime import Lifetime
from .cluster.received import decode_message
from .consuming.traced_handler import DEFAULT_REGION
from .messages import Message, ReceivedMessage
from .options import ProducerOptions
from .producer import Producer
from .results import SendResult, SendStatus
from .sending.requests import introduce
from .tracing import end_of

logger = logging.getLogger(__name__)

CHECKS_WAITING_MAX = 2_000  # one more is dropped; the broker asks again
THREADS_MAX = 40  # for plain functions of the listener
CHECKS_BYTES_MAX = 64 * 1024 * 1024  # of the bodies of those that wait; one always fits


class LocalTransactionState(Enum):
    """The end of a local transaction; the value is `commitOrRollback` of END_TRANSACTION."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0  # not known (yet): the broker asks later


class TransactionListener(Protocol):
    """The local transactions of a producer group. Both methods may be plain functions, which run in threads, or
    coroutine functions. An error counts as UNKNOWN."""

    def execute(
        self, message: Message, argument: Any
    ) -> LocalTransactionState | Awaitable[LocalTransactionState | None] | None:
        """Run the local transaction of a message that is stored as a half message."""

    def check(self, message: ReceivedMessage) -> LocalTransactionState | Awaitable[LocalTransactionState | None] | None:
        """Return the state of the local transaction of this message."""


@attrs.frozen
class TransactionResult:
    """The half message, and how its local transaction ended."""

    send: SendResult
    state: LocalTransactionState


@attrs.frozen
class _Check:
    channel: Channel
    header: CheckTransactionStateRequestHeader
    message: ReceivedMessage


class TransactionProducer(Producer):
    """A Producer that also sends in transactions.

    Args:
        group: name of the producer group; brokers ask any producer of it.
        listener: the local transactions.
        options: as of Producer.
        lifetime: as of Producer.
    """

    def __init__(
        self,
        group: str,
        listener: TransactionListener,
        options: ProducerOptions | None = None,
        *,
        lifetime: Lifetime | None = None,
    ) -> None:
        super().__init__(group, options, lifetime=lifetime)
        self.listener = listener
        self._checks = aio.Queue[_Check]()
        self._threads: aio.Threads
        self._checks_bytes = 0  # of the bodies of those that wait
        self._log = LogLimit()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._threads = aio.open_threads(THREADS_MAX)
        opened, _ = self._ready
        opened.requests.on_check = self._check_arrived
        opened.nursery.start_soon(self._answer_checks, opened.instance)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            return await super().__aexit__(kind, error, trace)
        finally:
            self._threads.close()

    async def send_in_transaction(
        self,
        message: Message,
        argument: Any = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - a budget of the protocol, not of the caller
        queue: MessageQueue | None = None,
    ) -> TransactionResult:
        """Store the half message, run the local transaction with `argument`, and tell the broker how it ended.

        The message is not delayed, whatever its delay_level. If the broker did not keep a promise about the half
        message (a status other than SEND_OK), the local transaction does not run, and the message is rolled back.

        Raises: as `send`; then the local transaction has not run.
        """
        opened, send_loop = self._ready
        named = self._named(message)
        own = {names.TRAN_MSG: "true", names.PGROUP: self.group}
        submission = self._submission(attrs.evolve(message, delay_level=0), own, queue, None, None)
        await send_loop.publish_info(named.topic)
        await introduce(opened.instance, named.topic)  # before it may be asked
        result = await submission.send(timeout)
        phy_offset = decode_offset_message_id(result.offset_msg_id).phy_offset
        state = LocalTransactionState.ROLLBACK
        if result.status is SendStatus.SEND_OK:
            state = await self._decide(self.listener.execute, message, argument, msg_id=result.msg_id)
        await self._end(opened.instance, result, state, phy_offset, message)
        return TransactionResult(result, state)

    async def _end(
        self,
        instance: ClientInstance,
        result: SendResult,
        state: LocalTransactionState,
        phy_offset: int,
        message: Message,
    ) -> None:
        """Tell the broker how the transaction ended; it asks if that does not arrive."""
        header = EndTransactionRequestHeader(
            producer_group=self.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=phy_offset,
            commit_or_rollback=state.value,
            msg_id=result.msg_id,
            transaction_id=result.transaction_id,
            broker_name=result.queue.broker_name,
        )
        try:
            master = await instance.find_master(result.queue)
            if result.trace_on:
                self._trace(instance, header, message.topic, message.to_properties(), master, result.region_id)
            address = instance.vip(master)
            await instance.api.end_transaction(address, header, self.options.send_timeout)
        except RocketError as error:
            logger.warning("cannot end the transaction of message %s: %s; the broker will ask", result.msg_id, error)

    def _trace(
        self,
        instance: ClientInstance,
        header: EndTransactionRequestHeader,
        topic: str,
        properties: Mapping[str, str],
        broker: str,
        region_id: str,
    ) -> None:
        if self._traces is not None and topic != self.options.trace_topic:
            now_ms = instance.now_ms()
            self._traces.write([end_of(header, topic, properties, broker, region_id, now_ms)])

    async def _decide(self, function: Callable[..., Any], *arguments: Any, msg_id: str) -> LocalTransactionState:
        try:
            state = await self._run(function, *arguments)
            if state is None:
                return LocalTransactionState.UNKNOWN
            if not isinstance(state, LocalTransactionState):
                raise TypeError(f"{function} returns a LocalTransactionState or None, not {type(state).__name__}")
            return state
        except BaseException as error:
            if not isinstance(error, Exception) and not aio.is_stray_cancellation(error):
                raise
            logger.warning("the transaction listener failed on message %s: the broker will ask", msg_id, exc_info=True)
            return LocalTransactionState.UNKNOWN

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the listener, a plain function in a thread."""
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        state = await self._threads.run(function, *arguments)
        return await state if inspect.isawaitable(state) else state

    async def _check(self, message: ReceivedMessage) -> Any:
        """Ask the listener about a message, which the hooks see as any other that is received."""
        received = message if self._hooks is None else await self._hooks.received_one(message)
        return await self._run(self.listener.check, received)

    # --- checks -------------------------------------------------------------------------------------------------------

    def _check_arrived(self, channel: Channel, header: CheckTransactionStateRequestHeader, body: bytes) -> None:
        """A broker asks about one of the group's messages."""
        broker = channel.peer
        try:
            message = decode_message(body, header.broker_name or "")
        except RecordCorrupt as error:
            self._warn("ignored a transaction check of broker %s: %s", broker, error)
            return
        if message is None:
            return
        group = message.properties.get(names.PGROUP)
        if group != self.group:
            self._warn("ignored a check by broker %s: it is of group %s, not %s", broker, group, self.group)
            return
        message = attrs.evolve(message, topic=without_namespace(message.topic, self.namespace))
        size = self._checks_bytes + len(message.body)
        if len(self._checks) >= CHECKS_WAITING_MAX or (self._checks_bytes and size > CHECKS_BYTES_MAX):
            self._warn("dropped a transaction check: %d wait; broker %s asks again", len(self._checks), broker)
            return
        self._checks.put(_Check(channel, header, message))
        self._checks_bytes = size

    def _warn(self, text: str, *arguments: object) -> None:
        """Write a line that brokers may cause again and again."""
        if told := self._log.take(text):
            logger.warning(text + "%s", *arguments, and_more(told))

    async def _answer_checks(self, instance: ClientInstance) -> None:
        """Answer until the connections are closed: the last answer may come while the producer is closing."""
        while True:
            check = await self._checks.get()
            self._checks_bytes -= len(check.message.body)
            state = await self._decide(self._check, check.message, msg_id=check.message.msg_id)
            header = EndTransactionRequestHeader(
                producer_group=self.group,
                tran_state_table_offset=check.header.tran_state_table_offset,
                commit_log_offset=check.header.commit_log_offset,
                commit_or_rollback=state.value,
                from_transaction_check=True,
                msg_id=check.message.properties.get(names.UNIQ_KEY, check.header.msg_id),
                transaction_id=check.header.transaction_id,
                broker_name=check.header.broker_name,
            )
            properties = check.message.properties
            if properties.get(names.TRACE_ON) != "false":
                region_id = properties.get(names.MSG_REGION, DEFAULT_REGION)
                self._trace(instance, header, check.message.topic, properties, str(check.channel.peer), region_id)
            instance.api.answer_check(check.channel, header)
