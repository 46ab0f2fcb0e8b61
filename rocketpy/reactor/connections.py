"""The connections whose commands a worker serves, from the first one to their end.

    CLOSED, or the death of the selector  ->  its requests in service end  ->  SlowPath.connection_closed

A connection that has ended stays until its last request is served: a heartbeat in service would add its client again
after the removal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from rocketpy.remoting.fast_path import SlowPath

from .channel import Gateway, RingChannel
from .worker_messages import Origin


@attrs.define(eq=False)
class ServedConnection:
    """A connection that has sent commands."""

    channel: RingChannel
    in_service: int = 0
    is_closed: bool = False


@attrs.define(eq=False)
class ServedConnections:
    """The connections that have sent commands, by number.

    Args:
        cancel_preparation: ends the preparation of a connection, if there is one.
    """

    gateway: Gateway
    slow_path: SlowPath | None
    cancel_preparation: Callable[[int], None]
    _known: dict[int, ServedConnection] = attrs.field(init=False, factory=dict)

    def channel(self, origin: Origin) -> RingChannel:
        """The channel of a request. Of the fast path it is not stored: CLOSED may have arrived before."""
        known = self._known.get(origin.connection)
        if known is not None:
            return known.channel
        return RingChannel(origin.connection, origin.peer, origin.listener != 0, self.gateway)

    def of_command(self, origin: Origin) -> ServedConnection:
        """Return the connection of a command, which is kept from now on."""
        connection = self._known.get(origin.connection)
        if connection is None:
            is_closed = self.gateway.deaths.is_gone(origin.connection)  # its selector died: served, then dropped
            connection = ServedConnection(self.channel(origin), is_closed=is_closed)
            self._known[origin.connection] = connection
        return connection

    def leave(self, connection: ServedConnection) -> None:
        """A request of the connection is finished, or has left its pool."""
        connection.in_service -= 1
        if connection.is_closed and connection.in_service == 0:
            self._tell_closed(connection.channel.connection)

    def close(self, number: int) -> None:
        """CLOSED has arrived."""
        self.gateway.closed(number)
        connection = self._known.get(number)
        if connection is not None:
            connection.is_closed = True
            self.cancel_preparation(number)
            if connection.in_service > 0:
                if self.slow_path is not None:
                    self.slow_path.connection_closing(number)
                return
        self._tell_closed(number)

    def drop_gone(self) -> Iterator[None]:
        """Remove the connections of a dead selector, one per step."""
        is_gone = self.gateway.deaths.is_gone
        for number in filter(is_gone, [*self._known, *self.gateway.known()]):
            self.gateway.closed(number)
            connection = self._known.get(number)
            if connection is not None and connection.in_service > 0:
                connection.is_closed = True
                self.cancel_preparation(number)
            elif connection is not None:
                del self._known[number]
            yield
        if self.slow_path is not None:
            yield from self.slow_path.drop_connections(is_gone)

    def _tell_closed(self, number: int) -> None:
        self._known.pop(number, None)
        try:
            if self.slow_path is not None:
                self.slow_path.connection_closed(number)
        except Exception as exc:
            self.gateway.faults.report("the end of a connection", exc)
