"""One connection: reads requests and responses, writes in order, and closes when it is idle or broken."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from rocketpy import aio
from rocketpy.errors import (
    ConnectionLost,
    RemoteProtocolError,
    RequestTimeout,
    TransportError,
)
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.answers import RequestTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.connection import Connection, ConnectionState, ResponseReceived
from rocketpy.remoting.frame import HEADER_SIZE_MAX, REQUEST_HEADER_SIZE_MAX

from .byte_stream import ByteStream
from .limits import Budget, ChannelLimits

logger = logging.getLogger(__name__)

LATE_S = 1.0


class Waiter(Protocol):
    """A wait for one outcome: an aio.Future, or an object that waits without a task."""

    def done(self) -> bool:
        """Return True if no outcome is wanted any more."""

    def set_result(self, outcome: Any, /) -> None:
        """Take the outcome. Must not raise."""


@attrs.define(eq=False)
class Answer:
    """The wait of one request for its response, or for the connection first.

    Args:
        waiter: gets the outcome: the response, the error to raise, or None: the connection was closed.
        about: what the request is about, for those who look at waits.
    """

    waiter: Waiter
    sent_s: float
    timeout_s: float
    about: object = None

    def finish(self, outcome: object) -> None:
        """End the wait."""
        if not self.waiter.done():
            self.waiter.set_result(outcome)


@attrs.frozen
class ChannelOwner:
    """The client or server that owns channels: what serves their requests, and what bounds them.

    A server, which has a budget, begins no request while the peer does not read its replies. A client goes on reading,
    so that two peers never wait for each other, while its work has room.
    """

    table: RequestTable
    limits: ChannelLimits = attrs.field(factory=ChannelLimits)
    budget: Budget | None = None
    nursery: aio.OpenNursery | None = None  # of the answers to peers; None: each channel has its own

    def protocol(self) -> Connection[Answer]:
        """The protocol state of a new connection."""
        return Connection(
            frame_size_max=self.limits.frame_size_max,
            header_size_max=HEADER_SIZE_MAX if self.budget is None else REQUEST_HEADER_SIZE_MAX,
            in_flight_max=self.limits.in_flight_max,
        )


class StreamChannel:
    """A stream that carries commands, in either role; implements remoting.abc.Channel and byte_stream.Receiver.

    `run()` must be running for anything to move. It has one task for the stream, none for its deadlines, and one for
    each request of the peer.
    """

    def __init__(
        self, stream: ByteStream, owner: ChannelOwner, *, connection: int, is_vip: bool = False, listener: str = ""
    ) -> None:
        self._limits = owner.limits
        self._budget = owner.budget
        self._table = owner.table
        self._stream = stream
        self._id = connection
        self._peer = stream.peer
        self._is_vip = is_vip
        self._listener = listener
        self._protocol = owner.protocol()
        self._work = _Work(owner)
        self._backend = aio.running()
        self._clock = self._backend.clock()
        self._nursery = owner.nursery
        self._has_own_nursery = owner.nursery is None
        self._answers = dict[int, aio.StartedTask]()  # by the id of the request: those in the nursery of the owner
        self._room: aio.Event | None = None  # for those who wait for room
        self._closing = False
        self._last_traffic_s = -math.inf
        self._waiting_since_s: float | None = None  # for any byte of the peer after a request of ours
        self._looks_at_s = math.inf  # the time of `_timer`
        self._timer: aio.Timer | None = None
        self._is_running = self._was_late = False

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
    def listener(self) -> str:
        return self._listener

    @property
    def is_open(self) -> bool:
        """Return True if the connection is usable."""
        return not self._closing and self._protocol.state is ConnectionState.OPEN

    @property
    def silence_s(self) -> float:
        """Seconds since a request of ours after which nothing came from the peer; 0 if something has."""
        return 0.0 if self._waiting_since_s is None else self._clock() - self._waiting_since_s

    @property
    def is_unacknowledged(self) -> bool:
        """Return True if written bytes wait for the acknowledgement of the peer's machine."""
        return self._stream.unacknowledged_size > 0

    @property
    def in_flight_count(self) -> int:
        """Number of our requests without a response."""
        return self._protocol.in_flight_count

    @property
    def unanswered(self) -> list[Answer]:
        """Our requests without a response, oldest first."""
        return self._protocol.in_flight

    # --- for processors and clients -----------------------------------------------------------------------------------

    @property
    def is_writable(self) -> bool:
        return not self._stream.unsent_size

    def push(self, command: RemotingCommand) -> None:
        """Send a one-way command or a reply; never blocks. A dead or choked connection drops it silently."""
        if not self.is_open or self._is_full:
            logger.debug("%r: dropped %s: the connection is closed or does not read", self, command.name)
            return
        self._write(self._protocol.send(command))

    async def send(self, command: RemotingCommand) -> None:
        """Send a one-way command or a reply; waits for room.

        Raises:
            ConnectionLost: the connection is closed.
        """
        await self._wait_for_room(math.inf)
        self._write(self._protocol.send(command))

    async def invoke(self, command: RemotingCommand, timeout_s: float, about: object = None) -> RemotingCommand:
        """Send a request and wait for its response, `timeout_s` in all.

        Raises:
            RequestTimeout: no response in time.
            ConnectionLost: the connection closed first.
            TooManyRequests: too many are in flight.
        """
        now_s = self._clock()
        deadline_s = now_s + timeout_s
        if self._closing or self._stream.unsent_size >= self._limits.outgoing_size_max:
            await self._wait_for_room(deadline_s)
        future: aio.Future[Any] = self._backend.future()
        answer = Answer(future, now_s, timeout_s, about)
        self._stream.write(self._protocol.send_request(command, answer, deadline_s))
        if self._budget is not None:
            self._account()
        self._expect(now_s, deadline_s)
        try:
            return self._response(await future, command)
        except BaseException:
            self._protocol.forget(command.opaque)
            raise
        finally:
            del answer, future  # they have the error: see `_response`

    def invoke_without_task(self, command: RemotingCommand, timeout_s: float, waiter: Waiter) -> bool:
        """Send a request now; `waiter` gets the response, the error, or None if the connection closes first.

        Returns: False if the connection is closed or has no room: nothing was sent.

        Raises:
            TooManyRequests: too many are in flight.
        """
        if not self.is_open or self._is_full:
            return False
        now_s = self._clock()
        deadline_s = now_s + timeout_s
        self._write(self._protocol.send_request(command, Answer(waiter, now_s, timeout_s), deadline_s))
        self._expect(now_s, deadline_s)
        return True

    async def invoke_all(self, commands: Sequence[RemotingCommand], timeout_s: float) -> list[RemotingCommand]:
        """Send requests together and wait for all responses; they come in the order of the requests. `timeout_s` in
        all.

        Raises: as `invoke`, if any response is missing.
        """
        now_s = self._clock()
        await self._wait_for_room(now_s + timeout_s)
        futures: deque[aio.Future[Any]] = deque(self._backend.future() for _ in commands)
        try:
            requests = zip(commands, [Answer(future, now_s, timeout_s) for future in futures], strict=True)
            data = [self._protocol.send_request(command, answer, now_s + timeout_s) for command, answer in requests]
            del requests  # as in `invoke`
            self._write(b"".join(data))
            self._expect(now_s, now_s + timeout_s)
            return [self._response(await futures.popleft(), command) for command in commands]
        finally:
            for command in commands:
                self._protocol.forget(command.opaque)
            del futures  # as in `invoke`

    def _response(self, outcome: RemotingCommand | TransportError | None, request: RemotingCommand) -> RemotingCommand:
        if isinstance(outcome, RemotingCommand):
            return outcome
        try:
            raise outcome or ConnectionLost(
                f"the connection to <{self._peer}> closed before the response of {request.name} came"
            )
        finally:
            del outcome  # an error among the locals of its own traceback would be a cycle, which only gc ends

    def close(self) -> None:
        """Close soon, after queued data is written or a short time has passed."""
        if not self._closing:
            self._closing = True
            self._make_room()
            self._stream.close(self._limits.close_flush_s)

    def give_up(self) -> None:
        """Close at once: all connections together hold too much memory, and this one the most."""
        self._table.refused.report("serving a connection", f"{self._peer} is disconnected: it holds most memory")
        self._end()

    # --- the tasks ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry commands until either side ends the stream."""
        self._last_traffic_s = self._clock()
        try:
            if self._nursery is None:
                async with aio.open_nursery() as self._nursery:
                    await self._carry()
                    self._nursery.cancel()
            else:
                await self._carry()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._budget is not None:
                self._budget.hold(self, 0)
            for task in self._answers.values():
                task.cancel()
            for answer in self._protocol.close():
                answer.finish(None)
            self._make_room()

    async def _carry(self) -> None:
        self._is_running = True
        self._look_at(min(self._last_traffic_s + self._limits.idle_s, self._protocol.next_deadline))
        try:
            await self._stream.run(self, self._limits.receive_size)
        finally:  # before the nursery is closed: a call that is under way begins no more requests
            self._closing, self._is_running = True, False

    def _look_at(self, when_s: float) -> None:
        """Look at the deadlines then."""
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at_s = when_s
        self._timer = self._backend.call_at(when_s, self._look)

    def _look(self) -> None:
        """End the waits whose time is over, and the connection when it has been idle."""
        now_s = self._clock()
        for answer in self._protocol.expire(now_s):
            limit_ms = answer.timeout_s * 1000
            answer.finish(RequestTimeout(f"wait response on the channel <{self._peer}> timeout, {limit_ms:.0f} ms"))
            self._close_if_silent()
        idle_at_s = self._last_traffic_s + self._limits.idle_s
        if now_s < idle_at_s:
            self._was_late = False
            self._look_at(min(idle_at_s, self._protocol.next_deadline))
        elif now_s > idle_at_s + LATE_S and not self._was_late:  # this process was paused: read what came meanwhile
            self._was_late = True
            self._look_at(now_s + LATE_S)
        else:
            logger.debug("%r: closed the connection, idle for %g s", self, self._limits.idle_s)
            self.close()

    def _close_if_silent(self) -> None:
        """A request was not answered in time."""
        if not self._closing and self.silence_s >= self._limits.silence_s:
            logger.warning("closed the connection %r: no answer for %.0f s", self, self.silence_s)
            self.close()

    def _expect(self, now_s: float, deadline_s: float) -> None:
        """A request was sent."""
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        if deadline_s < self._looks_at_s and self._is_running:
            self._look_at(deadline_s)

    # --- byte_stream.Receiver -----------------------------------------------------------------------------------------

    def received(self, data: bytes | bytearray) -> None:
        self._last_traffic_s = self._clock()
        self._waiting_since_s = None
        self._protocol.receive_data(data)
        self._account()
        self._work.has_begun = False
        self._take_events()

    def drained(self) -> None:
        self._last_traffic_s = self._clock()
        self._account()
        self._make_room()

    def _take_events(self) -> None:
        """Handle what the peer has sent, until a request of it has to wait."""
        try:
            while self._work.held is None and (event := self._protocol.next_event()) is not None:
                if isinstance(event, ResponseReceived):
                    event.token.finish(event.command)
                elif self._work.has_room(size := event.command.held_size, self._is_full):
                    self._begin(event.command, size)
                else:
                    self._work.held = event.command
                    self._stream.pause()
                    if self._work.has_begun:
                        self._backend.call_soon(self._begin_after_next_turn)
        except RemoteProtocolError as exc:
            self._table.refused.report("reading a command", f"{self._peer} is disconnected: {exc}")
            self._end()

    def _begin(self, request: RemotingCommand, size: int) -> None:
        self._work.add(size)
        self._account()
        assert self._nursery is not None
        if self._has_own_nursery:
            self._nursery.start_soon(self._answer, request, size)
        else:
            self._answers[id(request)] = self._nursery.start(self._answer, request, size)

    async def _answer(self, request: RemotingCommand, size: int) -> None:
        try:
            response = await self._table.answer(request, self)
            if response is not None:
                if self._is_full:
                    await self._wait_with(response)
                await self.send(response)
        except TransportError:
            logger.debug("%r: the connection closed before the response to %s was sent", self, request.name)
        finally:
            self._answers.pop(id(request), None)
            self._work.remove(size)
            self._account()
            self._go_on()

    async def _wait_with(self, response: RemotingCommand) -> None:
        """Wait for room. The body counts as work meanwhile, or 1 024 small requests could hold large ones unseen."""
        body_size = len(response.body or b"")
        self._work.size += body_size
        self._account()
        try:
            await self._wait_for_room(math.inf)
        finally:
            self._work.size -= body_size

    def _begin_after_next_turn(self) -> None:
        """Wait one turn more: trio runs the tasks of a turn in any order, this call perhaps before the new task."""
        self._backend.call_soon(self._begin_next)

    def _begin_next(self) -> None:
        """The task of the request that was begun has run."""
        self._work.has_begun = False
        self._go_on()

    def _go_on(self) -> None:
        """Begin the request that had to wait, if it has room now, and those behind it."""
        held = self._work.held
        if held is not None and self.is_open and self._work.has_room(size := held.held_size, self._is_full):
            self._work.held = None
            self._begin(held, size)
            self._take_events()
            if self._work.held is None:
                self._stream.resume()

    # --- bounds -------------------------------------------------------------------------------------------------------

    @property
    def _is_full(self) -> bool:
        return self._stream.unsent_size >= self._limits.outgoing_size_max

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._account()

    def _account(self) -> None:
        if self._budget is not None and self.is_open:
            held_size = self._protocol.buffered_size + self._work.size + self._stream.unsent_size
            self._budget.hold(self, held_size)

    def _end(self) -> None:
        self._closing = True
        self._stream.abort()

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None
        self._go_on()

    async def _wait_for_room(self, deadline_s: float) -> None:
        """Wait until a write is allowed.

        Raises:
            RequestTimeout: the peer does not read. ConnectionLost: the connection is closed.
        """
        if self._is_full and self.is_open:
            with self._backend.move_on_at(deadline_s) as scope:
                while self._is_full and self.is_open:
                    if self._room is None:
                        self._room = aio.Event()
                    await self._room.wait()
            if scope.cancelled_caught:
                self._close_if_silent()
                raise RequestTimeout(f"the channel <{self._peer}> has no room to write within the timeout")
        if not self.is_open:
            raise ConnectionLost(f"the connection to <{self._peer}> is closed")


@attrs.define
class _Work:
    """The requests of the peer that are being answered.

    One begins in each turn of the loop: so they begin in their order, and a thousand that came in one read do not pass
    the bounds, in which an answer counts only once it is written.
    """

    owner: ChannelOwner
    held: RemotingCommand | None = attrs.field(init=False, default=None)  # read, and waits for room
    size: int = attrs.field(init=False, default=0)
    has_begun: bool = attrs.field(init=False, default=False)  # a request, in this turn
    _count: int = attrs.field(init=False, default=0)

    def add(self, size: int) -> None:
        self._count += 1
        self.size += size
        self.has_begun = True

    def remove(self, size: int) -> None:
        self._count -= 1
        self.size -= size

    def has_room(self, size: int, is_choked: bool) -> bool:
        """Return True if a request of `size` bytes may begin; `is_choked`: the peer does not read its replies."""
        limits = self.owner.limits
        if self._count >= limits.requests_max or self.has_begun or 0 < self.size > limits.requests_size_max - size:
            return False
        return self.owner.budget is None or not is_choked
