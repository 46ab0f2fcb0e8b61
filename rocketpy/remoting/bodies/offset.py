"""Offsets: of consumers (43), delay levels (45), resets (220, 222), consumer status (221, 223)."""

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
