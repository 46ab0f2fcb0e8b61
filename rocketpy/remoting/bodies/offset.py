"""Offsets: of consumers (43), delay levels (45), resets (220, 222), consumer status (221, 223)."""

from __future__ import annotations

from rocketpy.message.message_queue import MessageQueue

from .schema import Body, Int, body, wire


@body
class ConsumerOffsetSerializeWrapper(Body):
    """`topic@group` to queue id to offset."""

    offset_table: dict[str, dict[Int, int]] = wire("offsetTable", factory=dict)


@body
class DelayOffsetSerializeWrapper(Body):
    """Delay level to offset."""

    offset_table: dict[Int, int] = wire("offsetTable", factory=dict)


@body
class ResetOffsetBody(Body):
    """Go parses its text by hand: only the compact form with bare object keys will do, which is what is written."""

    offset_table: dict[MessageQueue, int] = wire("offsetTable", factory=dict)


@body
class GetConsumerStatusBody(Body):
    """A client fills `message_queue_table` (221), a broker `consumer_table`, by client id (223)."""

    consumer_table: dict[str, dict[MessageQueue, int]] = wire("consumerTable", factory=dict)
    message_queue_table: dict[MessageQueue, int] = wire("messageQueueTable", factory=dict)
