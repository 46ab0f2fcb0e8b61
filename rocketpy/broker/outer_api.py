"""Registration with the name servers: at start, every 30 s, and whenever a topic changes.

One connection per name server is kept open: a name server drops a broker the instant the connection that registered it
closes. The whole topic table is always sent; a single topic under the table's version would make name servers skip the
rest of a change.

Source: RocketMQ 4.9 `BrokerOuterAPI`, `BrokerController#registerBrokerAll`.
"""

from __future__ import annotations

import logging
import zlib
from typing import Protocol

import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import parse_addresses
from rocketpy.errors import RocketError
from rocketpy.message.host import format_host
from rocketpy.message.sys_flag import PermName
from rocketpy.remoting.bodies.kv import KVTable
from rocketpy.remoting.bodies.register import RegisterBrokerBody
from rocketpy.remoting.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.namesrv import (
    BrokerRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
)

from .live import LiveSettings
from .managers.topic_config import TopicConfigManager

log = logging.getLogger(__name__)

PERIOD_MIN_S, PERIOD_MAX_S = 10.0, 60.0
UNREGISTER_TIMEOUT_S = 3.0
READ_WRITE = PermName.READ | PermName.WRITE


class NameServerClient(Protocol):
    """What is needed of transport's RemotingClient."""

    async def invoke(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand: ...


class BrokerOuterApi:
    """Registers this broker, and its topics, with every name server."""

    def __init__(self, live: LiveSettings, topics: TopicConfigManager, client: NameServerClient) -> None:
        self._live = live
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
            forced = self._changed.is_set() or self._live.broker.force_register

    async def register(self, *, forced: bool = True) -> None:
        """Register with all name servers in parallel; one that does not answer is left to the next round.

        Not forced: only with those that say their data differs, or cannot say.
        """
        timeout_s = self._live.broker.register_broker_timeout_mills / 1000
        async with self._lock, trio.open_nursery() as nursery:
            if self._has_left:
                return
            request_body = self._body()
            for address in self._addresses:
                nursery.start_soon(self._register_with, address, request_body, timeout_s, forced)

    async def unregister(self) -> None:
        """Leave all name servers for good, so that clients turn elsewhere at once."""
        async with self._lock, trio.open_nursery() as nursery:
            self._has_left = True  # a topic that changes from now on must not bring the broker back
            for address in self._addresses:
                request = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, self._identity())
                nursery.start_soon(self._call, address, request, UNREGISTER_TIMEOUT_S)

    @property
    def _addresses(self) -> list[str]:
        text = self._live.broker.namesrv_addr
        return [format_host(address) for address in parse_addresses(text)] if text else []

    @property
    def _period_s(self) -> float:
        return min(PERIOD_MAX_S, max(PERIOD_MIN_S, self._live.broker.register_name_server_period / 1000))

    async def _register_with(self, address: str, body: bytes, timeout_s: float, forced: bool) -> None:
        if not forced and not await self._differs(address, timeout_s):
            return
        settings = self._live.settings
        header = RegisterBrokerRequestHeader(
            broker_name=settings.broker.broker_name,
            broker_addr=settings.broker_addr,
            cluster_name=settings.broker.broker_cluster_name,
            ha_server_addr=settings.ha_server_addr,
            broker_id=settings.broker.broker_id,
            compressed=settings.broker.compressed_register,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
        answer = await self._call(address, request, timeout_s)
        if answer is not None and answer.body:
            self._take_order_topics(address, answer.body)

    async def _differs(self, address: str, timeout_s: float) -> bool:
        """Whether the name server has other topics of us; True when it cannot say."""
        request = RemotingCommand.request(
            RequestCode.QUERY_DATA_VERSION, self._identity(), self._topics.data_version.encode()
        )
        answer = await self._call(address, request, timeout_s)
        try:
            return answer is None or QueryDataVersionResponseHeader.of(answer).changed
        except RocketError:
            return True

    def _take_order_topics(self, address: str, body: bytes) -> None:
        """The answer lists the ordered topics of the cluster; it has no body when there never were any."""
        try:
            ordered = KVTable.decode(body).table
        except RocketError as exc:
            log.warning("name server %s answered a registration with an unreadable table: %s", address, exc)
            return
        if self._topics.update_order_topics(ordered.keys()):
            self.topics_changed()

    async def _call(self, address: str, request: RemotingCommand, timeout_s: float) -> RemotingCommand | None:
        """The successful answer, or None; what fails is said once, until it works again."""
        try:
            answer = await self._client.invoke(address, request, timeout_s)
        except RocketError as exc:
            if address not in self._unreachable:
                self._unreachable.add(address)
                log.warning("name server %s: %s failed: %s", address, request.name, exc)
            return None
        if address in self._unreachable:
            self._unreachable.discard(address)
            log.info("name server %s answers again", address)
        if answer.code != ResponseCode.SUCCESS:
            log.warning("name server %s refused %s: %s %s", address, request.name, answer.name, answer.remark)
            return None
        return answer

    def _identity(self) -> BrokerRequestHeader:
        settings = self._live.settings
        return BrokerRequestHeader(
            broker_name=settings.broker.broker_name,
            broker_addr=settings.broker_addr,
            cluster_name=settings.broker.broker_cluster_name,
            broker_id=settings.broker.broker_id,
        )

    def _body(self) -> bytes:
        wrapper = TopicConfigSerializeWrapper(
            data_version=self._topics.data_version, topic_config_table=self._published_topics()
        )
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        return body.encode_compressed() if self._live.broker.compressed_register else body.encode()

    def _published_topics(self) -> dict[str, TopicConfig]:
        """The topics as routes are to show them: a broker that is not read-write publishes its own permission."""
        permission = self._live.broker.broker_permission
        topics = self._topics.topics
        if permission & READ_WRITE == READ_WRITE:
            return topics
        return {
            name: TopicConfig(
                topic_name=name,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                perm=permission,
            )
            for name, topic in topics.items()
        }
