"""Topics: DataVersion, TopicConfig and its table, TopicList, TopicStatsTable, TopicOffsets."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from rocketpy.message.message_queue import MessageQueue

from .schema import Body, Int, body, wire


class TopicFilterType(StrEnum):
    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


@body
class DataVersion(Body):
    """Version of a table; equal only if both fields are."""

    counter: int = wire("counter", default=0)
    timestamp_ms: int = wire("timestamp", default=0)

    def next(self, now_ms: int) -> Self:
        """The version after a change made now."""
        return type(self)(counter=self.counter + 1, timestamp_ms=now_ms)


@body
class TopicConfig(Body):
    order: bool = wire("order", default=False)
    perm: Int = wire("perm", default=6)
    read_queue_nums: Int = wire("readQueueNums", default=16)
    topic_filter_type: TopicFilterType = wire("topicFilterType", default=TopicFilterType.SINGLE_TAG)
    topic_name: str = wire("topicName", default="")
    topic_sys_flag: Int = wire("topicSysFlag", default=0)
    write_queue_nums: Int = wire("writeQueueNums", default=16)


@body
class TopicConfigSerializeWrapper(Body):
    """GET_ALL_TOPIC_CONFIG (21), and part of a registration."""

    data_version: DataVersion = wire("dataVersion", factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = wire("topicConfigTable", factory=dict)


DELETED_BELOW = "deletedBelow"
"""A field of the answer to 21, from brokers of rocketpy: JSON of the topics whose messages were deleted, with the log
offsets below which they were."""


@body
class TopicList(Body):
    """`broker_addr` only in GET_SYSTEM_TOPIC_LIST_FROM_NS (304)."""

    broker_addr: str | None = wire("brokerAddr", default=None)
    topic_list: list[str] = wire("topicList", factory=list)


@body
class TopicOffset(Body):
    last_update_timestamp_ms: int = wire("lastUpdateTimestamp", default=0)
    max_offset: int = wire("maxOffset", default=0)
    min_offset: int = wire("minOffset", default=0)


@body
class TopicStatsTable(Body):
    """GET_TOPIC_STATS_INFO (202): one entry per write queue."""

    offset_table: dict[MessageQueue, TopicOffset] = wire("offsetTable", factory=dict)


@body
class TopicOffsets(Body):
    """GET_TOPIC_STATS_INFO (202) with offsetsOnly, from brokers of rocketpy: an entry for each write queue, by number.
    It has no times, for which a broker reads a message of each queue."""

    max_offsets: list[int] = wire("maxOffsets", factory=list)
    min_offsets: list[int] = wire("minOffsets", factory=list)
