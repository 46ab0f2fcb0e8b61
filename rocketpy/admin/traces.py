"""Traces of one message, as its clients wrote them into the trace topic.

Source: RocketMQ 4.9 `QueryMsgTraceByIdSubCommand`, `TraceView`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from rocketpy.client.messages import ReceivedMessage
from rocketpy.message.trace import Pub, SubAfter, decode_records

from .admin import Admin
from .messages import query_by_key


@attrs.frozen
class MessageTrace:
    """The trace of a message: its sends, and its consumption by the listeners of each group."""

    sends: tuple[tuple[Pub, str], ...]  # with the host of the client, without its port
    consumptions: tuple[tuple[SubAfter, str], ...]

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(record.group for record, _ in self.consumptions))


async def message_trace(admin: Admin, msg_id: str, trace_topic: str) -> MessageTrace:
    """The trace of the message with this id of its producer. Raises BrokerError: the trace topic does not exist."""
    return trace_of(msg_id, await query_by_key(admin, trace_topic, msg_id))


def trace_of(msg_id: str, messages: Sequence[ReceivedMessage]) -> MessageTrace:
    """A message of the trace topic holds records of many messages; these are the ones of `msg_id`."""
    records = [
        (record, message.born_host[0])
        for message in messages
        for record in decode_records(message.body.decode("utf-8", "replace"))
        if record.msg_id == msg_id
    ]
    return MessageTrace(
        tuple((record, host) for record, host in records if isinstance(record, Pub)),
        tuple((record, host) for record, host in records if isinstance(record, SubAfter)),
    )
