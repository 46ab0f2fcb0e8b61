"""Message trace: who sent a message, and who consumed it, as its clients wrote into the trace topic.

Source: RocketMQ 4.9 `QueryMsgTraceByIdSubCommand`, `TraceView`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import attrs

from rocketpy import aio
from rocketpy.client.messages import ReceivedMessage
from rocketpy.errors import CompressionError
from rocketpy.message.compression import decompress_body
from rocketpy.message.names import TRACE_TOPIC
from rocketpy.message.trace import Pub, SubAfter, decode_records

from ..admin import Admin
from ..base import command, option
from ..core import NotFound
from ..messages import query_by_key
from ..output import Column, Output, Table, second_text

TRACE_BYTES_MAX = 1 << 20  # of one message of the trace topic; clients send about 128 000 bytes
TRACES_BYTES_MAX = 8 << 20  # of all together: any producer may write traces of any message
RECORDS_MAX = 1000  # of one message


@attrs.frozen
class MessageTrace:
    """The trace of a message: its sends, and its consumption by the listeners of each group."""

    sends: tuple[tuple[Pub, str], ...]  # with the host of the client, without its port
    consumptions: tuple[tuple[SubAfter, str], ...]
    is_cut: bool = False  # there are more than RECORDS_MAX records, or TRACES_BYTES_MAX bytes

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(record.group for record, _ in self.consumptions))


async def message_trace(admin: Admin, msg_id: str, trace_topic: str) -> MessageTrace:
    """The trace of the message with this id of its producer. Raises BrokerError: the trace topic does not exist."""
    messages = await query_by_key(admin, trace_topic, msg_id)
    return await aio.in_thread(_trace_of, msg_id, messages)


def _trace_of(msg_id: str, messages: Iterable[ReceivedMessage]) -> MessageTrace:
    """A message of the trace topic holds records of many messages; these are the ones of `msg_id`, the oldest first."""
    sends: list[tuple[Pub, str]] = []
    consumptions: list[tuple[SubAfter, str]] = []
    left = TRACES_BYTES_MAX
    for message in messages:
        left -= len(body := _inflated(message))
        for record in decode_records(body.decode("utf-8", "replace")) if left >= 0 else ():
            if record.msg_id != msg_id:
                continue
            if isinstance(record, Pub):
                sends.append((record, message.born_host[0]))
            elif isinstance(record, SubAfter):
                consumptions.append((record, message.born_host[0]))
        if left < 0 or len(sends) + len(consumptions) > RECORDS_MAX:
            return MessageTrace(tuple(sends[:RECORDS_MAX]), tuple(consumptions[:RECORDS_MAX]), is_cut=True)
    return MessageTrace(tuple(sends), tuple(consumptions))


def _inflated(message: ReceivedMessage) -> bytes:
    """Return the body; nothing for a damaged one, or one of more than TRACE_BYTES_MAX."""
    with contextlib.suppress(CompressionError):
        return decompress_body(message.body, message.sys_flag, size_max=TRACE_BYTES_MAX)[0]
    return b""


def trace_table(group: str, time: str) -> Table:
    return Table(
        (
            Column("Type", 10, gap=1),
            Column(group, 20, gap=1),
            Column("ClientHost", 20, gap=1),
            Column(time, 20, gap=1),
            Column("CostTimes", 10, gap=1),
            Column("Status", 10),
        )
    )


SENDS = trace_table("ProducerGroup", "SendTime")
CONSUMPTIONS = trace_table("ConsumerGroup", "ConsumerTime")


@command(example="mqadmin queryMsgTraceById -n 127.0.0.1:9876 -i C0A8010A12670BADCAFE16D1862B002A")
@option("-i", "--msgId", required=True, help="Producer's message id.")
@option("-t", "--traceTopic", default=TRACE_TOPIC, show_default=True, help="Topic that clients write traces to.")
async def query_msg_trace_by_id(admin: Admin, out: Output, msg_id: str, trace_topic: str) -> None:
    """Show who sent a message and who consumed it, from the traces that clients wrote."""
    trace = await message_trace(admin, msg_id, trace_topic)
    if trace.is_cut:
        out.warn(f"the trace has more than {RECORDS_MAX} records, or {TRACES_BYTES_MAX} bytes; the oldest are shown")
    if not trace.sends and not trace.consumptions:
        raise NotFound(f"no trace of message {msg_id} in topic {trace_topic}")
    for sent, host in trace.sends:
        out.table(SENDS, [("Pub", sent.group, host, *_figures(sent.timestamp_ms, sent.cost_ms, sent.is_success))])
        out.line()
    for group in trace.groups:
        rows = [
            ("Sub", group, host, *_figures(record.timestamp_ms, record.cost_ms, record.is_success))
            for record, host in trace.consumptions
            if record.group == group
        ]
        out.table(CONSUMPTIONS, rows)
        out.line()


def _figures(timestamp_ms: int, cost_ms: int, is_success: bool) -> tuple[str, str, str]:
    return second_text(timestamp_ms), f"{cost_ms}ms", "success" if is_success else "failed"
