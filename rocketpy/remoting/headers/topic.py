"""Topics on brokers: 17, 202, 215, 300, and 351 of 5.x; the name server's part is in namesrv.py."""

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
