"""Consumer groups that are online: their members and subscriptions.

The last heartbeat wins: members with different settings overwrite each other's, as in the reference; it is reported
(subscription_views.py). Two differences are intended. A client has one entry per group, so a quick reconnect never
shows it twice (allocation counts entries). Members that fell silent raise the same events as members that left.

Source: RocketMQ 4.9 `ConsumerManager`, `ConsumerGroupInfo`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable

import attrs

from rocketpy.faults import do_each
from rocketpy.logs import LogLimit, and_more
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)

from ..clock import Clock, ProcessPauses
from .client_channel import CHANNEL_EXPIRED_MS, ClientChanges, ClientChannelInfo, LastHeartbeat
from .fast_path_tables import FastPathTables
from .subscription_views import SubscriptionViews

logger = logging.getLogger(__name__)

LOG_KINDS = 64  # groups whose lines are limited independently of one another
COMES_BACK_MS = 45_000  # a client sends a heartbeat every 30 s
GROUPS_PER_STEP = 500


def size_of(subscriptions: Iterable[SubscriptionData]) -> int:
    """Estimate the memory of subscriptions, in bytes. Subscriptions with many short tags take ten times as much."""
    return sum(
        100 + len(each.sub_string) + sum(map(len, each.tags_set)) + 8 * len(each.code_set) for each in subscriptions
    )


@attrs.define
class ConsumerGroupInfo:
    """One group as described by its members: how it consumes, its subscriptions, its online channels."""

    group: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    channels: dict[int, ClientChannelInfo] = attrs.field(init=False, factory=dict)
    subscriptions: dict[str, SubscriptionData] = attrs.field(init=False, factory=dict)
    views: SubscriptionViews = attrs.field(init=False, factory=SubscriptionViews)
    size: int = attrs.field(init=False, default=0)  # bytes of `subscriptions` (`size_of`)
    is_differing: bool = attrs.field(init=False, default=False)  # its members subscribe differently; reported
    revision: int = attrs.field(init=False, default=0)  # of `description`
    _connection_of: dict[str, int] = attrs.field(init=False, factory=dict)  # by client id: a group may have 50 000

    @property
    def client_ids(self) -> list[str]:
        return [info.client_id for info in self.channels.values()]

    def client_id_of(self, connection: int) -> str:
        return self.channels[connection].client_id

    @property
    def member_channels(self) -> list[Channel]:
        return [info.channel for info in self.channels.values()]

    def find_client(self, client_id: str) -> ClientChannelInfo | None:
        connection = self._connection_of.get(client_id)
        return None if connection is None else self.channels[connection]

    def put_channel(self, info: ClientChannelInfo) -> bool:
        """Returns True if the set of client ids changed."""
        former, replaced = self.find_client(info.client_id), self.channels.get(info.connection)
        if former is not None and former.connection != info.connection:
            self.remove_channel(former.connection)
        is_other = replaced is not None and replaced.client_id != info.client_id
        if is_other:
            self.remove_channel(info.connection)
        self.channels[info.connection] = info
        self._connection_of[info.client_id] = info.connection
        return former is None or is_other

    def remove_channel(self, connection: int) -> bool:
        """Returns False if it is not a connection of a member."""
        info = self.channels.pop(connection, None)
        if info is not None:
            del self._connection_of[info.client_id]
            self.views.left(connection)
        return info is not None

    @property
    def description(self) -> tuple[object, ...]:
        """The properties of the group as a whole, to detect changes."""
        return self.consume_type, self.message_model, self.consume_from_where, dict(self.subscriptions)

    def put_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Returns True if the set of topics changed. A newer version of a known subscription is stored, but is not a
        change."""
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        changed = wanted.keys() != self.subscriptions.keys()
        for topic in self.subscriptions.keys() - wanted.keys():
            del self.subscriptions[topic]
        for topic, subscription in wanted.items():
            known = self.subscriptions.get(topic)
            if known is None or subscription.sub_version > known.sub_version:
                self.subscriptions[topic] = subscription
        return changed


class ConsumerManager:
    """Owner of all online groups; reports changes to the fast path and to the members."""

    def __init__(
        self,
        clock: Clock,
        tables: FastPathTables,
        members_changed: Callable[[ConsumerGroupInfo], None],
        pauses: ProcessPauses | None = None,
    ) -> None:
        """`members_changed` is called with the group for every change that the members have to hear of."""
        self._clock = clock
        self._pauses = pauses or ProcessPauses(clock)
        self._tables = tables
        self._members_changed = members_changed
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._connections: dict[int, set[str]] = {}  # connection -> all groups that it was a member of
        self._differing: dict[str, ConsumerGroupInfo] = {}
        self._log = LogLimit(now_s=lambda: clock.monotonic_ms() / 1000)
        self.size = 0  # bytes of the subscriptions of all groups (`size_of`)
        self.changes = ClientChanges()
        self.on_group: Callable[[ConsumerGroupInfo], None] = lambda entry: None
        self.on_group_gone: Callable[[str], None] = lambda group: None

    def register(
        self,
        group: str,
        info: ClientChannelInfo,
        *,
        consume_type: ConsumeType,
        message_model: MessageModel,
        consume_from_where: ConsumeFromWhere,
        subscriptions: Collection[SubscriptionData],
        notify: bool,
    ) -> bool:
        """Process one group of a member's heartbeat. Returns True if members or topics changed. `changes.tell()`
        follows."""
        entry = self._groups.get(group)
        is_new = entry is None
        if entry is None:
            entry = self._groups[group] = ConsumerGroupInfo(group, consume_type, message_model, consume_from_where)
        known, before = entry.channels.get(info.connection), entry.description
        former = entry.find_client(info.client_id)  # may be on another connection
        entry.consume_type, entry.message_model = consume_type, message_model
        entry.consume_from_where = consume_from_where
        changed = entry.put_channel(info)
        self._connections.setdefault(info.connection, set()).add(group)
        changed = entry.put_subscriptions(subscriptions) or changed
        entry.views.heard(info.connection, consume_type, message_model, subscriptions)
        self._compare(entry)
        if is_new or entry.description != before:
            self._measure(entry)
            entry.revision += 1
            self.on_group(entry)
        if known is None or known.client_id != info.client_id:
            self.changes.add(info.connection)
        if former is not None and former.connection != info.connection:
            self.changes.add(former.connection)
        self._tables.group_online(
            group, is_broadcasting=message_model is MessageModel.BROADCASTING, subscriptions=entry.subscriptions
        )
        if changed and notify:
            self._members_changed(entry)
        return changed

    def growth_by(self, group: str, subscriptions: Iterable[SubscriptionData]) -> int:
        """Return the bytes by which `size` grows if a member of the group subscribes so; 0: it does not grow."""
        entry = self._groups.get(group)
        return max(0, size_of(subscriptions) - (0 if entry is None else entry.size))

    def _measure(self, entry: ConsumerGroupInfo) -> None:
        size = size_of(entry.subscriptions.values())
        self.size += size - entry.size
        entry.size = size

    @property
    def differing(self) -> list[ConsumerGroupInfo]:
        """The groups whose members subscribe differently."""
        return list(self._differing.values())

    def _compare(self, entry: ConsumerGroupInfo) -> None:
        """Report when the members of a group begin to subscribe differently, and when they agree again."""
        if entry.is_differing == (entry.views.count > 1):
            return
        entry.is_differing = not entry.is_differing
        kind = entry.is_differing, hash(entry.group) % LOG_KINDS
        if not entry.is_differing:
            self._differing.pop(entry.group, None)
            if entry.channels and (told := self._log.take(kind)):
                logger.info("group %s: all members subscribe alike again%s", entry.group, and_more(told))
            return
        self._differing[entry.group] = entry
        if told := self._log.take(kind):
            logger.warning(
                "group %s: its members subscribe differently and overwrite each other's subscriptions, so messages may "
                "be missed; give all of them the same subscriptions: %s%s",
                entry.group,
                entry.views.describe(entry.client_id_of),
                and_more(told),
            )

    def restore(self, group: ConsumerData, members: Iterable[ClientChannelInfo]) -> None:
        """Restore a group of the previous manager; only the fast path is told."""
        entry = ConsumerGroupInfo(group.group_name, group.consume_type, group.message_model, group.consume_from_where)
        entry.put_subscriptions(group.subscription_data_set)
        self._measure(entry)
        for info in members:
            entry.put_channel(info)
            self._connections.setdefault(info.connection, set()).add(group.group_name)
        self._groups[group.group_name] = entry
        self._tables.group_online(
            group.group_name,
            is_broadcasting=group.message_model is MessageModel.BROADCASTING,
            subscriptions=entry.subscriptions,
        )

    def unregister(self, group: str, connection: int, *, notify: bool = True) -> None:
        self._take_out(connection, [group], notify=notify)

    def connection_closed(self, connection: int) -> None:
        self._take_out(connection, self._connections.pop(connection, set()))

    def _take_out(self, connection: int, groups: Iterable[str], *, notify: bool = True) -> None:
        entries = [entry for group in groups if (entry := self._groups.get(group)) is not None]
        self._after_leaving([entry for entry in entries if entry.remove_channel(connection)], [connection], notify)

    def _after_leaving(self, entries: list[ConsumerGroupInfo], connections: Iterable[int], notify: bool = True) -> None:
        """Report groups that these connections have left. `on_group_gone` is called last, because records of clients
        may only name groups that have a record."""
        if entries:
            for connection in connections:
                self.changes.add(connection)
        self.changes.tell()
        do_each(lambda entry: self._has_lost_member(entry, notify), entries)

    def _has_lost_member(self, entry: ConsumerGroupInfo, notify: bool) -> None:
        self._compare(entry)
        if not entry.channels:
            del self._groups[entry.group]
            self.size -= entry.size
            self._tables.group_offline(entry.group)
            self.on_group_gone(entry.group)
        elif notify:
            self._members_changed(entry)

    def connection_lost(self, connection: int) -> None:
        """The connection was lost with its selector, not closed by the client: a member that does not reconnect in time
        is removed by `sweep`."""
        seen_ms = self._clock.monotonic_ms() - CHANNEL_EXPIRED_MS + COMES_BACK_MS
        for name in self._connections.get(connection, ()):
            entry = self._groups.get(name)
            if entry is not None and connection in entry.channels:
                info = entry.channels[connection]
                last = LastHeartbeat(min(seen_ms, info.last_heartbeat.seen_ms), info.last_heartbeat.timestamp_ms)
                entry.channels[connection] = attrs.evolve(info, last_heartbeat=last)

    def sweep(self) -> Generator[None, None, list[Channel]]:
        """Remove clients that have been silent for 120 s; returns their channels, which the caller closes. Work in
        steps."""
        now_ms = self._clock.monotonic_ms()
        gone: dict[int, Channel] = {}
        names = list(self._groups)
        for start in range(0, len(names), GROUPS_PER_STEP):
            gone.update(self._drop_silent(names[start : start + GROUPS_PER_STEP], now_ms))
            yield
        return list(gone.values())

    def _drop_silent(self, groups: list[str], now_ms: int) -> dict[int, Channel]:
        silence_ms = self._pauses.silence_ms
        gone, left = {}, []
        for entry in filter(None, map(self._groups.get, groups)):
            silent = {
                info.connection: info.channel
                for info in entry.channels.values()
                if silence_ms(info.last_heartbeat.seen_ms, now_ms) > CHANNEL_EXPIRED_MS
            }
            for connection in silent:
                entry.remove_channel(connection)
            if silent:
                left.append(entry)
            gone.update(silent)
        self._after_leaving(left, gone)
        return gone

    def group_names_of(self, connection: int) -> frozenset[str]:
        """All groups that the connection was a member of."""
        return frozenset(self._connections.get(connection, ()))

    def group(self, group: str) -> ConsumerGroupInfo | None:
        return self._groups.get(group)

    @property
    def group_names(self) -> list[str]:
        """The names of the online groups."""
        return list(self._groups)

    @property
    def connections(self) -> list[int]:
        """Connections that are or were members of a group."""
        return list(self._connections)

    def groups_of(self, connection: int) -> tuple[list[str], ClientChannelInfo | None]:
        """The current groups of the connection, sorted, and its client."""
        infos = {
            name: entry.channels[connection]
            for name in sorted(self._connections.get(connection, ()))
            if (entry := self._groups.get(name)) is not None and connection in entry.channels
        }
        return list(infos), next(iter(infos.values()), None)

    def client_on(self, connection: int) -> ClientChannelInfo | None:
        """The client of the connection, as one of its groups has it."""
        for name in self._connections.get(connection, ()):
            entry = self._groups.get(name)
            if entry is not None and connection in entry.channels:
                return entry.channels[connection]
        return None

    def is_member(self, group: str, connection: int) -> bool:
        entry = self._groups.get(group)
        return entry is not None and connection in entry.channels

    def find_client(self, group: str, client_id: str) -> ClientChannelInfo | None:
        entry = self._groups.get(group)
        return entry.find_client(client_id) if entry else None

    def groups_subscribing(self, topic: str) -> Generator[None, None, set[str]]:
        """The online groups that subscribe to the topic. Work in steps."""
        found = set()
        for number, name in enumerate(list(self._groups), 1):
            entry = self._groups.get(name)
            if entry is not None and topic in entry.subscriptions:
                found.add(name)
            if number % GROUPS_PER_STEP == 0:
                yield
        return found
