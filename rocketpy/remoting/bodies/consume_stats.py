"""Offsets and backlog of consumers: ConsumeStats (208), ConsumeStatsList (317)."""

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
    """The offsets of one group in each queue, and its speed of consumption."""

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
