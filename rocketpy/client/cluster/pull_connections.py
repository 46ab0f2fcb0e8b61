"""Connections by which one thread pulls in bulk, without an event loop."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from rocketpy.codes import RequestCode
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.pull import PullMessageRequestHeader
from rocketpy.remoting.signature import Credentials, sign
from rocketpy.transport.blocking_connection import BlockingConnection

from ..results import StoredPull
from .api import stored_pull


@attrs.define(eq=False)
class PullConnection:
    """Pulls over one connection. Errors as BlockingConnection; any ends it."""

    carrier: BlockingConnection
    credentials: Credentials | None

    def ask(self, headers: Sequence[PullMessageRequestHeader]) -> list[int]:
        """Send pulls together. Returns their numbers, for `pulled`."""
        commands = [RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=header) for header in headers]
        if self.credentials is not None:
            for command in commands:
                sign(command, self.credentials)
        self.carrier.send(commands)
        return [command.opaque for command in commands]

    def pulled(self, number: int) -> StoredPull:
        """Wait for the answer to a pull. Raises also: BrokerError: it was refused; HeaderInvalid."""
        return stored_pull(self.carrier.response(number), self.carrier.address)


@attrs.define(eq=False)
class PullConnections:
    """The connections of a process with nothing under way. A reader takes one out for itself."""

    connect_timeout_s: float
    credentials: Credentials | None
    _idle: dict[str, PullConnection] = attrs.field(init=False, factory=dict)
    _is_closed: bool = attrs.field(init=False, default=False)

    def take(self, address: str, timeout_s: float) -> PullConnection:
        """Return a connection, a new one if need be, whose waits end after `timeout_s`. Raises ConnectFailed."""
        connection = self._idle.pop(address, None)
        if connection is not None and not connection.carrier.is_reusable:
            connection.carrier.close()
            connection = None
        if connection is None:
            connection = PullConnection(BlockingConnection(address, self.connect_timeout_s), self.credentials)
        connection.carrier.limit_waits(timeout_s)
        return connection

    def give_back(self, connection: PullConnection) -> None:
        """Keep the connection for the next reader, or close it if anything is under way."""
        carrier = connection.carrier
        is_kept = not self._is_closed and carrier.is_reusable
        if not is_kept or self._idle.setdefault(carrier.address, connection) is not connection:
            carrier.close()

    def close(self) -> None:
        """Close all of them; those in use when they are given back."""
        self._is_closed = True
        for connection in self._idle.values():
            connection.carrier.close()
        self._idle.clear()
