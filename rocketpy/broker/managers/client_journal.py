"""Who is online, kept for the manager's successor: connections outlive it, and the next heartbeats take 30 s.

    client  "c" connection  -> [client id, language, version, host, port, is VIP, consumer groups, producer groups]
    group   "g" name        -> [consume type, message model, consume from where, subscriptions]
    closed  "x" connection  -> nothing: it has gone while a request of it was being served

Written when something changes; a heartbeat that says nothing new writes nothing. A successor counts every client as
heard of at its start, so that nobody is swept because of the death. A connection is one client: of several ids on one
connection, which no client sends, one comes back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

from rocketpy.faults import do_each
from rocketpy.remoting.abc import Channel, ConnectionListener, Peer
from rocketpy.remoting.bodies.heartbeat import ConsumerData

from ..clock import Clock
from ..journal import Journal
from .client_channel import ClientChannelInfo
from .consumer import ConsumerGroupInfo, ConsumerManager
from .producer import ProducerManager

log = logging.getLogger(__name__)

OpenChannel = Callable[[int, Peer, bool], Channel]
CLIENT, GROUP, CLOSED = b"c", b"g", b"x"


class ClientJournal:
    """Writes down what the two managers tell, and brings them back to where a predecessor was."""

    def __init__(
        self, journal: Journal, consumers: ConsumerManager, producers: ProducerManager, clock: Clock
    ) -> None:
        self._journal = journal
        self._consumers = consumers
        self._producers = producers
        self._clock = clock
        self._is_gone: Callable[[int], bool] = lambda connection: False

    def restore(self, open_channel: OpenChannel, is_gone: Callable[[int], bool]) -> None:
        """Enter everything that a predecessor has left, then write down every change.

        Args:
            open_channel: (connection, peer, is VIP) -> the way to it.
            is_gone: whether a connection has ended without a word, with the process that owned it.
        """
        self._is_gone = is_gone
        records = dict(self._journal.entries)
        described = [_group(value) for key, value in records.items() if key[:1] == GROUP]
        groups = {group.group_name: group for group in described}
        connections = [int(key[1:]) for key in records if key[:1] == CLIENT]
        for connection in connections:
            try:
                self._restore_client(connection, records[CLIENT + b"%d" % connection], groups, open_channel)
            except (ValueError, KeyError, TypeError) as exc:
                log.error("connection %d cannot be restored and waits for its heartbeat: %r", connection, exc)
        self._consumers.on_client, self._producers.on_client = self._client, self._client
        self._consumers.on_group, self._consumers.on_group_gone = self._group, self._group_gone
        for connection in connections:
            self._client(connection)  # a death between two records of one change
        for name in groups:
            if self._consumers.group(name) is None:
                self._group_gone(name)
        for connection in [int(key[1:]) for key in records if key[:1] == CLOSED]:
            self.closed(connection)
        for _ in self.lose(is_gone):
            pass
        if connections:
            log.info("%d clients of %d consumer groups are still online", len(connections), len(groups))

    def _restore_client(
        self, connection: int, value: bytes, groups: dict[str, ConsumerData], open_channel: OpenChannel
    ) -> None:
        client_id, language, version, host, port, is_vip, consumes, produces = json.loads(value)
        info = ClientChannelInfo(
            channel=open_channel(connection, Peer(host, port), is_vip),
            client_id=client_id,
            language=language,
            version=version,
            seen_ms=self._clock.monotonic_ms(),
            last_update_timestamp_ms=self._clock.now_ms(),
        )
        for name in consumes:
            group = groups[name]
            self._consumers.register(
                name,
                info,
                consume_type=group.consume_type,
                message_model=group.message_model,
                consume_from_where=group.consume_from_where,
                subscriptions=group.subscription_data_set,
                notify=False,
            )
        for name in produces:
            self._producers.register(name, info)

    def closing(self, connection: int) -> None:
        """The connection has gone, but a request of it is still being served; `closed` follows, if we live."""
        self._journal.put(CLOSED + b"%d" % connection, b"")

    def closed(self, connection: int) -> None:
        """Take the connection's clients out of all tables; those of a dead selector may still come back."""
        if self._is_gone(connection):
            self._lose(connection)
        else:
            tables: tuple[ConnectionListener, ...] = (self._consumers, self._producers)
            do_each(lambda table: table.connection_closed(connection), tables)
        self._journal.remove(CLOSED + b"%d" % connection)

    def lose(self, is_gone: Callable[[int], bool]) -> Iterator[None]:
        """A selector has died, its clients have not: they connect again at once, and send their next heartbeat within
        30 s. Until then they stay members of their groups, or those that come first would take the queues of all.
        One connection for each step."""
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
            self._journal.remove(key)
            return
        peer, channel = info.channel.peer, info.channel
        value = [info.client_id, info.language, info.version, peer.host, peer.port, channel.is_vip, consumes, produces]
        self._journal.put(key, json.dumps(value, separators=(",", ":")).encode())

    def _group(self, entry: ConsumerGroupInfo) -> None:
        group = ConsumerData(
            consume_from_where=entry.consume_from_where,
            consume_type=entry.consume_type,
            message_model=entry.message_model,
            group_name=entry.group,
            subscription_data_set=list(entry.subscriptions.values()),
        )
        self._journal.put(_group_key(entry.group), group.encode())

    def _group_gone(self, group: str) -> None:
        self._journal.remove(_group_key(group))


def _group_key(group: str) -> bytes:
    return GROUP + group.encode("utf-8", "surrogatepass")


def _group(value: bytes) -> ConsumerData:
    return ConsumerData.decode(value)
