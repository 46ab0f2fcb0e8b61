"""Asks name servers for routes at once when a broker turns out not to be the master any more.

Routes are refreshed every 30 s otherwise (pollNameServerInterval). After a failover a client would ask a broker that
is gone, or is a slave now, for as long. So a request that fails in a way that tells of a change doubts the route of its
topic, and a task asks for the routes of doubted topics: at once, then after pauses that double up to PAUSE_MAX_S while
doubts go on. A client that is without a broker asks about once a second, however many messages it wants to send.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable

import attrs

from rocketpy import aio
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, RocketError, TooManyRequests, TransportError

logger = logging.getLogger(__name__)

PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 0.8
QUIET_S = 5.0  # without doubts: then the next one is answered at once again


def tells_of_change(error: RocketError) -> bool:
    """Return True if the broker may not be the master any more: it does not answer, or takes no messages."""
    if isinstance(error, BrokerError):
        return error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    return isinstance(error, TransportError) and not isinstance(error, TooManyRequests)


@attrs.define(eq=False)
class RouteRenewal:
    """Topics in doubt, and a task while there are any. `update` asks for the route of a topic and stores it."""

    update: Callable[[str], Awaitable[object]]
    nursery: aio.Nursery | None = None  # of the task; None: not started yet
    _doubted: dict[str, aio.Event] = attrs.field(factory=dict)  # topics in use; set when the route was asked for
    _is_asking: bool = False
    _pause_s: float = PAUSE_MIN_S
    _asked_s: float = -math.inf  # when the last round was over

    def start(self, nursery: aio.Nursery) -> None:
        """Begin to ask: in a task of `nursery`, until that is cancelled."""
        self.nursery = nursery
        self._begin()

    def doubt(self, topic: str) -> aio.Event:
        """Ask for the route soon. Returns: an event that is set when that was done, with or without success."""
        asked = self._doubted.setdefault(topic, aio.Event())
        self._begin()
        return asked

    def _begin(self) -> None:
        if self._doubted and not self._is_asking and self.nursery is not None:
            self._is_asking = True
            self.nursery.start_soon(self._run)

    async def _run(self) -> None:
        while self._doubted:
            await aio.sleep_until(self._asked_s + self._pause_s)
            await self._ask()
        self._is_asking = False

    async def _ask(self) -> None:
        """One round. Doubts that come while it asks are for the next one."""
        is_first = aio.now_s() > self._asked_s + QUIET_S
        self._pause_s = PAUSE_MIN_S if is_first else min(PAUSE_MAX_S, 2 * self._pause_s)
        topics, self._doubted = self._doubted, {}
        try:
            for topic in topics:
                try:
                    await self.update(topic)
                except RocketError as error:
                    logger.info("cannot ask for the route of topic %s: %s; keeping the known route", topic, error)
        finally:
            self._asked_s = aio.now_s()
            for asked in topics.values():
                asked.set()
