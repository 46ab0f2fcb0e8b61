"""Keeps track of the table entries that the send and pull workers have, so that each change is sent once.

Heartbeats repeat a group's subscriptions every 30 s; only differences cross the ring. Changes are written before the
response to the request that caused them, and rings keep their order. So when a client receives the response, the send
and pull workers know the change.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketpy.message import names
from rocketpy.remoting.bodies.client import SubscriptionData
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.bodies.topic import TopicConfig, TopicFilterType
from rocketpy.remoting.fast_path import FastPath

from .consumer_filter import ConsumerFilterManager


@attrs.frozen
class _GroupState:
    config: SubscriptionGroupConfig
    is_online: bool
    is_broadcasting: bool


class FastPathTables:
    """Sends each change of a table to the send and pull workers before the reply that acknowledges it."""

    def __init__(self, fast_path: FastPath, filters: ConsumerFilterManager) -> None:
        self._fast_path = fast_path
        self._filters = filters
        self._topics: dict[str, TopicConfig] = {}
        self._configs: dict[str, SubscriptionGroupConfig] = {}
        self._online: dict[str, bool] = {}  # group -> is broadcasting
        self._groups: dict[str, _GroupState] = {}
        self._subscriptions: dict[str, dict[str, SubscriptionData]] = {}

    def topic(self, config: TopicConfig) -> None:
        """Tell workers a changed topic. Raises: StoreError (no room for its queues); nothing was sent then."""
        if self._topics.get(config.topic_name) == config:
            return
        self._fast_path.topic_changed(
            config.topic_name,
            perm=config.perm,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            multi_tag=config.topic_filter_type is TopicFilterType.MULTI_TAG,
            no_send=config.topic_name in names.NOT_ALLOWED_SEND_TOPICS,
            slow=config.topic_name.startswith(names.RETRY_PREFIX),
        )
        self._topics[config.topic_name] = config

    def topic_removed(self, topic: str) -> None:
        if self._topics.pop(topic, None) is not None:
            self._fast_path.topic_removed(topic)

    def group(self, config: SubscriptionGroupConfig) -> None:
        self._configs[config.group_name] = config
        self._tell_group(config.group_name)

    def group_removed(self, group: str) -> None:
        if self._configs.pop(group, None) is not None:
            self._groups.pop(group, None)
            self._fast_path.group_removed(group)

    def group_online(self, group: str, *, is_broadcasting: bool, subscriptions: Mapping[str, SubscriptionData]) -> None:
        """The group has members, with these subscriptions."""
        self._online[group] = is_broadcasting
        self._tell_group(group)
        self._filters.register(group, subscriptions)
        told = self._subscriptions.setdefault(group, {})
        for topic in told.keys() - subscriptions.keys():
            del told[topic]
            self._fast_path.subscription_removed(group, topic)
        for topic, subscription in subscriptions.items():
            if told.get(topic) != subscription:
                told[topic] = subscription
                self._fast_path.subscription_changed(
                    group,
                    topic,
                    expression_type=subscription.expression_type or "TAG",
                    sub_string=subscription.sub_string,
                    sub_version=subscription.sub_version,
                    program=self._filters.program(subscription),
                    place=self._filters.place(group, subscription),
                )

    def group_offline(self, group: str) -> None:
        """The last member has left."""
        self._filters.unregister(group)
        for topic in self._subscriptions.pop(group, {}):
            self._fast_path.subscription_removed(group, topic)
        if self._online.pop(group, None) is not None:
            self._tell_group(group)

    def _tell_group(self, group: str) -> None:
        config = self._configs.get(group)
        if config is None:
            return
        state = _GroupState(config, group in self._online, self._online.get(group, False))
        if self._groups.get(group) == state:
            return
        self._groups[group] = state
        self._fast_path.group_changed(
            group,
            consume_enable=config.consume_enable,
            consume_broadcast_enable=config.consume_broadcast_enable,
            broker_id=config.broker_id,
            which_broker_when_consume_slowly=config.which_broker_when_consume_slowly,
            is_online=state.is_online,
            is_broadcasting=state.is_broadcasting,
        )
