"""The protocol state of one connection, without its socket: bytes in, events out, and requests that wait for a
response.

The same for both roles: either side may send requests, and the opaques of the two directions are separate numberings.
Clocks belong to the caller: deadlines are whatever numbers it uses.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import Generic, TypeVar

import attrs

from rocketpy.errors import ConnectionLost, RemoteProtocolError, TooManyRequests
from rocketpy.message.numbers import INT_MAX, INT_MIN

from .command import RemotingCommand
from .frame import FRAME_SIZE_MAX, HEADER_SIZE_MAX, FrameCutter

IN_FLIGHT_MAX = 65_535

T = TypeVar("T")


class ConnectionState(Enum):
    """OPEN until the stream ends (CLOSED) or what it carries is no protocol (FAILED); both are final."""

    OPEN = auto()
    CLOSED = auto()
    FAILED = auto()


@attrs.define
class RequestReceived:
    """The peer asks us; answer with the request's opaque, unless it is one-way."""

    command: RemotingCommand


@attrs.define
class ResponseReceived(Generic[T]):
    """The peer answered what was registered with `token`."""

    command: RemotingCommand
    token: T


class Connection(Generic[T]):
    """The protocol state of one connection. `T` is what the caller wants back with a response."""

    def __init__(
        self,
        *,
        frame_size_max: int = FRAME_SIZE_MAX,
        header_size_max: int = HEADER_SIZE_MAX,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self._cutter = FrameCutter(frame_size_max=frame_size_max, header_size_max=header_size_max)
        self._in_flight: dict[int, tuple[T, float]] = {}  # opaque -> token and deadline; oldest first
        self._in_flight_max = in_flight_max
        self._next_opaque = 0
        self.state = ConnectionState.OPEN
        self.unmatched_count = 0
        """Number of responses without a request, for example late ones. They are dropped."""

    @property
    def buffered_size(self) -> int:
        """Bytes of a frame that is not complete."""
        return self._cutter.buffered_size

    @property
    def in_flight_count(self) -> int:
        """Our requests without an answer."""
        return len(self._in_flight)

    @property
    def in_flight(self) -> list[T]:
        """The tokens of our requests without an answer, oldest first."""
        return [token for token, _ in self._in_flight.values()]

    @property
    def next_deadline(self) -> float:
        """The earliest deadline of a request; infinity if there is none."""
        return min((deadline for _, deadline in self._in_flight.values()), default=math.inf)

    # --- sending ------------------------------------------------------------------------------------------------------

    def send_request(self, request: RemotingCommand, token: T, deadline: float) -> bytes:
        """Number the request, expect its response, and return its bytes.

        Raises:
            ConnectionLost: the connection is not open.
            TooManyRequests: too many are in flight.
            LocalProtocolError: the request does not fit a frame.
        """
        if self.state is not ConnectionState.OPEN:
            self._check_open()
        if len(self._in_flight) >= self._in_flight_max:
            raise TooManyRequests(f"{len(self._in_flight)} requests are in flight on one connection")
        request.opaque = opaque = self._new_opaque()
        data = request.encode()
        self._in_flight[opaque] = (token, deadline)
        return data

    def send(self, command: RemotingCommand) -> bytes:
        """The bytes of a response (its opaque is set) or of a one-way request (numbered here).

        A response that does not fit a frame becomes a short error (RemotingCommand.encode_response).

        Raises:
            ConnectionLost: the connection is not open.
            LocalProtocolError: the one-way request does not fit a frame.
        """
        self._check_open()
        if command.is_response:
            return command.encode_response()[0]
        command.opaque = self._new_opaque()
        return command.encode()

    def _check_open(self) -> None:
        if self.state is not ConnectionState.OPEN:
            raise ConnectionLost(f"the connection is {self.state.name.lower()}")

    def _new_opaque(self) -> int:
        """The next number, wrapping at 32 bits, past those in flight."""
        while True:
            opaque = self._next_opaque
            self._next_opaque = INT_MIN if opaque == INT_MAX else opaque + 1
            if opaque not in self._in_flight:
                return opaque

    # --- receiving ----------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Process bytes from the peer. No bytes mean the end of the stream: then call `close`."""
        if self.state is ConnectionState.OPEN:
            if data:
                self._cutter.feed(data)
            else:
                self.state = ConnectionState.CLOSED

    def next_event(self) -> RequestReceived | ResponseReceived[T] | None:
        """The next event, or None: more bytes are needed.

        Raises:
            RemoteProtocolError: the bytes are no protocol; the connection has FAILED and is to be closed.
        """
        while self.state is ConnectionState.OPEN:
            try:
                frame = self._cutter.next_frame()
                if frame is None:
                    return None
                command = RemotingCommand.from_frame(frame)
            except RemoteProtocolError:
                self.state = ConnectionState.FAILED
                raise
            if not command.is_response:
                return RequestReceived(command)
            in_flight = self._in_flight.pop(command.opaque, None)
            if in_flight is not None:
                return ResponseReceived(command, in_flight[0])
            self.unmatched_count += 1
        return None

    # --- giving up ----------------------------------------------------------------------------------------------------

    def forget(self, opaque: int) -> None:
        """Stop waiting for this response; it is dropped when it arrives."""
        self._in_flight.pop(opaque, None)

    def expire(self, now: float) -> list[T]:
        """Remove requests past their deadline; returns their tokens, oldest request first."""
        expired = [opaque for opaque, (_, deadline) in self._in_flight.items() if deadline <= now]
        return [self._in_flight.pop(opaque)[0] for opaque in expired]

    def close(self) -> list[T]:
        """The stream is closed: returns the tokens of all requests that will get no response."""
        if self.state is ConnectionState.OPEN:
            self.state = ConnectionState.CLOSED
        tokens = self.in_flight
        self._in_flight.clear()
        return tokens
