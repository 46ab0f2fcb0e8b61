"""Subscription groups: 203, 204, 207, 208, 303, and 343, 345, 352 of 5.x."""

from __future__ import annotations

from ..schema import Header, header, wire


@header
class GetConsumerConnectionListRequestHeader(Header):
    consumer_group: str = wire("consumerGroup")


@header
class GetProducerConnectionListRequestHeader(Header):
    producer_group: str = wire("producerGroup")


@header
class DeleteSubscriptionGroupRequestHeader(Header):
    group_name: str = wire("groupName")
    remove_offset: bool = wire("removeOffset", default=False, aliases=("cleanOffset",))  # the alias is 5.x


@header
class GetConsumeStatsRequestHeader(Header):
    consumer_group: str = wire("consumerGroup")
    topic: str | None = wire("topic", default=None)


@header
class QueryConsumeTimeSpanRequestHeader(Header):
    topic: str = wire("topic")
    group: str = wire("group")


@header
class GroupRequestHeader(Header):
    """QUERY_TOPICS_BY_CONSUMER, GET_SUBSCRIPTIONGROUP_CONFIG, QUERY_SUBSCRIPTION_BY_CONSUMER (with a topic)."""

    group: str = wire("group")
    topic: str | None = wire("topic", default=None)
