"""Offsets: of consumers (43), their backlog (208, 317), delay levels (45), resets (220, 222), consumer status (221,
223).
"""

from __future__ import annotations

from rocketpy.message.message_queue import MessageQueue

from .schema import Body, Int, body, wire

PHY_OFFSET = "phyOffset"
"""Member of rocketpy in saved tables: the log position that the table presumes (broker/files/log_marks.py)."""
PRESUMED = "presumedPhyOffset"
PRESUMED_EPOCH = "presumedEpoch"
"""Fields of rocketpy in the answers to 43 and 45: the log position that the table presumes (see PHY_OFFSET)."""


@body
class ConsumerOffsetSerializeWrapper(Body):
    """`topic@group` to queue id to offset."""

    offset_table: dict[str, dict[Int, int]] = wire("offsetTable", factory=dict)


@body
class DelayOffsetSerializeWrapper(Body):
    """Delay level to offset."""

    offset_table: dict[Int, int] = wire("offsetTable", factory=dict)


@body
class LogMark(Body):
    """A progress table at a position of the log: all messages that the table takes for stored are below it."""

    epoch: int = wire("epoch", default=-1)  # of the group with failover that wrote the log up to there; -1: none
    offset_table: dict[Int, int] = wire("offsetTable", factory=dict)
    phy_offset: int = wire(PHY_OFFSET, default=-1)  # -1: not known


@body
class MarkedOffsets(LogMark):
    """A saved progress table: one that the disk has the log for, and the same table at other positions."""

    marks: list[LogMark] = wire("marks", factory=list)


@body
class ResetOffsetBody(Body):
    """Go parses its text by hand: only the compact form with bare object keys will do, which is what is written."""

    offset_table: dict[MessageQueue, int] = wire("offsetTable", factory=dict)


@body
class GetConsumerStatusBody(Body):
    """A client fills `message_queue_table` (221), a broker `consumer_table`, by client id (223)."""

    consumer_table: dict[str, dict[MessageQueue, int]] = wire("consumerTable", factory=dict)
    message_queue_table: dict[MessageQueue, int] = wire("messageQueueTable", factory=dict)


@body
class OffsetWrapper(Body):
    """`last_timestamp_ms` is the store time of the last consumed message, 0 if there is none."""

    broker_offset: int = wire("brokerOffset", default=0)
    consumer_offset: int = wire("consumerOffset", default=0)
    last_timestamp_ms: int = wire("lastTimestamp", default=0)

    @property
    def lag(self) -> int:
        """Messages not consumed yet; 0 for an offset beyond the end of its queue."""
        return max(self.broker_offset - self.consumer_offset, 0)


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
    """A list whose elements map a group to its ConsumeStats per topic."""

    broker_addr: str = wire("brokerAddr", default="")
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = wire("consumeStatsList", factory=list)
    total_diff: int = wire("totalDiff", default=0)
