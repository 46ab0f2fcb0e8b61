"""Base of processors: a table from request code to handler; and processors that stand around another one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from rocketpy.config import BrokerSettings
from rocketpy.remoting.abc import Channel, Detached, Processor, Response, final_response
from rocketpy.remoting.admin_guard import AdminGuard
from rocketpy.remoting.command import RemotingCommand

from ..managers.table_followers import CHANGES, WAIT_S, TableFollowers

WAITERS_MAX = 64  # changes that wait for slaves at once
SLAVES = "slaves"

Handler = Callable[[RemotingCommand, Channel], Awaitable[Response]]


class TableProcessor:
    """A Processor (remoting/abc.py) made of one handler per code."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._handlers = dict(handlers)

    @property
    def codes(self) -> frozenset[int]:
        return frozenset(self._handlers)

    async def process(self, request: RemotingCommand, channel: Channel) -> Response:
        return await self._handlers[request.code](request, channel)


class GuardedProcessor:
    """A Processor that asks `guard` before it serves an administrative request."""

    def __init__(self, processor: Processor, guard: AdminGuard) -> None:
        self._processor = processor
        self._guard = guard

    async def process(self, request: RemotingCommand, channel: Channel) -> Response:
        self._guard.check(request.code, channel.peer.host)
        return await self._processor.process(request, channel)


def guard_of(settings: BrokerSettings) -> AdminGuard:
    """Return the guard that decides which addresses may administer the broker."""
    own = (settings.broker.broker_ip1, settings.broker.broker_ip2, settings.server.bind_address)
    return AdminGuard.of(
        settings.rocketpy.admin_addresses,
        own,
        trusts_own=settings.rocketpy.admin_trusts_loopback,
        peers=settings.store.ha_addresses,
    )


class FollowedProcessor:
    """A Processor whose changes of topics and groups are answered when slaves have them."""

    def __init__(self, processor: Processor, followers: TableFollowers) -> None:
        self._processor = processor
        self._followers = followers

    async def process(self, request: RemotingCommand, channel: Channel) -> Response:
        answer = await self._processor.process(request, channel)
        if answer is None:
            return None

        async def finish() -> RemotingCommand | None:
            result = await final_response(answer)
            await self._followers.wait(CHANGES[request.code])
            return result

        if isinstance(answer, Detached):
            return Detached(finish, answer.waits_for, answer.timeout_s + WAIT_S, answer.at_once_max, answer.asker_max)
        return Detached(finish, SLAVES, 2 * WAIT_S, at_once_max=WAITERS_MAX)
