"""Looking at stored messages: QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33), QUERY_CONSUME_QUEUE (321)."""

from __future__ import annotations

from rocketpy.message.numbers import LONG_MAX

from ..schema import Header, Int, header, wire

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
