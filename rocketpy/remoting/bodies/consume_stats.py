"""How far consumers are: ConsumeStats (208), ConsumeStatsList (317), QueryConsumeTimeSpanBody (303)."""

from __future__ import annotations

from rocketpy.message.message_queue import MessageQueue

from .schema import Body, body, wire


@body
class OffsetWrapper(Body):
    """`last_timestamp_ms` is the store time of the last consumed message, 0 if there is none."""

    broker_offset: int = wire("brokerOffset", default=0)
    consumer_offset: int = wire("consumerOffset", default=0)
    last_timestamp_ms: int = wire("lastTimestamp", default=0)


@body
class ConsumeStats(Body):
    consume_tps: float = wire("consumeTps", default=0.0)
    offset_table: dict[MessageQueue, OffsetWrapper] = wire("offsetTable", factory=dict)

    @property
    def total_diff(self) -> int:
        """Messages not consumed yet."""
        return sum(offsets.broker_offset - offsets.consumer_offset for offsets in self.offset_table.values())


@body
class ConsumeStatsList(Body):
    """Each element maps a group to its ConsumeStats per topic."""

    broker_addr: str = wire("brokerAddr", default="")
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = wire("consumeStatsList", factory=list)
    total_diff: int = wire("totalDiff", default=0)


@body
class QueueTimeSpan(Body):
    """The texts are `yyyy-MM-dd#HH:mm:ss:SSS` in local time and are not read by anybody."""

    consume_timestamp_ms: int = wire("consumeTimeStamp", default=0)
    consume_timestamp_str: str | None = wire("consumeTimeStampStr", default=None)
    delay_time_ms: int = wire("delayTime", default=0)
    max_timestamp_ms: int = wire("maxTimeStamp", default=0)
    max_timestamp_str: str | None = wire("maxTimeStampStr", default=None)
    message_queue: MessageQueue | None = wire("messageQueue", default=None)
    min_timestamp_ms: int = wire("minTimeStamp", default=0)
    min_timestamp_str: str | None = wire("minTimeStampStr", default=None)


@body
class QueryConsumeTimeSpanBody(Body):
    consume_time_span_set: list[QueueTimeSpan] = wire("consumeTimeSpanSet", factory=list)
