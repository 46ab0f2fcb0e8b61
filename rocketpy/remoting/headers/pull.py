"""Stored messages: PULL_MESSAGE (11) and its 5.x alias LITE_PULL_MESSAGE (361), QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID
(33), QUERY_CONSUME_QUEUE (321).
"""

from __future__ import annotations

from enum import IntFlag

from rocketpy.message.numbers import LONG_MAX

from ..schema import Header, Int, header, wire


class PullSysFlag(IntFlag):
    """The bits of a pull's `sysFlag`."""

    COMMIT_OFFSET = 0x1  # `commitOffset` counts
    SUSPEND = 0x2  # the broker may hold the pull
    SUBSCRIPTION = 0x4  # `subscription` counts
    CLASS_FILTER = 0x8
    LITE_PULL = 0x10
    BULK = 0x10000  # ours: the answer may be larger (bulkPullCount, bulkPullBytes); other brokers ignore it


@header
class PullMessageRequestHeader(Header):
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: Int = wire("queueId")
    queue_offset: int = wire("queueOffset")
    max_msg_nums: Int = wire("maxMsgNums")
    sys_flag: Int = wire("sysFlag", default=0)
    commit_offset: int = wire("commitOffset", default=0)
    suspend_timeout_ms: int = wire("suspendTimeoutMillis", default=0)
    subscription: str | None = wire("subscription", default=None)
    sub_version: int = wire("subVersion", default=0)  # milliseconds from Java, nanoseconds from Go, or 0
    expression_type: str | None = wire("expressionType", default=None)  # None is TAG
    broker_name: str | None = wire("bname", default=None)


@header
class PullMessageResponseHeader(Header):
    """The answer to a pull. Java requires all four fields with the codes 0, 19, 20 and 21."""

    suggest_which_broker_id: int = wire("suggestWhichBrokerId")
    next_begin_offset: int = wire("nextBeginOffset")
    min_offset: int = wire("minOffset")
    max_offset: int = wire("maxOffset")


UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""Ad-hoc field of QUERY_MESSAGE; here also a field of its header."""


@header
class QueryMessageRequestHeader(Header):
    topic: str = wire("topic")
    key: str = wire("key")
    max_num: Int = wire("maxNum", default=32)
    begin_timestamp_ms: int = wire("beginTimestamp", default=0)
    end_timestamp_ms: int = wire("endTimestamp", default=LONG_MAX)
    unique_key_query: bool | None = wire(UNIQUE_KEY_QUERY, default=None)


@header
class QueryMessageResponseHeader(Header):
    index_last_update_timestamp_ms: int = wire("indexLastUpdateTimestamp")
    index_last_update_phy_offset: int = wire("indexLastUpdatePhyoffset")


@header
class ViewMessageRequestHeader(Header):
    offset: int = wire("offset")  # in the CommitLog


@header
class QueryConsumeQueueRequestHeader(Header):
    topic: str | None = wire("topic", default=None)
    queue_id: Int = wire("queueId")
    index: int = wire("index")
    count: Int = wire("count")
    consumer_group: str | None = wire("consumerGroup", default=None)
