"""A master with automatic failover sees to it that clients find it: each name server's route must show its address.

A former master that was paused may register once more when it wakes, and name servers of the reference then drop its
successor: for up to a minute, or for ever if the version of the topics is the same. So the master asks each name server
for its route once a second, and registers again where another address is shown, or none.

The route is that of the topic with the broker's name, which each broker has: the answer names no other broker. A name
server that does not know this topic does not know the broker either.

A name server may show another master whatever it is told: anyone who reaches its port can register one, with an epoch
above all others. A registration carries the whole topic table, so it is repeated every second, AT_ONCE times, then
after twice the time each, up to the period of ordinary registrations.
"""

from __future__ import annotations

import logging
import math

import attrs
import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, RocketError
from rocketpy.remoting.bodies.route import MASTER_ID, TopicRouteData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.namesrv import GetRouteInfoRequestHeader

from ..current_settings import CurrentSettings
from .outer_api import BrokerOuterApi

logger = logging.getLogger(__name__)

WATCH_S = 1.0
TIMEOUT_S = 1.0
AT_ONCE = 4


@attrs.define
class _Dispute:
    """A name server shows `shown` as the master: how often this broker has registered again, and when it may next."""

    shown: str | None
    times: int = 0
    next_s: float = -math.inf

    def count(self, now_s: float, period_s: float) -> None:
        self.times += 1
        self.next_s = now_s + (min(period_s, 2.0 ** (self.times - AT_ONCE)) if self.times > AT_ONCE else 0.0)


@attrs.define(eq=False)
class MasterRoute:
    """The duty of a master; it does nothing without automatic failover, or while the mastership is uncertain."""

    _settings: CurrentSettings
    _outer_api: BrokerOuterApi
    _disputes: dict[str, _Dispute] = attrs.field(init=False, factory=dict)  # by name server

    async def look(self) -> None:
        """Ask each name server once; on a master with automatic failover only."""
        if not self._is_master:  # asked before a task begins for each name server, which happens once a second
            return
        async with trio.open_nursery() as nursery:
            for address in self._outer_api.addresses:
                nursery.start_soon(self._look_at, address)

    async def _look_at(self, address: str) -> None:
        settings = self._settings.value
        header = GetRouteInfoRequestHeader(topic=settings.broker.broker_name, accept_standard_json_only=True)
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        try:
            answer = await self._outer_api.ask(address, request, TIMEOUT_S)
            shown = _master_in(answer, settings.broker.broker_name)
        except RocketError:
            return  # registrations say that a name server does not answer
        # A name server on a network of advertisedAddresses shows the address for there.
        own = (settings.broker_addr, *settings.advertised.addresses)
        if shown not in own and self._is_master:
            self._register_again(address, shown)

    def _register_again(self, address: str, shown: str | None) -> None:
        """Register again, unless this name server has shown the same for so long that it is tried less often."""
        dispute, now_s = self._disputes.get(address), trio.current_time()
        if dispute is None or dispute.shown != shown or now_s > dispute.next_s + self._outer_api.period_s:
            dispute = self._disputes[address] = _Dispute(shown)
        if now_s < dispute.next_s or not self._outer_api.register_again(address):
            return
        dispute.count(now_s, self._outer_api.period_s)
        logger.warning(
            "the route of name server %s shows %s as the master; registering again, the next time in %.0f s at the "
            "earliest",
            address,
            shown or "no broker",
            max(WATCH_S, dispute.next_s - now_s),
        )

    @property
    def _is_master(self) -> bool:
        member = self._outer_api.member
        registered = member() if member is not None else None
        return registered is not None and registered.broker_id == MASTER_ID


def _master_in(answer: RemotingCommand, broker_name: str) -> str | None:
    """Return the address with id 0; None: there is none, or the topic is unknown.

    Raises:
        RocketError: the name server did not say.
    """
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark)
    brokers = TopicRouteData.decode(answer.body).broker_datas
    return next((data.broker_addrs.get(MASTER_ID) for data in brokers if data.broker_name == broker_name), None)
