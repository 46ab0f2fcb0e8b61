"""The administration of a broker: topics (17, 202, 215, 300; 351 of 5.x), subscription groups (203, 204, 207, 208, 303;
343, 345, 352 of 5.x), configuration (26), statistics (315, 317), filters (30002).

Topics of the name server are in namesrv.py.
"""

from __future__ import annotations

from ..schema import Header, Int, header, wire


@header
class CreateTopicRequestHeader(Header):
    """UPDATE_AND_CREATE_TOPIC. `order` is not looked at by a broker: it comes from the name server's KV config."""

    topic: str = wire("topic")
    default_topic: str = wire("defaultTopic", default="")
    read_queue_nums: Int = wire("readQueueNums")
    write_queue_nums: Int = wire("writeQueueNums")
    perm: Int = wire("perm")
    topic_filter_type: str = wire("topicFilterType", default="SINGLE_TAG")
    topic_sys_flag: Int | None = wire("topicSysFlag", default=None)
    order: bool = wire("order", default=False)


@header
class TopicRequestHeader(Header):
    """DELETE_TOPIC_IN_BROKER, QUERY_TOPIC_CONSUME_BY_WHO, GET_TOPIC_CONFIG."""

    topic: str = wire("topic")


@header
class TopicStatsRequestHeader(Header):
    """GET_TOPIC_STATS_INFO."""

    topic: str = wire("topic")
    offsets_only: bool | None = wire("offsetsOnly", default=None)  # ours: brokers of rocketpy answer TopicOffsets


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


@header
class GetBrokerConfigResponseHeader(Header):
    version: str = wire("version")  # a DataVersion, as JSON text


@header
class ViewBrokerStatsDataRequestHeader(Header):
    stats_name: str = wire("statsName")
    stats_key: str = wire("statsKey", default="")


@header
class GetConsumeStatsInBrokerHeader(Header):
    is_order: bool = wire("isOrder", default=False)


@header
class GetAllConsumerFilterHeader(Header):
    """The header of both request and response."""

    version: str = wire("version", default="")  # of the table: what the slave has, what the master has
