"""Chooses a name server: one stays chosen while it answers, else any other is used.

Source: RocketMQ 4.9 `NettyRemotingClient#getAndCreateNameserverChannel`. Unlike Java, a request that could not connect
goes on to the next server at once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

import attrs
import trio

from rocketpy.errors import ClientError, ConnectFailed, TransportError
from rocketpy.remoting.command import RemotingCommand

from .error_codes import ClientCode


class Remoting(Protocol):
    """The part of a transport that the API uses; `rocketpy.transport.RemotingClient` implements it."""

    async def invoke(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand: ...

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_s: float) -> None: ...


@attrs.define(eq=False)
class NameServers:
    """The name servers, in a random order per client, so that clients are spread over the servers."""

    remoting: Remoting
    addresses: list[str]
    _chosen: int = 0

    @classmethod
    def shuffled(cls, remoting: Remoting, addresses: Sequence[str], rng: random.Random) -> NameServers:
        return cls(remoting, rng.sample(list(addresses), len(addresses)))

    @property
    def chosen(self) -> str | None:
        return self.addresses[self._chosen] if self.addresses else None

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Ask the chosen server, and while servers cannot be connected to, the others in turn.

        Raises:
            ClientError: no name server is configured.
            TransportError: none could be reached, or the chosen one did not answer (the next request uses another).
        """
        if not self.addresses:
            raise ClientError(
                "no name server address: pass name_servers= or set NAMESRV_ADDR", code=ClientCode.NO_NAME_SERVER
            )
        end_s = trio.current_time() + timeout_s
        failures = []
        for _ in self.addresses:
            address = self.addresses[self._chosen]
            try:
                return await self.remoting.invoke(address, command, max(end_s - trio.current_time(), 0.001))
            except TransportError as error:
                self._chosen = (self._chosen + 1) % len(self.addresses)
                failures.append(error)
                if not isinstance(error, ConnectFailed) or trio.current_time() >= end_s:
                    raise
        raise ConnectFailed(f"no name server of {';'.join(self.addresses)} can be reached: {failures[-1]}")
