"""A master with automatic failover sees to it that clients find it: each name server's route must show its address.

A former master that was paused may register once more when it wakes, and name servers of the reference then drop its
successor: for up to a minute, or for ever if the version of the topics is the same. So the master asks each name server
for its route once a second, and registers again where another address is shown, or none.

The route is that of the topic with the broker's name, which each broker has: the answer names no other broker.
"""

from __future__ import annotations

import logging

import attrs
import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RocketError
from rocketpy.remoting.bodies.route import MASTER_ID, TopicRouteData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.namesrv import GetRouteInfoRequestHeader

from .current_settings import CurrentSettings
from .outer_api import BrokerOuterApi

logger = logging.getLogger(__name__)

WATCH_S = 1.0
TIMEOUT_S = 1.0


@attrs.define(eq=False)
class MasterRoute:
    """The duty of a master; it does nothing without automatic failover, or while the mastership is uncertain."""

    _settings: CurrentSettings
    _outer_api: BrokerOuterApi

    async def look(self) -> None:
        """Ask each name server once."""
        async with trio.open_nursery() as nursery:
            for address in self._outer_api.addresses:
                nursery.start_soon(self._look_at, address)

    async def _look_at(self, address: str) -> None:
        if not self._is_master:
            return
        settings = self._settings.value
        header = GetRouteInfoRequestHeader(topic=settings.broker.broker_name, accept_standard_json_only=True)
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        try:
            answer = await self._outer_api.ask(address, request, TIMEOUT_S)
            if answer.code != ResponseCode.SUCCESS:
                return  # it has no such topic: nothing is known about the broker
            shown = _master_in(TopicRouteData.decode(answer.body), settings.broker.broker_name)
        except RocketError:
            return  # registrations say that a name server does not answer
        if shown != settings.broker_addr and self._is_master:
            logger.warning(
                "the route of name server %s shows %s as the master; registering again", address, shown or "no broker"
            )
            self._outer_api.register_again(address)

    @property
    def _is_master(self) -> bool:
        member = self._outer_api.member
        registered = member() if member is not None else None
        return registered is not None and registered.broker_id == MASTER_ID


def _master_in(route: TopicRouteData, broker_name: str) -> str | None:
    """The address with id 0."""
    found = (data.broker_addrs.get(MASTER_ID) for data in route.broker_datas if data.broker_name == broker_name)
    return next(found, None)
