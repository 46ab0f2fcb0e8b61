"""Registration with the name servers: at start, every 30 s, and whenever a topic changes.

One connection per name server stays open, because a name server removes a broker when the connection that registered it
closes. The whole topic table is always sent: a single topic with the table's version would make name servers skip the
rest of a change. A large table is sent in parts (registration.py), and only to name servers whose version differs.

Source: RocketMQ 4.9 `BrokerOuterAPI`, `BrokerController#registerBrokerAll`.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from typing import Protocol

import attrs
import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import parse_addresses
from rocketpy.errors import RocketError
from rocketpy.message.host import format_host
from rocketpy.remoting.bodies.kv import KVTable
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.namesrv import (
    BrokerRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
)

from .clock import Clock
from .current_settings import CurrentSettings
from .managers.topic_config import TopicConfigManager
from .registration import RegistrationPart, registration_parts

logger = logging.getLogger(__name__)

PERIOD_MIN_S, PERIOD_MAX_S = 10.0, 60.0
UNREGISTER_TIMEOUT_S = 3.0
LARGE_TOPICS = 10_000  # a larger table is sent only if its version differs, even with forceRegister


class NameServerClient(Protocol):
    """The part of transport's RemotingClient that is used here."""

    async def invoke(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand: ...


@attrs.frozen(kw_only=True)
class RegistrationStatistics:
    """The last registration, and counts of all."""

    topics: int = 0
    bytes: int = 0
    parts: int = 0
    failures: int = 0  # requests that failed or were refused, with any name server, since the start
    last_success_ms: int | None = None  # wall clock; None: none yet


class BrokerOuterApi:
    """Registers this broker, and its topics, with every name server."""

    def __init__(
        self, settings: CurrentSettings, topics: TopicConfigManager, client: NameServerClient, clock: Clock
    ) -> None:
        self._settings = settings
        self._clock = clock
        self.statistics = RegistrationStatistics()
        self._topics = topics
        self._client = client
        self._changed = trio.Event()
        self._lock = trio.Lock()  # one registration at a time: versions arrive in order
        self._unreachable: set[str] = set()
        self._has_left = False

    def topics_changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Register now, and again each period or when topics change."""
        forced = True
        while True:
            self._changed = trio.Event()
            await self.register(forced=forced)
            with trio.move_on_after(self._period_s):
                await self._changed.wait()
            forced = self._changed.is_set() or self._settings.broker.force_register

    async def register(self, *, forced: bool = True) -> None:
        """Register with all name servers in parallel. One that does not answer is tried again in the next round.

        `forced=False`: only with those whose version differs or is unknown.
        """
        async with self._lock:
            if self._has_left or not self._addresses:
                return
            topics, version = self._topics.topics, self._topics.data_version
            is_wanted = forced and len(topics) <= LARGE_TOPICS
            addresses = [address for address in self._addresses if is_wanted]
            if not is_wanted:
                async with trio.open_nursery() as nursery:
                    for address in self._addresses:
                        nursery.start_soon(self._add_if_different, address, version, addresses)
            if not addresses:
                return
            broker = self._settings.broker
            parts = await registration_parts(
                topics, version, permission=broker.broker_permission, is_compressed=broker.compressed_register
            )
            self._count(topics=len(topics), bytes=sum(len(part.body) for part in parts), parts=len(parts))
            async with trio.open_nursery() as nursery:
                for address in addresses:
                    nursery.start_soon(self._register_with, address, parts)

    async def unregister(self) -> None:
        """Unregister from all name servers, so that clients use other brokers at once."""
        async with self._lock, trio.open_nursery() as nursery:
            self._has_left = True  # a later change of a topic must not register the broker again
            for address in self._addresses:
                request = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, self._identity())
                nursery.start_soon(self._call, address, request, UNREGISTER_TIMEOUT_S)

    @property
    def _addresses(self) -> list[str]:
        text = self._settings.broker.namesrv_addr
        return [format_host(address) for address in parse_addresses(text)] if text else []

    @property
    def _period_s(self) -> float:
        return min(PERIOD_MAX_S, max(PERIOD_MIN_S, self._settings.broker.register_name_server_period / 1000))

    async def _register_with(self, address: str, parts: Sequence[RegistrationPart]) -> None:
        """Send all parts in order, and stop at the first failure: then the name server does not have the table's
        version, and the next round sends all parts again."""
        settings = self._settings.value
        for number, part in enumerate(parts):
            header = RegisterBrokerRequestHeader(
                broker_name=settings.broker.broker_name,
                broker_addr=settings.broker_addr,
                cluster_name=settings.broker.broker_cluster_name,
                ha_server_addr=settings.ha_server_addr,
                broker_id=settings.broker.broker_id,
                compressed=settings.broker.compressed_register,
                body_crc32=zlib.crc32(part.body) & 0x7FFFFFFF,
            )
            request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, part.body)
            answer = await self._call(address, request, self._timeout_s)
            if answer is None:
                self._count(failures=self.statistics.failures + 1)
                if len(parts) > 1:
                    logger.warning(
                        "name server %s accepted %d of %d parts of the registration (%d topics); sending all again",
                        address,
                        number,
                        len(parts),
                        self.statistics.topics,
                    )
                return
        self._count(last_success_ms=self._clock.now_ms())
        if answer is not None and answer.body:
            await self._take_order_topics(address, answer.body)

    def _count(self, **changes: int) -> None:
        self.statistics = attrs.evolve(self.statistics, **changes)

    @property
    def _timeout_s(self) -> float:
        return self._settings.broker.register_broker_timeout_mills / 1000

    async def _add_if_different(self, address: str, version: DataVersion, found: list[str]) -> None:
        """Add the name server to `found` if its version of our topics differs or is unknown."""
        request = RemotingCommand.request(RequestCode.QUERY_DATA_VERSION, self._identity(), version.encode())
        answer = await self._call(address, request, self._timeout_s)
        try:
            if answer is None or QueryDataVersionResponseHeader.of(answer).changed:
                found.append(address)
        except RocketError:
            found.append(address)

    async def _take_order_topics(self, address: str, body: bytes) -> None:
        """Read the ordered topics of the cluster from the response; without a body there are none."""
        try:
            ordered = KVTable.decode(body).table
        except RocketError as exc:
            logger.warning("cannot read the table of ordered topics from name server %s: %s", address, exc)
            return
        if await self._topics.update_order_topics(ordered.keys()):
            self.topics_changed()

    async def _call(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand | None:
        """Returns the successful response, or None. A failure is logged once, until a call succeeds again."""
        try:
            answer = await self._client.invoke(address, request, timeout_s)
        except RocketError as exc:
            if address not in self._unreachable:
                self._unreachable.add(address)
                logger.warning("cannot send %s to name server %s: %s; trying again", request.name, address, exc)
            return None
        if address in self._unreachable:
            self._unreachable.discard(address)
            logger.info("name server %s is reachable again", address)
        if answer.code != ResponseCode.SUCCESS:
            logger.warning("name server %s refused %s: %s %s", address, request.name, answer.name, answer.remark)
            return None
        return answer

    def _identity(self) -> BrokerRequestHeader:
        settings = self._settings.value
        return BrokerRequestHeader(
            broker_name=settings.broker.broker_name,
            broker_addr=settings.broker_addr,
            cluster_name=settings.broker.broker_cluster_name,
            broker_id=settings.broker.broker_id,
        )
