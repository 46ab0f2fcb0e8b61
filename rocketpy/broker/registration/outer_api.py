"""Registration with the name servers: at start, every 30 s, and whenever a topic changes.

One connection per name server stays open, because a name server removes a broker when the connection that registered it
closes. The whole topic table is always sent: a single topic with the table's version would make name servers skip the
rest of a change. A large table is sent in parts (registration.py), and only to name servers whose version differs.

Each name server has a task of its own: one that accepts connections and does not answer delays nobody else's
registration. While a registration with it is under way, the newest table alone waits behind it.

Source: RocketMQ 4.9 `BrokerOuterAPI`, `BrokerController#registerBrokerAll`.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import attrs
import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import BrokerConfig, BrokerSettings, parse_addresses
from rocketpy.errors import RocketError
from rocketpy.faults import printable
from rocketpy.message.host import format_host
from rocketpy.remoting.bodies.route import KVTable
from rocketpy.remoting.bodies.topic import DataVersion, TopicConfig
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.namesrv import (
    BrokerRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
)
from rocketpy.transport.address_server import AddressLookup, address_server_url, ask_address_server

from ..clock import Clock
from ..current_settings import CurrentSettings
from ..managers.topic_config import TopicConfigManager
from .registration import RegistrationPart, registration_parts

logger = logging.getLogger(__name__)

PERIOD_MIN_S, PERIOD_MAX_S = 10.0, 60.0
SEARCH_PERIOD_S = 2.0  # of a slave that has not found its master yet
UNREGISTER_TIMEOUT_S = 3.0
_ACCOUNT_HINT = "; set aclCredentialsFile, and name its account in aclBrokerAccounts of the name server"
LARGE_TOPICS = 10_000  # a larger table is sent only if its version differs, even with forceRegister


class NameServerClient(Protocol):
    """The part of transport's RemotingClient that is used here."""

    def invoke(self, address: str, request: RemotingCommand, timeout_s: float) -> Awaitable[RemotingCommand]: ...


@attrs.frozen
class RegisteredAs:
    """The id under which a broker registers, and, of a master with automatic failover, its epoch."""

    broker_id: int
    master_epoch: int | None = None


@attrs.frozen(kw_only=True)
class RegistrationStatistics:
    """The last registration, and counts of all."""

    topics: int = 0
    bytes: int = 0
    parts: int = 0
    failures: int = 0  # requests that failed or were refused, with any name server, since the start
    last_success_ms: int | None = None  # wall clock; None: none yet


@attrs.define(eq=False)
class _Table:
    """The topics to register, as they were at one moment; encoded once, by the first server that wants them."""

    topics: Mapping[str, TopicConfig]
    version: DataVersion
    broker: BrokerConfig
    is_wanted: bool  # by name servers with the same version, too
    _parts: list[RegistrationPart] | None = None
    _lock: trio.Lock = attrs.field(factory=trio.Lock)

    async def parts(self) -> list[RegistrationPart]:
        async with self._lock:
            if self._parts is None:
                self._parts = await registration_parts(
                    self.topics,
                    self.version,
                    permission=self.broker.broker_permission,
                    is_compressed=self.broker.compressed_register,
                )
            return self._parts


@attrs.define(eq=False)
class _Server:
    """One name server."""

    address: str
    waiting: _Table | None = None  # behind the registration that is under way
    idle: trio.Event | None = None  # set when none is under way; None: none was
    is_silent: bool = False  # its last request failed
    registered_as: RegisteredAs | None = None  # what it accepted last

    @property
    def is_busy(self) -> bool:
        return self.idle is not None and not self.idle.is_set()


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
        self._servers: dict[str, _Server] = {}
        self._found: list[str] = []  # by the address server
        self._ask: Callable[[str], Awaitable[list[str]]] = ask_address_server
        self._nursery: trio.Nursery | None = None  # of `run`
        self._has_left = False
        self.on_master: Callable[[str | None, str | None], None] = lambda master, ha: None
        """On a slave, called with the master's addresses of requests and of the log; None: none is registered."""
        self._knows_master = False
        self.member: Callable[[], RegisteredAs | None] | None = None
        """The role to register as, with automatic failover. Each change is registered. None: it is not certain now that
        this broker still is the master, and nothing is registered."""
        self._first_round = trio.Event()

    def topics_changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Register now, and again each period or when topics change."""
        forced = True
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                self._look_up(nursery)
                while True:
                    self._changed = trio.Event()
                    servers = self._begin(nursery, forced=forced)
                    if not self._first_round.is_set():
                        nursery.start_soon(self._end_first_round, servers)
                    with trio.move_on_after(self.period_s):
                        await self._changed.wait()
                    forced = self._changed.is_set() or self._settings.broker.force_register
            finally:
                self._nursery = None

    async def wait_first_round(self) -> None:
        """Wait until each name server has answered the first registration of `run` or failed to, at most
        registerBrokerTimeoutMills.

        Source: RocketMQ 4.9 `BrokerController#start`: it registers before the broker says that it serves.
        """
        with trio.move_on_after(self._settings.broker.register_broker_timeout_mills / 1000):
            await self._first_round.wait()

    async def _end_first_round(self, servers: Sequence[_Server]) -> None:
        for server in servers:
            if server.idle is not None:
                await server.idle.wait()
        self._first_round.set()

    def _look_up(self, nursery: trio.Nursery) -> None:
        """Follow the address server, when no name servers are given."""
        broker = self._settings.broker
        if broker.fetch_namesrv_addr_by_address_server and broker.rmq_address_server_domain:
            url = address_server_url(broker.rmq_address_server_domain, broker.rmq_address_server_sub_group)
            nursery.start_soon(AddressLookup(url, self._take_found, self._ask).run)

    def _take_found(self, addresses: list[str]) -> None:
        self._found = addresses
        self.topics_changed()

    async def register(self, *, forced: bool = True) -> None:
        """Register with all name servers. One that does not answer is tried again in the next round, and is not waited
        for until it has answered.

        `forced=False`: only with those whose version differs or is unknown.
        """
        if self._nursery is None:
            async with trio.open_nursery() as nursery:
                self._begin(nursery, forced=forced)
            return
        for server in self._begin(self._nursery, forced=forced):
            if server.idle is not None and not server.is_silent:
                await server.idle.wait()

    async def ask(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Ask a name server something else. Raises: RocketError: there was no answer."""
        return await self._client.invoke(address, request, timeout_s)

    def register_again(self, address: str) -> bool:
        """Begin a registration with a name server that has lost it. Returns: False: one is under way or impossible."""
        server = self._servers.get(address)
        if self._nursery is None or self._has_left or server is None or server.is_busy:
            return False
        server.waiting = _Table(self._topics.topics, self._topics.data_version, self._settings.broker, is_wanted=True)
        server.idle = trio.Event()
        self._nursery.start_soon(self._serve, server)
        return True

    def _begin(self, nursery: trio.Nursery, *, forced: bool) -> list[_Server]:
        """Begin a registration with each server, after any registration that is under way."""
        if self._has_left:
            return []
        addresses = self.addresses
        self._servers = {address: self._servers.get(address) or _Server(address) for address in addresses}
        topics, version = self._topics.topics, self._topics.data_version
        table = _Table(topics, version, self._settings.broker, forced and len(topics) <= LARGE_TOPICS)
        for server in self._servers.values():
            if server.waiting is not None and server.waiting.is_wanted:
                table.is_wanted = len(topics) <= LARGE_TOPICS
            server.waiting = table
            if not server.is_busy:
                server.idle = trio.Event()
                nursery.start_soon(self._serve, server)
        return list(self._servers.values())

    async def _serve(self, server: _Server) -> None:
        """Register with one server until nothing waits."""
        assert server.idle is not None
        try:
            while server.waiting is not None:
                table, server.waiting = server.waiting, None
                is_news = self.member is not None and self.member() != server.registered_as
                if table.is_wanted or is_news or await self._is_different(server, table.version):
                    await self._register_with(server, await table.parts())
                if server.is_silent and server.waiting is not None:
                    server.idle.set()  # nobody waits for one that did not answer, and it goes on
                    server.idle = trio.Event()
        finally:
            server.idle.set()

    async def unregister(self) -> None:
        """Unregister from all name servers, so that clients use other brokers at once."""
        self._has_left = True  # a later change of a topic must not register the broker again
        async with trio.open_nursery() as nursery:
            for address in self.addresses:
                nursery.start_soon(self._leave, self._servers.get(address) or _Server(address))

    async def _leave(self, server: _Server) -> None:
        """Behind the registration that is under way: else it could be served later."""
        server.waiting = None
        with trio.move_on_after(UNREGISTER_TIMEOUT_S):
            if server.idle is not None:
                await server.idle.wait()
        request = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, self._identity())
        await self._call(server, request, UNREGISTER_TIMEOUT_S)

    @property
    def _broker_id(self) -> int:
        registered = self.member() if self.member is not None else None
        return self._settings.broker.broker_id if registered is None else registered.broker_id

    @property
    def addresses(self) -> list[str]:
        """The name servers."""
        text = self._settings.broker.namesrv_addr
        return list(dict.fromkeys(map(format_host, parse_addresses(text)))) if text else self._found

    @property
    def period_s(self) -> float:
        """The seconds between two registrations when nothing changes."""
        if self._settings.is_slave and not self._knows_master:
            return SEARCH_PERIOD_S
        return min(PERIOD_MAX_S, max(PERIOD_MIN_S, self._settings.broker.register_name_server_period / 1000))

    async def _register_with(self, server: _Server, parts: Sequence[RegistrationPart]) -> None:
        """Send all parts in order, and stop at the first failure: then the name server does not have the table's
        version, and the next round sends all parts again."""
        settings, topics = self._settings.value, sum(part.topics for part in parts)
        registered = RegisteredAs(settings.broker.broker_id)
        self._count(topics=topics, bytes=sum(len(part.body) for part in parts), parts=len(parts))
        for number, part in enumerate(parts):
            if self.member is not None:
                found = self.member()  # right before each part is sent: this process may have been stopped meanwhile
                if found is None or (number and found != registered):
                    return
                registered = found
            request = _registration(settings, registered, part.body)
            answer = await self._call(server, request, self._timeout_s)
            if answer is None:
                self._count(failures=self.statistics.failures + 1)
                if len(parts) > 1:
                    logger.warning(
                        "name server %s accepted %d of %d parts of the registration (%d topics); sending all again",
                        server.address,
                        number,
                        len(parts),
                        topics,
                    )
                return
        server.registered_as = registered
        self._count(last_success_ms=self._clock.now_ms())
        if answer is not None and settings.is_slave:
            self._take_master(answer)
        elif answer is not None and answer.body:
            await self._take_order_topics(server.address, answer.body)

    def _take_master(self, answer: RemotingCommand) -> None:
        """Tell who the master is, as this name server knows it. A slave has its ordered topics from its master."""
        found = RegisterBrokerResponseHeader.of(answer)
        self._knows_master |= bool(found.master_addr)
        self.on_master(found.master_addr, found.ha_server_addr)

    def _count(self, **changes: int) -> None:
        self.statistics = attrs.evolve(self.statistics, **changes)

    @property
    def _timeout_s(self) -> float:
        return self._settings.broker.register_broker_timeout_mills / 1000

    async def _is_different(self, server: _Server, version: DataVersion) -> bool:
        """Return True if the name server's version of our topics differs or is unknown."""
        request = RemotingCommand.request(RequestCode.QUERY_DATA_VERSION, self._identity(), version.encode())
        answer = await self._call(server, request, self._timeout_s)
        try:
            return answer is None or bool(QueryDataVersionResponseHeader.of(answer).changed)
        except RocketError:
            return True

    async def _take_order_topics(self, address: str, body: bytes) -> None:
        """Read the ordered topics of the cluster from the response; without a body there are none."""
        try:
            ordered = KVTable.decode(body).table
        except RocketError as exc:
            logger.warning("cannot read the table of ordered topics from name server %s: %s", address, exc)
            return
        if await self._topics.update_order_topics(ordered.keys()):
            self.topics_changed()

    async def _call(self, server: _Server, request: RemotingCommand, timeout_s: float) -> RemotingCommand | None:
        """Returns the successful response, or None. A failure is logged once, until a call succeeds again."""
        address = server.address
        try:
            answer = await self._client.invoke(address, request, timeout_s)
        except RocketError as exc:
            if not server.is_silent:
                server.is_silent = True
                logger.warning("cannot send %s to name server %s: %s; trying again", request.name, address, exc)
            return None
        if server.is_silent:
            server.is_silent = False
            logger.info("name server %s is reachable again", address)
        if answer.code != ResponseCode.SUCCESS:
            hint = _ACCOUNT_HINT if "AclException" in (answer.remark or "") else ""
            text = "name server %s refused %s: %s %s%s"
            logger.warning(text, address, request.name, answer.name, printable(answer.remark or ""), hint)
            return None
        return answer

    def _identity(self) -> BrokerRequestHeader:
        settings = self._settings.value
        return BrokerRequestHeader(
            broker_name=settings.broker.broker_name,
            broker_addr=settings.broker_addr,
            cluster_name=settings.broker.broker_cluster_name,
            broker_id=self._broker_id,
        )


def _registration(settings: BrokerSettings, registered: RegisteredAs, body: bytes) -> RemotingCommand:
    """Make the request that registers a part of the topics."""
    header = RegisterBrokerRequestHeader(
        broker_name=settings.broker.broker_name,
        broker_addr=settings.broker_addr,
        cluster_name=settings.broker.broker_cluster_name,
        ha_server_addr=settings.ha_server_addr,
        broker_id=registered.broker_id,
        master_epoch=registered.master_epoch,
        advertised_addrs=str(settings.advertised) or None,
        advertised_ha_addrs=str(settings.ha_advertised) or None,
        compressed=settings.broker.compressed_register,
        body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
    )
    return RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
