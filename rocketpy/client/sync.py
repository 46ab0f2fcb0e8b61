"""The clients for programs without an event loop: same names, blocking calls, one background thread per client.

    with Producer("orders", name_servers="127.0.0.1:9876") as producer:
        producer.send(Message("OrderTopic", b"..."))

The thread runs `trio`; calls of any number of threads are handed to it. A client that was opened before `fork` belongs
to the parent.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import trio

from rocketpy.errors import ClientError
from rocketpy.message.message_queue import MessageQueue

from . import producer as async_producer
from . import pull_consumer as async_pull
from . import push_consumer as async_push
from .consuming.handler import BatchHandler, MessageHandler
from .consuming.subscription import ALL, Sql92
from .messages import Message, ReceivedMessage
from .results import PullResult, SendResult
from .sending.queue_selection import QueueSelector

T = TypeVar("T")
C = TypeVar("C", bound=AbstractAsyncContextManager[Any])


class Blocking(Generic[C]):
    """Runs an async client in a thread of its own, between `start` and `close`."""

    def __init__(self, client: C) -> None:
        self._client = client
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop: trio.Event | None = None
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
        if self._token is not None and self._stop is not None and not self._ended.done():
            with suppress(trio.RunFinishedError):  # it has ended by itself; the result says why
                self._token.run_sync_soon(self._stop.set)
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
            trio.run(self._live)
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self) -> None:
        async with self._client:
            self._token = trio.lowlevel.current_trio_token()
            self._stop = trio.Event()
            self._started.set_result(None)
            await self._stop.wait()

    def _call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run an async function in the client's thread and wait for its result."""
        if self._token is None:
            raise ClientError("the client is not running: use it within `with`")
        try:
            return trio.from_thread.run(function, *args, trio_token=self._token)
        except trio.RunFinishedError:
            raise ClientError("the client has ended") from None
        except trio.Cancelled:
            raise ClientError("the client ended during the call") from None

    def _call_now(self, function: Callable[..., T], *args: Any) -> T:
        """Run a plain function in the client's thread and wait for its result."""

        async def call() -> T:
            return function(*args)

        return self._call(call)


class Producer(Blocking[async_producer.Producer]):
    """`rocketpy.client.Producer`, blocking."""

    def __init__(self, group: str, **settings: Any) -> None:
        super().__init__(async_producer.Producer(group, **settings))

    def send(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
    ) -> SendResult:
        """Send and wait until the message is stored."""
        client = self._client

        async def send() -> SendResult:
            return await client.send(message, timeout=timeout, queue=queue, selector=selector, key=key)

        return self._call(send)

    def send_batch(
        self, messages: Sequence[Message], *, timeout: float | None = None, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send several messages of one topic as one request."""
        client = self._client

        async def send() -> SendResult:
            return await client.send_batch(messages, timeout=timeout, queue=queue)

        return self._call(send)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        key: object = None,
    ) -> None:
        """Send without an answer."""
        client = self._client

        async def send() -> None:
            await client.send_oneway(message, queue=queue, selector=selector, key=key)

        self._call(send)

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
        client = self._client
        future: concurrent.futures.Future[SendResult] = concurrent.futures.Future()

        def done(handle: async_producer.SendHandle) -> None:
            if handle.result is not None:
                future.set_result(handle.result)
            else:
                future.set_exception(handle.error or ClientError("the send was given up at shutdown"))

        async def send() -> None:
            await client.send_soon(message, timeout=timeout, queue=queue, selector=selector, key=key, on_done=done)

        self._call(send)
        return future

    def flush(self) -> None:
        """Wait until every started send has ended."""
        self._call(self._client.flush)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._call(self._client.queues, topic)


class PushConsumer(Blocking[async_push.PushConsumer]):
    """`rocketpy.client.PushConsumer`, blocking; plain handlers run in worker threads."""

    def __init__(
        self,
        group: str,
        subscriptions: Mapping[str, str | Sql92 | None],
        handler: MessageHandler | None = None,
        *,
        batch_handler: BatchHandler | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            async_push.PushConsumer(group, subscriptions, handler, batch_handler=batch_handler, **settings)
        )

    def run(self) -> None:
        """Consume until interrupted (Ctrl-C) or until the client fails."""
        with self:
            self._ended.exception()

    def pause(self) -> None:
        self._call_now(self._client.pause)

    def resume(self) -> None:
        self._call_now(self._client.resume)

    @property
    def assignment(self) -> list[MessageQueue]:
        client = self._client
        return self._call_now(lambda: client.assignment)


class PullConsumer(Blocking[async_pull.PullConsumer]):
    """`rocketpy.client.PullConsumer`, blocking."""

    def __init__(self, group: str, **settings: Any) -> None:
        super().__init__(async_pull.PullConsumer(group, **settings))

    def subscribe(self, topic: str, expression: str | Sql92 | None = ALL) -> None:
        self._call(self._client.subscribe, topic, expression)

    def unsubscribe(self, topic: str) -> None:
        self._call_now(self._client.unsubscribe, topic)

    def assign(self, queues: Iterable[MessageQueue], expression: str | Sql92 = ALL) -> None:
        self._call(self._client.assign, queues, expression)

    def poll(self, *, max_messages: int | None = None, timeout: float | None = None) -> list[ReceivedMessage]:
        """The next messages of one queue; an empty list when none came in time."""
        client = self._client

        async def poll() -> list[ReceivedMessage]:
            return await client.poll(max_messages=max_messages, timeout=timeout)

        return self._call(poll)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Single messages, for ever."""
        while True:
            yield from self.poll(max_messages=1)

    def pull(
        self, queue: MessageQueue, offset: int, *, expression: str | Sql92 = ALL, max_messages: int = 32
    ) -> PullResult:
        """One pull by hand."""
        client = self._client

        async def pull() -> PullResult:
            return await client.pull(queue, offset, expression=expression, max_messages=max_messages)

        return self._call(pull)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        self._call(self._client.commit, offsets)

    def committed(self, queue: MessageQueue) -> int | None:
        return self._call(self._client.committed, queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        self._call(self._client.seek, queue, offset)

    def seek_to_begin(self, queue: MessageQueue) -> None:
        self._call(self._client.seek_to_begin, queue)

    def seek_to_end(self, queue: MessageQueue) -> None:
        self._call(self._client.seek_to_end, queue)

    def offset_for_time(self, queue: MessageQueue, when: datetime) -> int:
        return self._call(self._client.offset_for_time, queue, when)

    def pause(self, *queues: MessageQueue) -> None:
        self._call_now(self._client.pause, *queues)

    def resume(self, *queues: MessageQueue) -> None:
        self._call_now(self._client.resume, *queues)

    def queues(self, topic: str) -> list[MessageQueue]:
        return self._call(self._client.queues, topic)

    @property
    def assignment(self) -> list[MessageQueue]:
        client = self._client
        return self._call_now(lambda: client.assignment)


__all__ = ["Message", "Producer", "PullConsumer", "PushConsumer"]
