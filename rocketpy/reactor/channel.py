"""Client connections as a manager process sees them: a connection number, a channel to write to, and pending calls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf

import attrs
import trio

from rocketpy.errors import ConnectionLost, RequestTimeout, TooManyRequests
from rocketpy.faults import Faults
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.command import RemotingCommand

from .outbox import Outbox
from .topology import SelectorDeaths
from .unasked import UNASKED_MAX, UnaskedResponses
from .worker_messages import WorkerMessage, encode_reply

OPAQUE_MAX = 0x7FFFFFFF
CALLS_MAX = 4096
CALLS_PER_CONNECTION_MAX = 64
UNHURRIED_NS = 20_000_000  # longest wait of a response that no client needs soon: to a heartbeat
assert UNASKED_MAX >= 2 * CALLS_PER_CONNECTION_MAX


@attrs.define
class _Call:
    """A request to a client that waits for its response."""

    answered: trio.Event = attrs.field(factory=trio.Event)
    response: RemotingCommand | None = None  # stays None if the connection is closed first


@attrs.define(eq=False)
class Gateway:
    """The way from this process to clients: one outbox per selector, and the calls that wait for a response.

    When a selector is too slow, its outbox fills up. Then pushes are dropped, and a connection whose response finds no
    room is closed, because a client cannot tell a lost response from a late one. `write` never raises: a response that
    cannot be encoded is replaced by a short error, a push is dropped; both are reported.
    """

    outboxes: Sequence[Outbox]  # by selector index
    faults: Faults = attrs.field(factory=Faults)
    deaths: SelectorDeaths = attrs.field(factory=SelectorDeaths)  # they send no CLOSED
    unasked: UnaskedResponses = attrs.field(factory=UnaskedResponses)
    _calls: dict[int, dict[int, _Call]] = attrs.field(init=False, factory=dict)  # connection -> opaque -> call
    _calls_count: int = attrs.field(init=False, default=0)
    _last_opaque: int = attrs.field(init=False, factory=lambda: time.monotonic_ns() & OPAQUE_MAX)
    """Opaque of our requests. It does not begin where the previous manager began, so that a late response to it matches
    no call of ours."""
    _to_close: set[int] = attrs.field(init=False, factory=set)
    _due_ns: int = attrs.field(init=False, default=0)  # when `flush` wakes the selectors; 0: no wake-up is scheduled

    def write(self, connection: int, command: RemotingCommand) -> None:
        if command.is_response:
            self._respond(connection, command)
            return
        try:
            self._put(connection, command.encode())
        except Exception as exc:
            self.faults.report(f"push of {command.name}", exc)

    def write_unhurried(self, connection: int, response: RemotingCommand, now_ns: int) -> None:
        """Write a response that waits for others, at most UNHURRIED_NS: `flush` wakes the selector then."""
        self._respond(connection, response, is_unhurried=True)
        self._due_ns = self._due_ns or now_ns + UNHURRIED_NS

    @property
    def has_unhurried(self) -> bool:
        """Return True if `flush` must be called when `rest_s` is over."""
        return self._due_ns != 0

    def rest_s(self, now_ns: int) -> float:
        """Return the time until `flush` has to be called, in seconds."""
        return max(0, self._due_ns - now_ns) / 1e9 if self._due_ns else inf

    def _respond(self, connection: int, response: RemotingCommand, *, is_unhurried: bool = False) -> None:
        frame, fault = response.encode_response()
        if fault is not None:
            self.faults.report("a response", fault)
        if not self._put(connection, frame, is_unhurried=is_unhurried):
            self.close(connection)

    def wake(self) -> None:
        """Wake the selectors for all that was written."""
        self._due_ns = 0
        for outbox in self.outboxes:
            if outbox.has_unhurried:
                outbox.wake()

    def is_writable(self, connection: int) -> bool:
        """Return True if nothing waits for room in the ring to its selector."""
        outbox = self._outbox(connection)
        return outbox is None or not outbox.backlog_bytes

    def _put(self, connection: int, frame: bytes, *, is_unhurried: bool = False) -> bool:
        """Returns False if the backlog of its selector is full. Frames for connections that are being closed are
        dropped."""
        outbox = self._outbox(connection)
        if outbox is None or connection in self._to_close:
            return True
        return outbox.put(WorkerMessage.REPLY, encode_reply(connection, frame), is_unhurried=is_unhurried)

    def close(self, connection: int) -> None:
        """Close the connection after everything written before has been sent."""
        outbox = self._outbox(connection)
        if outbox is not None and not outbox.put(WorkerMessage.REPLY, encode_reply(connection, b"", close_after=True)):
            self._to_close.add(connection)

    async def call(self, connection: int, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Ask the client and wait for its response, as `Channel.invoke` does.

        Raises: RequestTimeout, ConnectionLost; TooManyRequests (too many calls of this client, or of all clients, are
        pending); LocalProtocolError (the command is too large for a frame).
        """
        self._last_opaque = self._last_opaque % OPAQUE_MAX + 1
        opaque = self._last_opaque
        frame = attrs.evolve(command, opaque=opaque).encode()
        if self._calls_count >= CALLS_MAX or len(self._calls.get(connection, ())) >= CALLS_PER_CONNECTION_MAX:
            raise TooManyRequests(f"too many requests to clients ({self._calls_count}) are waiting for an answer")
        call = _Call()
        calls = self._calls.setdefault(connection, {})
        calls[opaque] = call
        self._calls_count += 1
        try:
            self._put(connection, frame)
            with trio.move_on_after(timeout_s) as scope:
                await call.answered.wait()
        finally:
            self._calls_count -= 1
            calls.pop(opaque, None)
            if not call.answered.is_set():
                self.unasked.expect(connection, opaque)
            if not calls and self._calls.get(connection) is calls:
                del self._calls[connection]
        if scope.cancelled_caught:
            raise RequestTimeout(f"no answer to {command.name} in {timeout_s:g} s")
        if call.response is None:
            raise ConnectionLost(f"the connection closed before it answered {command.name}")
        return call.response

    def answered(self, connection: int, response: RemotingCommand) -> bool:
        """A response has arrived. Returns False if the client was never asked for it."""
        call = self._calls.get(connection, {}).get(response.opaque)
        if call is None:
            return self.unasked.is_late(connection, response.opaque)
        call.response = response
        call.answered.set()
        return True

    def known(self) -> list[int]:
        """The connections with pending calls, and the connections that have sent responses to no request."""
        return [*self._calls, *self.unasked.connections]

    def closed(self, connection: int) -> None:
        """The connection was closed: end its pending calls."""
        self._to_close.discard(connection)
        self.unasked.closed(connection)
        for call in self._calls.pop(connection, {}).values():
            call.answered.set()

    def flush(self, now_ns: int, *, expects_more: bool = False) -> None:
        """Write what fits into the rings; wake the selectors if their wake-up is due.

        Args:
            expects_more: schedule the next wake-up, so that the caller naps until then.
        """
        if self._due_ns and now_ns >= self._due_ns:
            self.wake()
            self._due_ns = now_ns + UNHURRIED_NS if expects_more else 0
        for outbox in self.outboxes:
            outbox.flush()
        waiting, self._to_close = self._to_close, set()
        for connection in waiting:
            self.close(connection)

    def is_empty(self) -> bool:
        return not self._to_close and all(outbox.is_empty() for outbox in self.outboxes)

    def _outbox(self, connection: int) -> Outbox | None:
        index = connection >> 56
        return self.outboxes[index] if index < len(self.outboxes) else None


@attrs.frozen(eq=False)
class RingChannel:
    """`remoting.abc.Channel` of a connection that a selector owns. Equal channels are the same connection."""

    connection: int
    peer: Peer
    is_vip: bool
    _gateway: Gateway = attrs.field(repr=False)

    @property
    def listener(self) -> str:
        return ""

    @property
    def is_writable(self) -> bool:
        return self._gateway.is_writable(self.connection)

    def push(self, command: RemotingCommand) -> None:
        self._gateway.write(self.connection, command)

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        return await self._gateway.call(self.connection, command, timeout_s)

    def close(self) -> None:
        self._gateway.close(self.connection)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RingChannel) and other.connection == self.connection

    def __hash__(self) -> int:
        return hash(self.connection)
