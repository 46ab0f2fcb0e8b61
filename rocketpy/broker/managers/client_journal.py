"""Keeps the online clients for a restarted manager.

Their connections survive the death of the manager, but their heartbeats come every 30 s only.

    client  "c" connection  -> [client id, language, version, host, port, is VIP, consumer groups,
                               producer groups, access key]
    group   "g" name        -> the group as its heartbeat describes it, without default values
    closed  "x" connection  -> nothing: it was closed while a request of it was being served

Records are written when something changes; a heartbeat without changes writes nothing. A restarted manager treats every
client as seen at its start, so that no client expires because of the restart. One connection has one client: of several
client ids on one connection, which no known client uses, only one is restored.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

from rocketpy.errors import RocketError
from rocketpy.faults import do_each
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel, ConnectionListener, Peer
from rocketpy.remoting.bodies.client import ConsumerData, SubscriptionData
from rocketpy.remoting.bodies.schema import Body
from rocketpy.remoting.limits import TableSize

from ..clock import Clock
from ..memory.journal import Journal
from .client_channel import ClientChannelInfo, LastHeartbeat
from .consumer import ConsumerGroupInfo, ConsumerManager
from .producer import ProducerManager

logger = logging.getLogger(__name__)

OpenChannel = Callable[[int, Peer, bool], Channel]
SMALL_BYTES = 1024  # a usual client or group takes about 160, with long names and several groups about 500
REMEDY = "let groups subscribe to less, or raise connectionsMax or sharedMemoryMax"
CLIENT, GROUP, CLOSED = b"c", b"g", b"x"


class ClientJournal:
    """Records the changes of the consumer and producer managers, and restores both after a restart."""

    def __init__(self, journal: Journal, consumers: ConsumerManager, producers: ProducerManager, clock: Clock) -> None:
        self._journal = journal
        self._consumers = consumers
        self._producers = producers
        self._clock = clock
        self._is_gone: Callable[[int], bool] = lambda connection: False
        self._large: dict[bytes, int] = {}  # key -> bytes, of the records above SMALL_BYTES
        self._large_bytes = 0
        self._left_out = 0

    @property
    def size(self) -> TableSize:
        """The bytes, and the number of records that did not fit, for metrics. A lost journal shows more than its
        maximum."""
        journal = self._journal
        return TableSize("bytes of online clients", journal.live_bytes, journal.live_max, self._left_out)

    def _put(self, key: bytes, value: bytes) -> None:
        """Large records may use half of the memory, so that a few clients cannot keep all others from being
        restored."""
        self._large_bytes -= self._large.pop(key, 0)
        size = len(key) + len(value)
        if size > SMALL_BYTES:
            if self._large_bytes + size > self._journal.live_max // 2:
                if not self._left_out:
                    logger.error(
                        "a client or group of %d bytes does not fit into the shared memory of clients: a restarted "
                        "manager learns of it with its next heartbeat; %s",
                        size,
                        REMEDY,
                    )
                self._left_out += 1
                self._journal.remove(key)
                return
            self._large[key] = size
            self._large_bytes += size
        self._journal.put(key, value)

    def _remove(self, key: bytes) -> None:
        self._large_bytes -= self._large.pop(key, 0)
        self._journal.remove(key)

    def restore(self, open_channel: OpenChannel, is_gone: Callable[[int], bool]) -> None:
        """Restore the clients of the previous manager, then record every change.

        Args:
            open_channel: (connection, peer, is VIP) -> its channel. is_gone: whether a connection ended with its
            selector process, without a CLOSED message.
        """
        self._is_gone = is_gone
        records = dict(self._journal.entries)
        self._large = {key: size for key in records if (size := len(key) + len(records[key])) > SMALL_BYTES}
        self._large_bytes = sum(self._large.values())
        members: dict[str, list[ClientChannelInfo]] = {}
        connections = [int(key[1:]) for key in records if key[:1] == CLIENT]
        for connection in connections:
            try:
                self._restore_client(connection, records[CLIENT + b"%d" % connection], members, open_channel)
            except (ValueError, KeyError, TypeError) as exc:
                logger.error("cannot restore the client of connection %x: %r; its next heartbeat does", connection, exc)
        self._consumers.changes.on_client = self._producers.changes.on_client = self._client
        self._consumers.on_group, self._consumers.on_group_gone = self._group, self._group_gone
        for name, infos in members.items():
            self._restore_group(name, infos, records)
        for key in records:
            if key[:1] == GROUP and key[1:].decode("utf-8", "surrogatepass") not in members:
                self._remove(key)  # the manager died between the record of a group and that of its first member
        for connection in [int(key[1:]) for key in records if key[:1] == CLOSED]:
            self.closed(connection)
        for _ in self.lose(is_gone):
            pass
        if connections:
            logger.info(
                "restored %d clients and %d consumer groups of the previous manager", len(connections), len(members)
            )

    def _restore_client(
        self, connection: int, value: bytes, members: dict[str, list[ClientChannelInfo]], open_channel: OpenChannel
    ) -> None:
        """Add the client as a producer, and add it to the groups in `members`."""
        client_id, language, version, host, port, is_vip, consumes, produces, access_key = json.loads(value)
        info = ClientChannelInfo(
            channel=open_channel(connection, Peer(host, port), is_vip),
            client_id=client_id,
            language=language,
            version=version,
            last_heartbeat=LastHeartbeat(self._clock.monotonic_ms(), self._clock.now_ms()),
            access_key=access_key,
        )
        for name in consumes:
            members.setdefault(name, []).append(info)
        for name in produces:
            self._producers.enter(name, info)

    def _restore_group(self, name: str, infos: list[ClientChannelInfo], records: dict[bytes, bytes]) -> None:
        try:
            self._consumers.restore(_group(records[_group_key(name)]), infos)
        except (RocketError, KeyError) as exc:
            logger.error("cannot restore consumer group %r: %r; the next heartbeats of its members do", name, exc)
            return
        for info in infos:  # a later connection replaced this one; the manager died between the two records
            if not self._consumers.is_member(name, info.connection):
                self._client(info.connection)

    def closing(self, connection: int) -> None:
        """The connection was closed, but a request of it is still being served; `closed` follows."""
        self._journal.put(CLOSED + b"%d" % connection, b"")

    def closed(self, connection: int) -> None:
        """Remove the connection's clients from all tables, unless its selector has died: those clients may
        reconnect."""
        if self._is_gone(connection):
            self._lose(connection)
        else:
            tables: tuple[ConnectionListener, ...] = (self._consumers, self._producers)
            do_each(lambda table: table.connection_closed(connection), tables)
        self._journal.remove(CLOSED + b"%d" % connection)

    def lose(self, is_gone: Callable[[int], bool]) -> Iterator[None]:
        """A selector has died. Its clients connect again at once and send their next heartbeat within 30 s. Until then
        they stay members of their groups; otherwise the first to reconnect would be assigned all queues. One connection
        per step."""
        for connection in filter(is_gone, {*self._consumers.connections, *self._producers.connections}):
            self._lose(connection)
            yield

    def _lose(self, connection: int) -> None:
        self._consumers.connection_lost(connection)
        self._producers.connection_closed(connection)

    # -- what the managers tell

    def _client(self, connection: int) -> None:
        consumes, consumer = self._consumers.groups_of(connection)
        produces, producer = self._producers.groups_of(connection)
        info, key = consumer or producer, CLIENT + b"%d" % connection
        if info is None:
            self._remove(key)
            return
        peer, channel = info.channel.peer, info.channel
        value = [info.client_id, info.language, info.version, peer.host, peer.port, channel.is_vip, consumes, produces]
        self._put(key, json.dumps([*value, info.access_key], separators=(",", ":")).encode())

    def _group(self, entry: ConsumerGroupInfo) -> None:
        group = ConsumerData(
            consume_from_where=entry.consume_from_where,
            consume_type=entry.consume_type,
            message_model=entry.message_model,
            group_name=entry.group,
            subscription_data_set=list(entry.subscriptions.values()),
        )
        self._put(_group_key(entry.group), fastjson.dumps(_described(group)))

    def _group_gone(self, group: str) -> None:
        self._remove(_group_key(group))


def _group_key(group: str) -> bytes:
    return GROUP + group.encode("utf-8", "surrogatepass")


def _described(group: ConsumerData) -> dict[str, object]:
    """Encode a group without default values, which most groups have; `_group` adds them again."""
    subscriptions = [_unusual(subscription, SubscriptionData()) for subscription in group.subscription_data_set]
    return _unusual(group, ConsumerData()) | {"subscriptionDataSet": subscriptions}


def _unusual(body: Body, usual: Body) -> dict[str, object]:
    default = dict(usual.wire_members())
    return {name: value for name, value in body.wire_members() if value != default[name]}


def _group(value: bytes) -> ConsumerData:
    return ConsumerData.decode(value)
