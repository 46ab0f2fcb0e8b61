"""Offsets: of consumers (43), delay levels (45), corrections (308), resets (220, 222), consumer status (221, 223)."""

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
class QueryCorrectionOffsetBody(Body):
    correction_offsets: dict[Int, int] = wire("correctionOffsets", factory=dict)


@body
class ResetOffsetBody(Body):
    """Go parses its text by hand: only the compact form with bare object keys will do, which is what is written."""

    offset_table: dict[MessageQueue, int] = wire("offsetTable", factory=dict)


@body
class MessageQueueForC(Body):
    broker_name: str = wire("brokerName", default="")
    offset: int = wire("offset", default=0)
    queue_id: Int = wire("queueId", default=0)
    topic: str = wire("topic", default="")


@body
class ResetOffsetBodyForC(Body):
    """What clients get when the admin that asked is written in C++."""

    offset_table: list[MessageQueueForC] = wire("offsetTable", factory=list)


@body
class GetConsumerStatusBody(Body):
    """A client fills `message_queue_table` (221), a broker `consumer_table`, by client id (223)."""

    consumer_table: dict[str, dict[MessageQueue, int]] = wire("consumerTable", factory=dict)
    message_queue_table: dict[MessageQueue, int] = wire("messageQueueTable", factory=dict)


@body
class OffsetMovedEvent(Body):
    """Body of the messages in OFFSET_MOVED_EVENT."""

    consumer_group: str = wire("consumerGroup", default="")
    message_queue: MessageQueue | None = wire("messageQueue", default=None)
    offset_new: int = wire("offsetNew", default=0)
    offset_request: int = wire("offsetRequest", default=0)
