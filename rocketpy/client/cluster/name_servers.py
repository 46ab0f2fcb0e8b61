"""Chooses a name server: one stays chosen while it answers, else any other is used.

Source: RocketMQ 4.9 `NettyRemotingClient#getAndCreateNameserverChannel`. Unlike Java, a request that could not connect
goes on to the next server at once, and one that is not answered after its server's share of the timeout: a name server
that accepts connections and does not answer costs one request a part of its time, and later ones nothing.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Iterable, Sequence
from typing import Protocol

import attrs

from rocketpy import aio
from rocketpy.errors import ClientError, ConnectFailed, RequestTimeout, TransportError
from rocketpy.remoting.command import RemotingCommand
from rocketpy.transport.channel import Answer, Waiter

from ..results import ClientCode


class Remoting(Protocol):
    """The part of a transport that the API uses; `rocketpy.transport.RemotingClient` implements it."""

    def invoke(
        self, address: str, command: RemotingCommand, timeout_s: float, *, about: object = None
    ) -> Awaitable[RemotingCommand]: ...

    def invoke_without_task(self, address: str, request: RemotingCommand, timeout_s: float, waiter: Waiter) -> bool: ...

    async def invoke_all(
        self, address: str, requests: Sequence[RemotingCommand], timeout_s: float
    ) -> list[RemotingCommand]: ...

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_s: float) -> None: ...

    def waiting(self, sent_until_s: float) -> Iterable[tuple[str, Answer]]: ...

    def reaches(self, address: str) -> bool: ...


@attrs.define(eq=False)
class NameServers:
    """The name servers, in a random order per client, so that clients are spread over the servers."""

    remoting: Remoting
    addresses: list[str]
    looked_up: aio.Event | None = None  # set when an address server has named them; None: they were given
    _chosen: int = 0

    @classmethod
    def shuffled(cls, remoting: Remoting, addresses: Sequence[str], rng: random.Random) -> NameServers:
        return cls(remoting, rng.sample(list(addresses), len(addresses)))

    def replace(self, addresses: Sequence[str], rng: random.Random) -> None:
        """Use another list; the chosen server stays if it is still listed."""
        chosen = self.chosen
        self.addresses = rng.sample(list(addresses), len(addresses))
        self._chosen = self.addresses.index(chosen) if chosen in self.addresses else 0
        if self.looked_up is not None:
            self.looked_up.set()

    async def listed(self, timeout_s: float) -> list[str]:
        """All name servers; waits for the address server to name them.

        Raises:
            ClientError: none is configured, or the address server has named none within the time.
        """
        if not self.addresses and self.looked_up is not None:
            with aio.move_on_after(timeout_s):
                await self.looked_up.wait()
        if self.addresses:
            return self.addresses
        text = "give name_servers= (-n of commands) or NAMESRV_ADDR; with ROCKETMQ_NAMESRV_DOMAIN they are looked up"
        if self.looked_up is not None:
            text = "the address server has not named any; see the log"
        raise ClientError(f"no name server address: {text}", code=ClientCode.NO_NAME_SERVER)

    @property
    def chosen(self) -> str | None:
        return self.addresses[self._chosen] if self.addresses else None

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Ask the chosen server, and the others in turn while servers do not answer. Requests to name servers may be
        repeated.

        Raises:
            ClientError: no name server is configured.
            TransportError: none answered, or the connection of the one that was asked was lost.
        """
        end_s = aio.now_s() + timeout_s
        await self.listed(timeout_s)
        failure = ""  # the text: an error among the locals of its own traceback would be a cycle
        for left in range(len(self.addresses), 0, -1):
            address = self.addresses[self._chosen % len(self.addresses)]
            share_s = max((end_s - aio.now_s()) / left, 0.001)
            try:
                return await self.remoting.invoke(address, command, share_s)
            except TransportError as error:
                if self.chosen == address:
                    self._chosen = (self._chosen + 1) % len(self.addresses)
                failure = str(error)
                if not isinstance(error, ConnectFailed | RequestTimeout) or aio.now_s() >= end_s:
                    raise
        raise ConnectFailed(f"no name server of {';'.join(self.addresses)} answers: {failure}")
