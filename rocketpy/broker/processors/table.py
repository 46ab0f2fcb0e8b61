"""How a processor finds the function of a request code: one line per code, in the family's own table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand

Handler = Callable[[RemotingCommand, Channel], Awaitable[RemotingCommand | None]]


class TableProcessor:
    """A Processor (remoting/abc.py) made of one handler per code."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._handlers = dict(handlers)

    @property
    def codes(self) -> frozenset[int]:
        return frozenset(self._handlers)

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        return await self._handlers[request.code](request, channel)
