"""Heartbeats that say what the last one of their connection said, as most do: only the times of the client change."""

from __future__ import annotations

import attrs

from rocketpy.message import names
from rocketpy.remoting.bodies.client import EXPRESSION_TYPE_SQL92, HeartbeatData
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.command import RemotingCommand

from ..clock import Clock
from .client_channel import ClientChannelInfo
from .consumer import ConsumerGroupInfo, ConsumerManager
from .producer import ProducerManager
from .subscription_group import SubscriptionGroupManager
from .topic_config import TopicConfigManager

REMEMBERED_GROUPS_MAX = 64  # a heartbeat with more is served by a task; names that are repeated count


@attrs.frozen(eq=False)
class _Membership:
    """A consumer group as it was after the heartbeat."""

    entry: ConsumerGroupInfo
    revision: int
    config: SubscriptionGroupConfig


@attrs.frozen(eq=False)
class _Registered:
    """Groups that a heartbeat has registered, and a digest of the heartbeat.

    Attributes:
        digest: hash of what it said; Python's has a secret of this process, so that no client makes two with the same.
    """

    digest: int
    producer_groups: tuple[str, ...]
    memberships: tuple[_Membership, ...]


@attrs.frozen(eq=False)
class RepeatedHeartbeats:
    """Recognises a heartbeat that would register what is registered already.

    Whatever a heartbeat makes may have been taken away since: a group or a retry topic was deleted, another member has
    overwritten the subscriptions of the group, the client has left. Such a heartbeat is not a repeated one.
    """

    consumers: ConsumerManager
    producers: ProducerManager
    groups: SubscriptionGroupManager
    topics: TopicConfigManager
    clock: Clock

    def remember(self, request: RemotingCommand, heartbeat: HeartbeatData, info: ClientChannelInfo) -> None:
        """`heartbeat` was registered, with `info` for each of its groups. One with SQL92 is not remembered, because its
        programs may be forgotten, nor one with many groups, because a repeated one is served in a single step."""
        memberships = []
        if len(heartbeat.consumer_data_set) + len(heartbeat.producer_data_set) > REMEMBERED_GROUPS_MAX:
            return
        for consumer in heartbeat.consumer_data_set:
            entry, config = self.consumers.group(consumer.group_name), self.groups.select(consumer.group_name)
            if entry is None or config is None:
                return
            if any(each.expression_type == EXPRESSION_TYPE_SQL92 for each in consumer.subscription_data_set):
                return
            memberships.append(_Membership(entry, entry.revision, config))
        producer_groups = tuple(producer.group_name for producer in heartbeat.producer_data_set)
        digest = _digest(request, info.access_key)
        info.last_heartbeat.registered = _Registered(digest, producer_groups, tuple(memberships))

    def renew(self, request: RemotingCommand, connection: int, access_key: str) -> bool:
        """Set the times of the client if this is a repeated heartbeat of the connection. Returns False if it is not."""
        info = self.producers.client_on(connection) or self.consumers.client_on(connection)
        registered = None if info is None else info.last_heartbeat.registered
        if info is None or not isinstance(registered, _Registered):
            return False
        if registered.digest != _digest(request, access_key) or not self._is_unchanged(registered, info):
            return False
        info.last_heartbeat.seen_ms, info.last_heartbeat.timestamp_ms = self.clock.monotonic_ms(), self.clock.now_ms()
        self.producers.move_to_newest(info)
        return True

    def _is_unchanged(self, registered: _Registered, info: ClientChannelInfo) -> bool:
        producers = self.producers
        return all(producers.holds(group, info) for group in registered.producer_groups) and all(
            self._is_as_registered(membership, info) for membership in registered.memberships
        )

    def _is_as_registered(self, membership: _Membership, info: ClientChannelInfo) -> bool:
        entry, topic = membership.entry, names.retry_topic(membership.entry.group)
        return (
            entry.revision == membership.revision
            and entry.channels.get(info.connection) is info
            and self.consumers.group(entry.group) is entry
            and self.groups.select(entry.group) is membership.config
            # no retry topic is made of a name that is too long
            and (self.topics.select(topic) is not None or len(topic) > names.TOPIC_LENGTH_MAX)
        )


def _digest(request: RemotingCommand, access_key: str) -> int:
    return hash((request.body, request.language, request.version, access_key))
