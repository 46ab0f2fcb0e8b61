"""One connection: reads requests and responses, writes in order, and closes when it is idle or broken."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Protocol

import attrs
import trio

from rocketpy.errors import (
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
    TransportError,
)
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.connection import IN_FLIGHT_MAX, Connection, ConnectionState, RequestReceived
from rocketpy.remoting.frame import FRAME_SIZE_MAX, HEADER_SIZE_MAX, REQUEST_HEADER_SIZE_MAX

from .streams import close_in_order, unacknowledged_bytes

logger = logging.getLogger(__name__)

RECEIVE_SIZE = 65_536
LATE_S = 1.0


@attrs.frozen(kw_only=True)
class ChannelLimits:
    """The bounds of a connection, and what happens at each."""

    idle_s: float = 120.0
    """A connection without any traffic for this long is closed."""
    requests_max: int = 1024
    """Requests of the peer in work at once: further ones are read when one is finished."""
    requests_size_max: int = 32 * 1024 * 1024
    """Bytes of requests in work, likewise; a single request is always accepted. Servers only."""
    in_flight_max: int = IN_FLIGHT_MAX
    """Our requests without a response: more are refused with TooManyRequests."""
    outgoing_size_max: int = 64 * 1024 * 1024
    """Bytes that wait to be written: requests and responses wait for room, pushes are dropped."""
    frame_size_max: int = FRAME_SIZE_MAX
    """A longer frame closes the connection."""
    receive_size: int = RECEIVE_SIZE
    """Bytes of one read; more cost less CPU where large frames come, and memory for each connection."""
    close_flush_s: float = 1.0
    """How long `close` waits until queued data is written."""


class Holder(Protocol):
    """A connection; compared by identity."""

    def give_up(self) -> None:
        """Close without waiting for anything, and release the memory."""


class Budget:
    """Bounds the memory of all connections of a server together: unfinished frames, requests in work, unsent replies.

    Each connection has bounds of its own, but one client may open many. Beyond `bytes_max` bytes the connection that
    holds most is closed: it sends requests without ending them, or does not read its replies. It stops counting at
    once.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._held: dict[Holder, int] = {}

    def hold(self, holder: Holder, size: int) -> None:
        """`holder` now has `size` bytes. Closes the connection with the most if the sum exceeds the budget."""
        self._set(holder, size)
        while self.used_bytes > self.bytes_max:
            largest = max(self._held, key=self._held.__getitem__)
            self._set(largest, 0)
            largest.give_up()

    def _set(self, holder: Holder, size: int) -> None:
        self.used_bytes += size - self._held.pop(holder, 0)
        if size > 0:
            self._held[holder] = size


class _Waiter:
    """A task that waits for the responses of its requests."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.done = trio.Event()
        self.responses: dict[int, RemotingCommand] = {}  # by opaque; fewer after `done`: the connection was lost

    @property
    def is_answered(self) -> bool:
        return len(self.responses) == self._count

    def receive(self, response: RemotingCommand) -> None:
        self.responses[response.opaque] = response
        if self.is_answered:
            self.done.set()


@attrs.frozen
class ChannelOwner:
    """The client or server that owns channels: what serves their requests, and what bounds them.

    A server, which has a budget, begins no request while the peer does not read its replies. A client goes on reading,
    so that two peers never wait for each other.
    """

    table: RequestTable
    limits: ChannelLimits = ChannelLimits()
    budget: Budget | None = None

    def protocol(self) -> Connection[_Waiter]:
        """The protocol state of a new connection."""
        return Connection(
            frame_size_max=self.limits.frame_size_max,
            header_size_max=HEADER_SIZE_MAX if self.budget is None else REQUEST_HEADER_SIZE_MAX,
            in_flight_max=self.limits.in_flight_max,
        )


class StreamChannel:
    """A stream that carries commands, in either role; implements remoting.abc.Channel.

    `run()` owns its tasks and must be running for anything to move.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        owner: ChannelOwner,
        *,
        connection: int,
        peer: Peer,
        is_vip: bool = False,
    ) -> None:
        self._limits = owner.limits
        self._budget = owner.budget
        self._requests_size = 0
        self._writing_size = 0
        self._stream = stream
        self._id = connection
        self._peer = peer
        self._is_vip = is_vip
        self._table = owner.table
        self._protocol = owner.protocol()
        self._outgoing = bytearray()
        self._writable = trio.Event()  # there is data to write, or the channel is closing
        self._room = trio.Condition()
        self._requests = trio.Semaphore(self._limits.requests_max)
        self._scope = trio.CancelScope()
        self._write_scope = trio.CancelScope()
        self._closing = False
        self._last_traffic_s = -math.inf
        self._waiting_since_s: float | None = None  # for any byte of the peer after a request of ours

    def __repr__(self) -> str:
        return f"<StreamChannel {self._id} {self._peer}>"

    @property
    def connection(self) -> int:
        return self._id

    @property
    def peer(self) -> Peer:
        return self._peer

    @property
    def is_vip(self) -> bool:
        return self._is_vip

    @property
    def is_open(self) -> bool:
        """Return True if the connection is usable."""
        return not self._closing and self._protocol.state is ConnectionState.OPEN

    @property
    def silence_s(self) -> float:
        """Seconds since a request of ours after which nothing came from the peer; 0 if something has."""
        return 0.0 if self._waiting_since_s is None else trio.current_time() - self._waiting_since_s

    @property
    def is_unacknowledged(self) -> bool:
        """Return True if written bytes wait for the acknowledgement of the peer's machine."""
        return unacknowledged_bytes(self._stream) > 0

    @property
    def in_flight_count(self) -> int:
        """Number of our requests without a response."""
        return self._protocol.in_flight_count

    # --- for processors and clients -----------------------------------------------------------------------------------

    @property
    def is_writable(self) -> bool:
        return not self._outgoing and not self._writing_size

    def push(self, command: RemotingCommand) -> None:
        """Send a one-way command or a reply; never blocks. A dead or choked connection drops it silently."""
        if not self.is_open or len(self._outgoing) >= self._limits.outgoing_size_max:
            logger.debug("%r: dropped %s: the connection is closed or does not read", self, command.name)
            return
        self._enqueue(self._protocol.send(command))

    async def send(self, command: RemotingCommand) -> None:
        """Send a one-way command or a reply; waits for room.

        Raises:
            ConnectionLost: the connection is closed.
        """
        await self._wait_for_room()
        self._enqueue(self._protocol.send(command))

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and wait for its response, `timeout_s` in all.

        Raises:
            RequestTimeout: no response in time.
            ConnectionLost: the connection closed first.
            TooManyRequests: too many are in flight.
        """
        return (await self.invoke_all([command], timeout_s))[0]

    async def invoke_all(self, commands: Sequence[RemotingCommand], timeout_s: float) -> list[RemotingCommand]:
        """Send requests together and wait for all responses; they come in the order of the requests. `timeout_s` in
        all.

        Raises: as `invoke`, if any response is missing.
        """
        waiter = _Waiter(len(commands))
        sent: list[int] = []
        try:
            with trio.move_on_after(timeout_s):
                await self._wait_for_room()
                data = []
                for command in commands:
                    data.append(self._protocol.send_request(command, waiter, math.inf))
                    sent.append(command.opaque)
                self._enqueue(b"".join(data))
                if self._waiting_since_s is None:
                    self._waiting_since_s = trio.current_time()
                await waiter.done.wait()
        finally:
            if not waiter.is_answered:
                for opaque in sent:
                    self._protocol.forget(opaque)
        if not waiter.done.is_set():
            raise RequestTimeout(f"wait response on the channel <{self._peer}> timeout, {timeout_s * 1000:.0f} ms")
        if not waiter.is_answered:
            raise ConnectionLost(
                f"the connection to <{self._peer}> closed before the response of {commands[0].name} came"
            )
        return [waiter.responses[opaque] for opaque in sent]

    def close(self) -> None:
        """Close soon, after queued data is written or a short time has passed."""
        if not self._closing:
            self._closing = True
            self._write_scope.deadline = trio.current_time() + self._limits.close_flush_s
            self._writable.set()

    # --- the tasks ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry commands until either side ends the stream."""
        self._last_traffic_s = trio.current_time()
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                nursery.start_soon(self._write)
                nursery.start_soon(self._close_when_idle)
                await self._read(nursery)
                nursery.cancel_scope.cancel()
        finally:
            self._closing = True
            if self._budget is not None:
                self._budget.hold(self, 0)
            for waiter in self._protocol.close():
                waiter.done.set()
            close_in_order(self._stream)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)
                async with self._room:
                    self._room.notify_all()

    async def _read(self, nursery: trio.Nursery) -> None:
        while self._protocol.state is ConnectionState.OPEN:
            try:
                data = await self._stream.receive_some(self._limits.receive_size)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            self._last_traffic_s = trio.current_time()
            self._waiting_since_s = None
            if not data:
                return
            self._protocol.receive_data(data)
            self._account()
            try:
                await self._handle_events(nursery)
            except RemoteProtocolError as exc:
                self._table.refused.report("reading a command", f"{self._peer} is disconnected: {exc}")
                return

    async def _handle_events(self, nursery: trio.Nursery) -> None:
        while (event := self._protocol.next_event()) is not None:
            if isinstance(event, RequestReceived):
                await self._requests.acquire()
                size = event.command.held_size
                if self._budget is not None:
                    await self._wait_to_begin(size)
                self._requests_size += size
                self._account()
                nursery.start_soon(self._answer, event.command, size)
            else:
                event.token.receive(event.command)

    async def _wait_to_begin(self, size: int) -> None:
        """Wait until the peer reads its replies, and a request of `size` bytes is within the bounds."""
        limits = self._limits
        async with self._room:
            while self.is_open and (
                len(self._outgoing) >= limits.outgoing_size_max
                or 0 < self._requests_size > limits.requests_size_max - size
            ):
                await self._room.wait()

    def _account(self) -> None:
        if self._budget is not None and self.is_open:
            replies_size = len(self._outgoing) + self._writing_size
            self._budget.hold(self, self._protocol.buffered_size + self._requests_size + replies_size)

    def give_up(self) -> None:
        """Close at once: all connections together hold too much memory, and this one the most."""
        self._table.refused.report("serving a connection", f"{self._peer} is disconnected: it holds most memory")
        self._closing = True
        self._scope.cancel()

    async def _answer(self, request: RemotingCommand, size: int) -> None:
        try:
            response = await self._table.answer(request, self)
            if response is not None:
                await self.send(response)
        except TransportError:
            logger.debug("%r: the connection closed before the response to %s was sent", self, request.name)
        finally:
            self._requests.release()
            self._requests_size -= size
            self._account()
            if self._budget is not None:
                async with self._room:
                    self._room.notify_all()

    async def _write(self) -> None:
        """Write queued data until the channel closes and the queue is empty, or the stream breaks; that ends all
        tasks."""
        with self._write_scope:
            while self._outgoing or not self._closing:
                await self._writable.wait()
                self._writable = trio.Event()
                if not await self._write_outgoing():
                    break
        self._scope.cancel()

    async def _write_outgoing(self) -> bool:
        """Write queued data; returns whether the stream accepted everything."""
        while self._outgoing:
            data, self._outgoing = self._outgoing, bytearray()
            self._writing_size = len(data)
            try:
                await self._stream.send_all(memoryview(data))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
            self._last_traffic_s = trio.current_time()
            self._writing_size = 0
            self._account()
            async with self._room:
                self._room.notify_all()
        return True

    async def _close_when_idle(self) -> None:
        while True:
            idle_at_s = self._last_traffic_s + self._limits.idle_s
            if idle_at_s <= trio.current_time():
                break
            await trio.sleep_until(idle_at_s)
            if trio.current_time() > idle_at_s + LATE_S:  # this process was paused: first read what came meanwhile
                await trio.sleep(LATE_S)
        logger.debug("%r: closed the connection, idle for %g s", self, self._limits.idle_s)
        self.close()

    def _enqueue(self, data: bytes) -> None:
        self._outgoing += data
        self._account()
        self._writable.set()

    async def _wait_for_room(self) -> None:
        if len(self._outgoing) >= self._limits.outgoing_size_max:
            async with self._room:
                while len(self._outgoing) >= self._limits.outgoing_size_max and self.is_open:
                    await self._room.wait()
        if not self.is_open:
            raise ConnectionLost(f"the connection to <{self._peer}> is closed")
