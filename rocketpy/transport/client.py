"""RemotingClient: requests to any address over one pooled connection each."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs

from rocketpy import aio
from rocketpy.errors import ConnectFailed, ConnectionLost, TransportError
from rocketpy.remoting.abc import Processor
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.command import RemotingCommand

from .channel import Answer, ChannelOwner, StreamChannel, Waiter
from .connector import Connector, connect
from .limits import ChannelLimits

logger = logging.getLogger(__name__)

PLAIN_HINT = "if the server requires TLS, use TLS (mqadmin: --tls, clients: TlsOptions, brokers: useTLS)"
"""Ends the error of the first request on a connection without TLS: a server that enforces TLS closes it silently."""
CONNECT_TIMEOUT_S = 3.0
SILENCE_S = 8.0
"""A connection on which a request was not answered in time, and nothing else came for so long, is taken for dead: TCP
alone finds out after a quarter of an hour. A broker waits 5 s for its disk; questions to brokers may take 10 s."""


@attrs.define
class _Slot:
    """The entry of one address in the pool."""

    channel: StreamChannel | None = None
    is_connecting: bool = False
    waiting: list[Answer] = attrs.field(factory=list)  # for the connection


class RemotingClient:
    """Any number of requests in flight on each connection; connections open on demand and close when idle.

    Usable between `open_remoting_client` and the end of its `async with`; not thread-safe.
    """

    def __init__(
        self,
        nursery: aio.OpenNursery,
        *,
        processors: Mapping[int, Processor] | None = None,
        limits: ChannelLimits | None = None,
        connector: Connector = connect,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        connection_closed: Callable[[str, int], None] | None = None,
    ) -> None:
        """The tasks of connections run in `nursery`. `processors` answer what servers ask of us.

        `connection_closed` is called with the address and the number of each closed connection.
        """
        self._nursery = nursery
        limits = attrs.evolve(limits or ChannelLimits(), silence_s=SILENCE_S)
        self._owner = ChannelOwner(RequestTable(processors or {}), limits, nursery=nursery)
        self._connector = connector
        self._connect_timeout_s = connect_timeout_s
        self._connection_closed = connection_closed
        self._connection_ids = itertools.count(1)
        self._slots: dict[str, _Slot] = {}

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses with open connections."""
        return tuple(address for address, slot in self._slots.items() if slot.channel and slot.channel.is_open)

    def reaches(self, address: str) -> bool:
        """Return True if a connection is open and the peer's machine has acknowledged all written bytes.

        A process that reads nothing is reached: its machine acknowledges for it.
        """
        slot = self._slots.get(address)
        channel = slot.channel if slot is not None else None
        return channel is not None and channel.is_open and not channel.is_unacknowledged

    def waiting(self, sent_until_s: float) -> Iterator[tuple[str, Answer]]:
        """The requests without an answer that were sent until this time, with their addresses."""
        for address, slot in self._slots.items():
            answers = slot.waiting if slot.channel is None else slot.waiting + slot.channel.unanswered
            for answer in itertools.takewhile(lambda answer: answer.sent_s <= sent_until_s, answers):
                yield address, answer

    def invoke(
        self, address: str, request: RemotingCommand, timeout_s: float, *, about: object = None
    ) -> Awaitable[RemotingCommand]:
        """Send a request and wait for its response; `timeout_s` includes connecting.

        An error response is returned like any other: the caller checks its code. `about` is for `waiting`.

        Raises:
            ConnectFailed, ConnectionLost, RequestTimeout, TooManyRequests: there is no response.
        """
        slot = self._slots.get(address)
        if slot is not None and slot.channel is not None and slot.channel.is_open:
            return slot.channel.invoke(request, timeout_s, about)
        return self._connect_and_invoke(address, request, timeout_s, about)

    def invoke_without_task(self, address: str, request: RemotingCommand, timeout_s: float, waiter: Waiter) -> bool:
        """As `invoke`, without a task that waits: `waiter` gets the outcome.

        Returns: False if no connection is open that takes the request at once: then nothing was sent.
        """
        slot = self._slots.get(address)
        return (
            slot is not None
            and slot.channel is not None
            and slot.channel.invoke_without_task(request, timeout_s, waiter)
        )

    async def _connect_and_invoke(
        self, address: str, request: RemotingCommand, timeout_s: float, about: object
    ) -> RemotingCommand:
        channel, left_s = await self._within(address, timeout_s, about)
        try:
            return await channel.invoke(request, left_s, about)
        except ConnectionLost as exc:
            if self._connector is not connect:
                raise
            raise ConnectionLost(f"{exc}; {PLAIN_HINT}") from exc

    async def invoke_all(
        self, address: str, requests: Sequence[RemotingCommand], timeout_s: float
    ) -> list[RemotingCommand]:
        """As `invoke`, for requests that are sent together. Their responses come in the order of the requests; if one
        is missing there is none."""
        channel, left_s = await self._within(address, timeout_s)
        return await channel.invoke_all(requests, left_s)

    async def _within(self, address: str, timeout_s: float, about: object = None) -> tuple[StreamChannel, float]:
        """The connection, and the time that is left after connecting."""
        end_s = aio.now_s() + timeout_s
        channel = await self.channel(address, timeout_s, about)
        return channel, max(0.0, end_s - aio.now_s())

    async def invoke_oneway(self, address: str, request: RemotingCommand, timeout_s: float) -> None:
        """Send a request that is not answered; returns when it is queued.

        Raises:
            ConnectFailed, ConnectionLost: it was not sent.
        """
        channel = await self.channel(address, timeout_s)
        await channel.send(request)

    async def channel(self, address: str, timeout_s: float | None = None, about: object = None) -> StreamChannel:
        """The open connection to `address`; connects if there is none.

        Raises:
            ConnectFailed: not within `timeout_s`, or the time allowed for connecting.
        """
        slot = self._slots.setdefault(address, _Slot())
        if slot.channel is not None and slot.channel.is_open:
            return slot.channel
        allowed_s = self._connect_timeout_s if timeout_s is None else min(timeout_s, self._connect_timeout_s)
        future: aio.Future[Any] = aio.running().future()
        wait = Answer(future, aio.now_s(), allowed_s, about)
        slot.waiting.append(wait)
        if not slot.is_connecting:
            slot.is_connecting = True
            self._nursery.start_soon(self._connect, address, slot)
        outcome: StreamChannel | TransportError = ConnectFailed(
            f"connect to <{address}> failed: not within {allowed_s:g} s"
        )
        try:
            with aio.move_on_after(allowed_s):
                outcome = await future
        finally:
            slot.waiting.remove(wait)
            del wait, future
        if isinstance(outcome, StreamChannel):
            return outcome
        try:
            raise outcome.with_traceback(None)  # many may wait for it
        finally:
            del outcome  # and `future`: an error among the locals of its own traceback would be a cycle

    async def _connect(self, address: str, slot: _Slot) -> None:
        """Connect for all requests that wait, even if some go away. A request that came after the start of a failed
        attempt gets another one."""
        try:
            while not all(wait.waiter.done() for wait in slot.waiting):
                begun_s = aio.now_s()
                outcome = await self._attempt(address)
                if isinstance(outcome, StreamChannel):
                    slot.channel = outcome
                    self._nursery.start_soon(self._run_channel, address, slot, outcome)
                for wait in slot.waiting:
                    if outcome is slot.channel or wait.sent_s <= begun_s:
                        wait.finish(outcome)
        finally:
            slot.is_connecting = False
            self._drop_if_unused(address, slot)

    async def _attempt(self, address: str) -> StreamChannel | ConnectFailed:
        try:
            with aio.move_on_after(self._connect_timeout_s):
                stream = await self._connector(address)
                return StreamChannel(stream, self._owner, connection=next(self._connection_ids))
        except ConnectFailed as exc:
            return exc
        except Exception as exc:
            logger.exception("cannot connect to %s", address)
            return ConnectFailed(f"connect to <{address}> failed: {type(exc).__name__}: {exc}")
        return ConnectFailed(f"connect to <{address}> failed: not within {self._connect_timeout_s:g} s")

    async def _run_channel(self, address: str, slot: _Slot, channel: StreamChannel) -> None:
        try:
            await channel.run()
        except Exception:
            logger.exception("closed the connection %r after an unexpected error", channel)
        finally:
            if slot.channel is channel:
                slot.channel = None
                self._drop_if_unused(address, slot)
            if self._connection_closed is not None:
                self._connection_closed(address, channel.connection)

    def _drop_if_unused(self, address: str, slot: _Slot) -> None:
        """Remove the entry of an address without connection, unless a task is connecting to it."""
        if slot.channel is None and not slot.is_connecting and self._slots.get(address) is slot:
            del self._slots[address]


@asynccontextmanager
async def open_remoting_client(
    *,
    processors: Mapping[int, Processor] | None = None,
    limits: ChannelLimits | None = None,
    connector: Connector = connect,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    connection_closed: Callable[[str, int], None] | None = None,
) -> AsyncIterator[RemotingClient]:
    """A client whose connections end with the block: `async with open_remoting_client() as client: ...`"""
    async with aio.open_nursery() as nursery:
        yield RemotingClient(
            nursery,
            processors=processors,
            limits=limits,
            connector=connector,
            connect_timeout_s=connect_timeout_s,
            connection_closed=connection_closed,
        )
        nursery.cancel()
