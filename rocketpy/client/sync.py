"""The clients for programs without an event loop: same names, blocking calls, one background thread per client.

    with Producer("orders", ProducerOptions(name_servers="127.0.0.1:9876")) as producer:
        producer.send(Message("OrderTopic", b"..."))

The thread runs asyncio, on uvloop where that is installed; calls of any number of threads are handed to it. A client
that was opened before `fork` belongs to the parent.
"""

from __future__ import annotations

import concurrent.futures
import functools
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from rocketpy import aio
from rocketpy.errors import ClientError
from rocketpy.message.message_queue import MessageQueue

from . import producer as async_producer
from . import pull_consumer as async_pull
from . import push_consumer as async_push
from . import transaction_producer as async_transactions
from .cluster.lifetime import Lifetime
from .consuming.handler import BatchHandler, MessageHandler
from .consuming.subscription import Sql92
from .messages import Message, ReceivedMessage
from .options import ProducerOptions, PullOptions, PushOptions
from .results import SendResult
from .sending.handles import Handle
from .sending.queue_selection import QueueSelector
from .transaction_producer import TransactionListener

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=AbstractAsyncContextManager[Any], covariant=True)
S = TypeVar("S", bound=async_producer.Producer, covariant=True)


class Blocking(Generic[C]):
    """Runs an async client in a thread of its own, between `start` and `close`."""

    backend = "asyncio"  # or "trio", for a client that can do with that alone

    def __init__(self, client: C) -> None:
        self._client = client
        self._thread: threading.Thread | None = None
        self._portal: aio.Portal | None = None
        self._stop = aio.Event()
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()

    def start(self) -> Self:
        """Open the client. Raises what opening raises."""
        if self._thread is not None:
            raise ClientError("this client was started already")
        self._thread = threading.Thread(target=self._run, name=f"rocketpy-{type(self).__name__}", daemon=True)
        self._thread.start()
        self._started.result()
        return self

    def close(self) -> None:
        """Shut the client down and wait for it. Raises the error that ended it, if one did."""
        if self._portal is not None:
            self._portal.call_soon(self._stop.set)
        if self._thread is not None:
            self._thread.join()
            self._ended.result()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            aio.run_with_portal(self.backend, self._live)
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self, portal: aio.Portal) -> None:
        async with self._client:
            self._portal = portal
            self._started.set_result(None)
            await self._stop.wait()

    def _call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run an async function in the client's thread and wait for its result."""
        if self._portal is None:
            raise ClientError("the client is not running: use it within `with`")
        try:
            return self._portal.call(function, *args)
        except aio.LoopEnded as error:
            raise ClientError(f"the client was closed{' during the call' if error.during else ''}") from None

    def _call_now(self, function: Callable[..., T], *args: Any) -> T:
        """Run a plain function in the client's thread and wait for its result."""

        async def call() -> T:
            return function(*args)

        return self._call(call)


def blocking(method: Callable[Concatenate[C, P], Awaitable[T]]) -> Callable[Concatenate[Blocking[C], P], T]:
    """The method of a blocking client that calls an async client's `method` in its thread and waits."""

    @functools.wraps(method)
    def call(self: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(functools.partial(method, self._client, *args, **kwargs))

    return call


def blocking_now(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[Blocking[C], P], T]:
    """As `blocking`, of a method that does not wait."""

    @functools.wraps(method)
    def call(self: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call_now(functools.partial(method, self._client, *args, **kwargs))

    return call


class BlockingProducer(Blocking[S]):
    """The methods that both blocking producers have."""

    send = blocking(async_producer.Producer.send)
    send_batch = blocking(async_producer.Producer.send_batch)
    send_members = blocking(async_producer.Producer.send_members)
    send_oneway = blocking(async_producer.Producer.send_oneway)
    cancel_timer = blocking(async_producer.Producer.cancel_timer)
    move_timer = blocking(async_producer.Producer.move_timer)
    request = blocking(async_producer.Producer.request)
    flush = blocking(async_producer.Producer.flush)
    queues = blocking(async_producer.Producer.queues)

    def send_soon(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
    ) -> concurrent.futures.Future[SendResult]:
        """Start a send; the future has its result or error. Waits while too many are in flight."""
        begin = functools.partial(
            self._client.send_soon, message, timeout=timeout, queue=queue, selector=selector, key=key
        )
        return self._future(begin)

    def request_soon(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
    ) -> concurrent.futures.Future[ReceivedMessage]:
        """Start a request; the future has its reply or error. Waits while too many are in flight."""
        begin = functools.partial(
            self._client.request_soon, message, timeout=timeout, queue=queue, selector=selector, key=key
        )
        return self._future(begin)

    def _future(self, begin: Callable[..., Awaitable[Handle[T]]]) -> concurrent.futures.Future[T]:
        """Begin a send or request; the future gets its outcome."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()  # from now on it cannot be cancelled

        def done(handle: Handle[T]) -> None:
            if handle.result is not None:
                future.set_result(handle.result)
            else:
                future.set_exception(handle.error or ClientError("the send was given up at shutdown"))

        self._call(functools.partial(begin, on_done=done))
        return future


class Producer(BlockingProducer[async_producer.Producer]):
    """`rocketpy.client.Producer`, blocking."""

    def __init__(self, group: str, options: ProducerOptions | None = None, *, lifetime: Lifetime | None = None) -> None:
        super().__init__(async_producer.Producer(group, options, lifetime=lifetime))


class TransactionProducer(BlockingProducer[async_transactions.TransactionProducer]):
    """`rocketpy.client.TransactionProducer`, blocking; plain functions of the listener run in worker threads."""

    def __init__(
        self,
        group: str,
        listener: TransactionListener,
        options: ProducerOptions | None = None,
        *,
        lifetime: Lifetime | None = None,
    ) -> None:
        super().__init__(async_transactions.TransactionProducer(group, listener, options, lifetime=lifetime))

    send_in_transaction = blocking(async_transactions.TransactionProducer.send_in_transaction)


class PushConsumer(Blocking[async_push.PushConsumer]):
    """`rocketpy.client.PushConsumer`, blocking; plain handlers run in worker threads."""

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
        super().__init__(
            async_push.PushConsumer(
                group, subscriptions, handler, batch_handler=batch_handler, options=options, lifetime=lifetime
            )
        )

    pause = blocking_now(async_push.PushConsumer.pause)
    resume = blocking_now(async_push.PushConsumer.resume)
    min_offset = blocking(async_push.PushConsumer.min_offset)
    max_offset = blocking(async_push.PushConsumer.max_offset)
    offset_for_time = blocking(async_push.PushConsumer.offset_for_time)

    def run(self) -> None:
        """Consume until interrupted (Ctrl-C) or until the client fails."""
        with self:
            self._ended.exception()

    @property
    def assignment(self) -> list[MessageQueue]:
        client = self._client
        return self._call_now(lambda: client.assignment)


class PullConsumer(Blocking[async_pull.PullConsumer]):
    """`rocketpy.client.PullConsumer`, blocking."""

    def __init__(self, group: str, options: PullOptions | None = None, *, lifetime: Lifetime | None = None) -> None:
        super().__init__(async_pull.PullConsumer(group, options, lifetime=lifetime))

    subscribe = blocking(async_pull.PullConsumer.subscribe)
    unsubscribe = blocking_now(async_pull.PullConsumer.unsubscribe)
    assign = blocking(async_pull.PullConsumer.assign)
    poll = blocking(async_pull.PullConsumer.poll)
    pull = blocking(async_pull.PullConsumer.pull)
    commit = blocking(async_pull.PullConsumer.commit)
    committed = blocking(async_pull.PullConsumer.committed)
    seek = blocking(async_pull.PullConsumer.seek)
    seek_to_begin = blocking(async_pull.PullConsumer.seek_to_begin)
    seek_to_end = blocking(async_pull.PullConsumer.seek_to_end)
    min_offset = blocking(async_pull.PullConsumer.min_offset)
    max_offset = blocking(async_pull.PullConsumer.max_offset)
    offset_for_time = blocking(async_pull.PullConsumer.offset_for_time)
    pause = blocking_now(async_pull.PullConsumer.pause)
    resume = blocking_now(async_pull.PullConsumer.resume)
    queues = blocking(async_pull.PullConsumer.queues)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Single messages, for ever."""
        while True:
            yield from self.poll(max_messages=1)

    @property
    def assignment(self) -> list[MessageQueue]:
        client = self._client
        return self._call_now(lambda: client.assignment)


__all__ = ["Message", "Producer", "PullConsumer", "PushConsumer", "TransactionProducer"]
