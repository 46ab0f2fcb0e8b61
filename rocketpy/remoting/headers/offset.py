"""Offsets of queues and consumers: 14, 15, 29, 30, 31, 32, 308, 314."""

from __future__ import annotations

from ..schema import Header, Int, header, wire


@header
class QueryConsumerOffsetRequestHeader(Header):
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: Int = wire("queueId")
    set_zero_if_not_found: bool | None = wire("setZeroIfNotFound", default=None)  # 5.x
    broker_name: str | None = wire("bname", default=None)


@header
class UpdateConsumerOffsetRequestHeader(Header):
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: Int = wire("queueId")
    commit_offset: int = wire("commitOffset")
    broker_name: str | None = wire("bname", default=None)


@header
class SearchOffsetRequestHeader(Header):
    topic: str = wire("topic")
    queue_id: Int = wire("queueId")
    timestamp_ms: int = wire("timestamp")
    boundary_type: str | None = wire("boundaryType", default=None)  # 5.x: LOWER or UPPER
    broker_name: str | None = wire("bname", default=None)


@header
class QueueRequestHeader(Header):
    """GET_MAX_OFFSET, GET_MIN_OFFSET and GET_EARLIEST_MSG_STORETIME: they name a queue and nothing else."""

    topic: str = wire("topic")
    queue_id: Int = wire("queueId")
    broker_name: str | None = wire("bname", default=None)


@header
class OffsetResponseHeader(Header):
    """The answer of 14, 29, 30 and 31."""

    offset: int = wire("offset")


@header
class GetEarliestMsgStoretimeResponseHeader(Header):
    timestamp_ms: int = wire("timestamp")  # -1: no message


@header
class QueryCorrectionOffsetHeader(Header):
    filter_groups: str | None = wire("filterGroups", default=None)  # comma list
    compare_group: str = wire("compareGroup", default="")
    topic: str = wire("topic")


@header
class CloneGroupOffsetRequestHeader(Header):
    src_group: str = wire("srcGroup")
    dest_group: str = wire("destGroup")
    topic: str | None = wire("topic", default=None)
    offline: bool = wire("offline", default=False)
