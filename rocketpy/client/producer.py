"""Producer: sends messages, awaited, in the background, or without asking.

    options = ProducerOptions(name_servers="127.0.0.1:9876")
    async with Producer("orders", options) as producer:
        result = await producer.send(Message("OrderTopic", b"...", tags="paid", keys="order-1"))

Source: RocketMQ 4.9 `DefaultMQProducer`. Entering the context needs neither a name server nor a broker to be there;
the first send does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs

from rocketpy import aio
from rocketpy.errors import ClientError, MessageInvalid, RequestTimeout
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import DEFAULT_PRODUCER_GROUP, check_group, with_namespace
from rocketpy.remoting.headers.client import ReplyMessageRequestHeader

from .cluster.lifetime import Lifetime, Open, build_client_id
from .cluster.received import pushed_reply
from .hooks.layer import HookChain
from .messages import Message, ReceivedMessage, Reply
from .options import ProducerOptions
from .results import SendResult
from .sending.accumulator import Accumulator
from .sending.handles import Handle, InFlight, RequestHandle, SendHandle
from .sending.queue_selection import JavaHashSelector, QueueSelector
from .sending.requests import PendingRequest, PendingRequests, introduce
from .sending.send_loop import SendBudget, SendLoop
from .sending.sender import NO_PROPERTIES, Member, OutgoingMessage, Sender, cancellation, move
from .tracing import TraceWriter, sends_of

H = TypeVar("H", bound=Handle[Any])


@attrs.frozen
class Submission:
    """A message with its id, and what sends it within a number of seconds (None: of the options)."""

    msg_id: str
    send: Callable[[float | None], Awaitable[SendResult]]


def only(messages: Sequence[Message]) -> Message:
    """The message that hooks pass on where one is sent. Raises: ClientError: they pass on more, or none."""
    if len(messages) != 1:
        raise ClientError(f"the hooks passed {len(messages)} messages on, where one is sent")
    return messages[0]


def needed(result: SendResult | None) -> SendResult:
    """The result of a send through hooks. Raises: ClientError: a hook returned none."""
    if result is None:
        raise ClientError("a hook returned no SendResult: it returns what call_next returned")
    return result


class Producer:
    """Sends messages of one producer group; any number of tasks may share it.

    Args:
        group: name of the producer group; transaction checks and admin tools know producers by it.
        options: all settings; the defaults take the name servers from NAMESRV_ADDR.
        lifetime: for tests: how connections, clocks and randomness are made.
    """

    def __init__(self, group: str, options: ProducerOptions | None = None, *, lifetime: Lifetime | None = None) -> None:
        self.options = options or ProducerOptions()
        self.namespace = self.options.namespace_in_use
        self.group = with_namespace(group, self.namespace)
        check_group(self.group)
        if group == DEFAULT_PRODUCER_GROUP:
            raise MessageInvalid(f"the group {group} is reserved: choose a name of your own")
        self.client_id = lifetime.client_id if lifetime is not None else build_client_id(self.options)
        self._lifetime = lifetime or Lifetime(self.options, self.client_id)
        self._open: Open | None = None
        self._send_loop: SendLoop | None = None
        self._traces: TraceWriter | None = None
        self._hooks = HookChain.of(self.options.hooks, group, self.client_id)
        self._requests = PendingRequests(self._lifetime.rng)
        self._in_flight = self._new_in_flight()  # background sends and requests
        self._accumulator: Accumulator | None = None  # with a linger
        self._clock: Callable[[], float]

    async def __aenter__(self) -> Self:
        self._open = await self._lifetime.open()
        self._clock = aio.clock()
        instance = self._open.instance
        instance.producer_groups.add(self.group)
        sender = Sender(instance, self.group, self.options, self._open.next_id)
        self._send_loop = SendLoop(sender, self.options, instance.rng)
        self._open.requests.on_reply = self._reply_arrived
        self._open.start()
        self._traces = TraceWriter.opened(self._open, self.group, "PRODUCE", self.options)
        if self.options.linger:
            nursery = self._open.nursery
            # Its own bound: with hooks a background send has a place of its own, and asks for one in a batch.
            self._accumulator = Accumulator(sender, self._new_in_flight(), self._deliver, nursery)
            nursery.start_soon(self._accumulator.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        opened = self._open
        assert opened is not None
        try:
            if error is None:
                with aio.move_on_after(self.options.shutdown_grace):
                    await self.flush()
            if self._traces is not None:
                await self._traces.close()
        except BaseException as raised:
            self._open = None
            await opened.close(type(raised), raised, raised.__traceback__)
            raise
        self._open = None
        return await opened.close(kind, error, trace)

    def _new_in_flight(self) -> InFlight:
        return InFlight(self.options.in_flight_max, self.options.in_flight_bytes_max)

    @property
    def _ready(self) -> tuple[Open, SendLoop]:
        if self._open is None or self._send_loop is None:
            raise ClientError("the producer is not running: use it within `async with`")
        self._open.check_fork()
        return self._open, self._send_loop

    async def send(
        self,
        message: Message,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - a budget of the protocol, not of the caller
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
    ) -> SendResult:
        """Send and wait until the broker has stored the message.

        With neither queue nor key the queues take turns and a failed attempt is repeated on another broker. With one
        of them an attempt is repeated only if the master of the queue's broker seems to have changed, and on the same
        queue, because another one would break the order that was asked for.

        With a `linger` the message shares its request with others, if brokers allow that. To cancel the call does not
        take it out of its batch.

        Args:
            timeout: seconds for all attempts together.
            queue: exactly this queue.
            selector: picks the queue by `key` (or the message's order_key); Java's hash when only a key is given.
        Raises:
            MessageInvalid: the message breaks a rule.
            ClientError: no route.
            BrokerError: the broker refused.
            RequestTimeout: time is up; the message may be stored all the same.
        """
        _, send_loop = self._ready
        if self._hooks is not None:
            return await self._submission(message, NO_PROPERTIES, queue, selector, key).send(timeout)
        if self.namespace:
            message = self._named(message)
        if self._accumulator is not None:
            return await (await self._accumulate(None, message, timeout, queue, selector, key)).wait()
        return await self._send(send_loop.sender.prepare(message), message, timeout, queue, selector, key)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - a budget of the protocol, not of the caller
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Send several messages of one topic as one request, to one queue. `split_batches` cuts larger collections."""
        _, send_loop = self._ready

        async def send(messages: Sequence[Message]) -> SendResult:
            messages = [self._named(message) for message in messages] if self.namespace else messages
            outgoing = send_loop.sender.prepare_batch(messages)
            if self._accumulator is not None:
                return await (await self._accumulate(outgoing, messages[0], timeout, queue, None, None)).wait()
            return await self._send(outgoing, messages[0], timeout, queue, None, None)

        if self._hooks is None or not messages:  # hooks get no empty batch; it is refused
            return await send(messages)
        return needed(await self._hooks.send([self._with_id(message) for message in messages], send))

    async def send_members(
        self,
        topic: str,
        members: Sequence[Member],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - a budget of the protocol, not of the caller
        queue: MessageQueue | None = None,
        born_at_ms: int = 0,
    ) -> SendResult:
        """As `send_batch`, for programs that have many messages: nothing is made for each but its encoding.

        Raises:
            ClientError: the producer has hooks, which see messages. Otherwise as `send_batch`.
        """
        _, send_loop = self._ready
        if self._hooks is not None:
            raise ClientError("hooks see messages, not members of batches: use send_batch")
        first = self._named(Message(topic, members[0].body if members else b""))
        outgoing = send_loop.sender.prepare_members(first.topic, members, born_at_ms)
        if self._accumulator is not None:
            return await (await self._accumulate(outgoing, first, timeout, queue, None, None)).wait()
        return await self._send(outgoing, first, timeout, queue, None, None)

    def _submission(
        self,
        message: Message,
        own_properties: Mapping[str, str],
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
        *,
        is_async: bool = False,
    ) -> Submission:
        """A message that is about to be sent: prepared now, or after the hooks have seen it."""
        prepare = self._ready[1].sender.prepare
        if (hooks := self._hooks) is None:
            message = self._named(message)
            outgoing = prepare(message, own_properties)

            async def send(timeout_s: float | None) -> SendResult:
                return await self._send(outgoing, message, timeout_s, queue, selector, key, is_async=is_async)

            return Submission(outgoing.msg_id, send)
        named = self._with_id(message)

        async def send_hooked(timeout_s: float | None) -> SendResult:
            async def send_on(messages: Sequence[Message]) -> SendResult:
                changed = self._named(only(messages))
                if self._accumulator is not None and not own_properties:
                    return await (await self._accumulate(None, changed, timeout_s, queue, selector, key)).wait()
                outgoing = prepare(changed, own_properties)
                return await self._send(outgoing, changed, timeout_s, queue, selector, key, is_async=is_async)

            return needed(await hooks.send([named], send_on))

        return Submission(named.msg_id or "", send_hooked)

    def _with_id(self, message: Message) -> Message:
        """The message as hooks see it."""
        return message if message.msg_id else attrs.evolve(message, msg_id=self._ready[0].next_id())

    def _send(
        self,
        outgoing: OutgoingMessage,
        message: Message,
        timeout: float | None,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
        *,
        is_async: bool = False,
    ) -> Awaitable[SendResult]:
        timeout_s = self.options.send_timeout if timeout is None else timeout
        begin_s = self._clock()
        if queue is None and selector is None and key is None and not message.chooses_queue:
            return self._deliver(outgoing, None, begin_s, timeout_s, is_async=is_async)

        async def send_to_target() -> SendResult:
            target = await self._target(message, queue, selector, key)
            return await self._deliver(outgoing, target, begin_s, timeout_s, is_async=is_async)

        return send_to_target()

    def _deliver(
        self,
        outgoing: OutgoingMessage,
        queue: MessageQueue | None,
        begin_s: float,
        timeout_s: float,
        *,
        is_async: bool = False,
    ) -> Awaitable[SendResult]:
        """Send a message or a batch whose timeout runs since `begin_s`, to `queue` if there is one, and trace it."""
        if self._open is None or self._send_loop is None:
            raise ClientError("the producer was closed")
        retries = self.options.async_retries if is_async else self.options.retries
        if queue is not None and is_async:
            retries = 0  # later messages for the queue may be under way already
        budget = SendBudget(timeout_s, 1 + retries, begin_s)
        sent = self._send_loop.send(outgoing, budget, queue=queue, is_async=is_async)
        if self._traces is None or outgoing.topic == self.options.trace_topic:
            return sent
        return self._traced(self._traces, outgoing, begin_s, sent)

    async def _traced(
        self, traces: TraceWriter, outgoing: OutgoingMessage, begin_s: float, sent: Awaitable[SendResult]
    ) -> SendResult:
        result = await sent
        cost_ms = round((self._clock() - begin_s) * 1000)
        traces.write(sends_of(self.group, outgoing, result, self._lifetime.now_ms() - cost_ms, cost_ms))
        return result

    async def _accumulate(
        self,
        outgoing: OutgoingMessage | None,
        message: Message,
        timeout: float | None,  # noqa: ASYNC109 - a budget of the protocol, not of the caller
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
        on_done: Callable[[SendHandle], None] | None = None,
    ) -> SendHandle:
        """Put a message into a batch, or send it by itself, if that is prepared or brokers ask for it."""
        assert self._accumulator is not None
        begin_s = None
        if queue is not None or selector is not None or key is not None or message.chooses_queue:
            begin_s = aio.now_s()
            queue = await self._target(message, queue, selector, key)
        timeout_s = self.options.send_timeout if timeout is None else timeout
        if outgoing is None and self._accumulator.takes(message):
            return await self._accumulator.add(message, queue, timeout_s, begin_s, on_done)
        outgoing = outgoing or self._ready[1].sender.prepare(message)
        return await self._accumulator.add_alone(outgoing, queue, timeout_s, begin_s, on_done)

    async def _target(
        self, message: Message, queue: MessageQueue | None, selector: QueueSelector | None, key: object
    ) -> MessageQueue | None:
        """The queue that was asked for, None when any will do."""
        if queue is not None:
            if self.namespace:
                queue = attrs.evolve(queue, topic=with_namespace(queue.topic, self.namespace))
            if queue.topic != message.topic:
                raise MessageInvalid(f"queue {queue} is not of the message's topic {message.topic}")
            return queue
        key = message.order_key if key is None else key
        if selector is None and key is None and not isinstance(message, Reply):
            return None
        _, send_loop = self._ready
        info = await send_loop.publish_info(message.topic)
        if isinstance(message, Reply) and selector is None and key is None:
            return next((each for each in info.queues if each.broker_name == message.broker_name), None)
        chosen = (selector or JavaHashSelector()).select(info.queues, message, key)
        if chosen is None:
            raise ClientError(f"the queue selector chose no queue of topic {message.topic}")
        return chosen

    async def cancel_timer(self, sent: SendResult) -> bool:
        """Cancel the timer whose send returned `sent`. False: it is not pending any more. Raises: as `send`."""
        return await self._ready[1].sender.change_timer(sent, cancellation(sent), self.options.send_timeout)

    async def move_timer(self, sent: SendResult, deliver_at_ms: int) -> bool:
        """Deliver that timer at another time, ms since 1970. False, and raises: as `cancel_timer`."""
        return await self._ready[1].sender.change_timer(sent, move(sent, deliver_at_ms), self.options.send_timeout)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
    ) -> None:
        """Send without an answer: fastest, and nobody will say if the broker refused it."""
        _, send_loop = self._ready

        async def send(messages: Sequence[Message]) -> None:
            changed = self._named(only(messages))
            outgoing = send_loop.sender.prepare(changed)
            target = await self._target(changed, queue, selector, key)
            if target is None:
                target = send_loop.choose(await send_loop.publish_info(changed.topic), None)
            await send_loop.sender.send_oneway_to(target, outgoing, self.options.send_timeout)

        if self._hooks is None:
            await send([message])
        else:
            await self._hooks.send([self._with_id(message)], send)

    async def send_soon(
        self,
        message: Message,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - a budget of the protocol, not of the caller
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        on_done: Callable[[SendHandle], None] | None = None,
    ) -> SendHandle:
        """Start a send and go on; waits only while `in_flight_max` or `in_flight_bytes_max` is reached.

        Transport failures are repeated (on another broker, with a queue of that broker, which Java does not do);
        a broker's refusal is final.
        """
        if self._accumulator is not None and self._hooks is None:
            if self.namespace:
                message = self._named(message)
            if queue is None and selector is None and key is None and not message.chooses_queue:
                timeout_s = self.options.send_timeout if timeout is None else timeout
                if self._accumulator.takes(message):
                    handle = self._accumulator.add_nowait(message, timeout_s, on_done)
                    if handle is not None:
                        return handle
            return await self._accumulate(None, message, timeout, queue, selector, key, on_done)
        submission = self._submission(message, NO_PROPERTIES, queue, selector, key, is_async=True)
        send = partial(submission.send, timeout)
        return await self._begin(SendHandle(submission.msg_id, on_done), len(message.body), send)

    async def _begin(self, handle: H, size: int, work: Callable[[], Awaitable[Any]]) -> H:
        """Run `work` in a task, within the bounds of what is in flight; `handle` gets its result."""
        await self._in_flight.acquire(size)
        if self._open is None:  # closed meanwhile: the next one that waits is to learn it as well
            self._in_flight.release(size)
        nursery = self._ready[0].nursery

        async def run(handle: H) -> None:
            result, failure = None, None
            try:
                result = await work()
            except Exception as error:  # of the send, or of a hook or selector: the handle's, not the client's
                failure = error
            finally:
                self._in_flight.release(size)
                handle.finish(result, failure)
                del handle, failure  # an error among the locals of its own traceback would be a cycle

        nursery.start_soon(run, handle)
        return handle

    async def request(
        self,
        message: Message,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - a budget of the protocol, not of the caller
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
    ) -> ReceivedMessage:
        """Send, and wait for the reply that a consumer of the topic makes with `received.reply(body)`.

        Args:
            timeout: seconds until the reply is there, sending included; otherwise as `send`.
        Raises:
            RequestTimeout: no reply in time; a consumer may have handled the request all the same.
            RocketError: as `send`.
        """
        _, request = self._new_request(message, timeout, queue, selector, key)
        return await request()

    async def request_soon(
        self,
        message: Message,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - a budget of the protocol, not of the caller
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
        on_done: Callable[[RequestHandle], None] | None = None,
    ) -> RequestHandle:
        """Start a request and go on: `await handle` is its reply. Counts as in flight until then, like `send_soon`."""
        msg_id, request = self._new_request(message, timeout, queue, selector, key)
        return await self._begin(RequestHandle(msg_id, on_done), len(message.body), request)

    def _new_request(
        self,
        message: Message,
        timeout: float | None,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        key: object,
    ) -> tuple[str, Callable[[], Awaitable[ReceivedMessage]]]:
        """The id of a request, and the call that sends it and waits for its reply."""
        timeout_s = self.options.send_timeout if timeout is None else timeout
        pending = self._requests.new()
        own = pending.properties(self.client_id, timeout_s)
        submission = self._submission(message, own, queue, selector, key)
        return submission.msg_id, partial(self._request, pending, submission, self._named(message).topic, timeout_s)

    async def _request(
        self, pending: PendingRequest, submission: Submission, topic: str, timeout_s: float
    ) -> ReceivedMessage:
        opened, send_loop = self._ready
        deadline_s = aio.now_s() + timeout_s
        with self._requests.waiting(pending), aio.move_on_at(deadline_s):
            await send_loop.publish_info(topic)
            await introduce(opened.instance, topic)
            await submission.send(max(0.001, deadline_s - aio.now_s()))
            await pending.arrived.wait()
        if pending.reply is None:
            raise RequestTimeout(f"no reply to message {submission.msg_id} arrived within {timeout_s} s")
        return pending.reply if self._hooks is None else await self._hooks.received_one(pending.reply)

    def _reply_arrived(self, header: ReplyMessageRequestHeader, body: bytes) -> None:
        opened, _ = self._ready
        self._requests.reply_arrived(pushed_reply(header, body, opened.instance.now_ms()))

    async def flush(self) -> None:
        """Let open batches leave, and wait until every background send has ended."""
        if self._accumulator is not None:
            self._accumulator.flush()
            await self._accumulator.in_flight.wait_empty()
        await self._in_flight.wait_empty()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of `topic` that can be written to, with the name of the topic that brokers know."""
        _, send_loop = self._ready
        return (await send_loop.publish_info(with_namespace(topic, self.namespace))).queues

    def _named(self, message: Message) -> Message:
        """The message with the topic that brokers know. The topics of replies have no namespace."""
        if not self.namespace or isinstance(message, Reply):
            return message
        return attrs.evolve(message, topic=with_namespace(message.topic, self.namespace))
