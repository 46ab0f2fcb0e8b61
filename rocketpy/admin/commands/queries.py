"""Messages: find them, print them, read queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import click

from rocketpy.client.cluster.route import subscribe_queues
from rocketpy.client.messages import ReceivedMessage
from rocketpy.client.results import PullResult, PullStatus
from rocketpy.codes import RequestCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.broker import QueryConsumeQueueResponseBody
from rocketpy.remoting.headers.pull import QueryConsumeQueueRequestHeader

from ..admin import Admin
from ..base import command, option
from ..core import NotFound
from ..java_text import RULE, message_text, pretty_json, queue_text, send_result_text, unit_text
from ..message_output import body_options, message_record, print_detail, print_tracks, show_or_consume
from ..messages import (
    offset_range,
    pulls,
    query_by_key,
    query_by_unique_key,
    read_queue,
    view_by_offset_id,
)
from ..output import Column, Output, Table, parse_time_ms
from ..sending import send_again

BY_KEY = Table((Column("Message ID", 50, gap=1), Column("QID", 4, right=True, gap=1), Column("Offset", 40, right=True)))


@command(example="mqadmin queryMsgById -n 127.0.0.1:9876 -i 7F00000100002A9F0000000000000000")
@option("-i", "--msgId", required=True, help="Broker's message ids, separated by commas.")
@option("-g", "--consumerGroup", help="With -d: have this group's member consume the message now.")
@option("-d", "--clientId", help="The member's client id.")
@option("-s", "--sendMessage", type=bool, default=False, help="Send the message again (true, false).")
@option("-u", "--unitName", help="Unit name; accepted for compatibility.")
@body_options
async def query_msg_by_id(
    admin: Admin,
    out: Output,
    msg_id: str,
    consumer_group: str | None,
    client_id: str | None,
    send_message: bool,
    unit_name: str | None,
    **body: Any,
) -> None:
    """Show messages by the id that the broker gave them, and what became of them in each group."""
    for one in (part.strip() for part in msg_id.split(",") if part.strip()):
        message = await view_by_offset_id(admin, one)
        if send_message:
            result = await send_again(admin, message)
            out.done(
                f"prepare resend msg. originalMsgId={one}{send_result_text(result)}",
                original_msg_id=one,
                msg_id=result.msg_id,
                status=result.status.value,
            )
        else:
            await show_or_consume(admin, out, message, consumer_group, client_id, body)


@command(example="mqadmin queryMsgByUniqueKey -n 127.0.0.1:9876 -t OrderTopic -i C0A8010A12670BADCAFE16D1862B002A")
@option("-i", "--msgId", required=True, help="Producer's message id.")
@option("-t", "--topic", required=True, help="Topic.")
@option("-g", "--consumerGroup", help="With -d: have this group's member consume the message now.")
@option("-d", "--clientId", help="The member's client id.")
@option("-a", "--showAll", is_flag=True, help="All messages with this id (at most 32), not the first only.")
@body_options
async def query_msg_by_unique_key(
    admin: Admin,
    out: Output,
    msg_id: str,
    topic: str,
    consumer_group: str | None,
    client_id: str | None,
    show_all: bool,
    **body: Any,
) -> None:
    """Show a message by the id that the producer gave it."""
    found = await query_by_unique_key(admin, topic, msg_id)
    if not found:
        raise NotFound(f"no message {msg_id} in topic {topic}")
    for message in found if show_all else found[:1]:
        await show_or_consume(admin, out, message, consumer_group, client_id, {**body, "with_offset_id": False})


@command(example="mqadmin queryMsgByKey -n 127.0.0.1:9876 -t OrderTopic -k order-1001")
@option("-t", "--topic", required=True, help="Topic.")
@option("-k", "--msgKey", required=True, help="Business key.")
async def query_msg_by_key(admin: Admin, out: Output, topic: str, msg_key: str) -> None:
    """Find messages by business key; at most 64 per broker."""
    found = await query_by_key(admin, topic, msg_key)
    if not found:
        raise NotFound(f"no message with key {msg_key} in topic {topic}")
    out.table(BY_KEY, [(message.msg_id, message.queue.queue_id, message.queue_offset) for message in found])


@command(example="mqadmin queryMsgByOffset -n 127.0.0.1:9876 -t OrderTopic -b broker-a -i 0 -o 100")
@option("-t", "--topic", required=True, help="Topic.")
@option("-b", "--brokerName", required=True, help="Broker name.")
@option("-i", "--queueId", required=True, type=int, help="Queue.")
@option("-o", "--offset", required=True, type=int, help="Offset in the queue.")
@body_options
async def query_msg_by_offset(
    admin: Admin, out: Output, topic: str, broker_name: str, queue_id: int, offset: int, **body: Any
) -> None:
    """Show the message at an offset of a queue."""
    await admin.route(topic)
    queue = MessageQueue(topic, broker_name, queue_id)
    async with aclosing(read_queue(admin, queue, offset, offset + 1)) as messages:
        async for message in messages:
            print_detail(out, message, **body)
            await print_tracks(admin, out, message)
            return
    raise NotFound(f"no message at offset {offset} of {queue}")


def printer(out: Output, charset: str, *, with_body: bool) -> Callable[[ReceivedMessage], None]:
    """Prints one line per message."""

    def show(message: ReceivedMessage) -> None:
        if out.is_json:
            out.record(**message_record(message, with_body=with_body))
            return
        body = message.body.decode(charset, "replace") if with_body else "NOT PRINT BODY"
        out.line(f"MSGID: {message.msg_id} {message_text(message)} BODY: {body}")

    return show


def within(messages: Sequence[ReceivedMessage], end_ms: int | None) -> Sequence[ReceivedMessage]:
    """Return the messages stored at or before `end_ms`. A queue may give the offset of an earlier message for that
    time."""
    if end_ms is None or end_ms <= 0:
        return messages
    return [message for message in messages if message.store_timestamp_ms <= end_ms]


def tell_end(out: Output, queue: MessageQueue, result: PullResult) -> None:
    """Say why a pull gave no message."""
    where = f"status={result.status.value}, offset={result.next_begin_offset}"
    if result.status is PullStatus.NO_MATCHED_MSG:
        out.line(f"{queue_text(queue)} no matched msg. {where}")
    elif result.status is not PullStatus.FOUND:
        out.line(f"{queue_text(queue)} print msg finished. {where}")


def time_of(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """A time option: ms, `now`, or yyyy-MM-dd#HH:mm:ss:SSS."""
    if text is None:
        return None
    try:
        return parse_time_ms(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither ms nor yyyy-MM-dd#HH:mm:ss:SSS", ctx, param) from None


TIME_HELP = "ms, or yyyy-MM-dd#HH:mm:ss:SSS."


@command(example="mqadmin printMsg -n 127.0.0.1:9876 -t OrderTopic -s 'paid || refunded'")
@option("-t", "--topic", required=True, help="Topic.")
@option("-c", "--charsetName", default="UTF-8", show_default=True, help="Charset of the bodies.")
@option("-s", "--subExpression", help="Tags, `TagA || TagB`.  [all]")
@option("-b", "--beginTimestamp", callback=time_of, help=f"Stored at or after: {TIME_HELP}")
@option("-e", "--endTimestamp", callback=time_of, help=f"Stored before: {TIME_HELP}")
@option("-d", "--printBody", type=bool, default=True, show_default=True, help="Print the bodies (true, false).")
async def print_msg(
    admin: Admin,
    out: Output,
    topic: str,
    charset_name: str,
    sub_expression: str | None,
    begin_timestamp: int | None,
    end_timestamp: int | None,
    print_body: bool,
) -> None:
    """Print the messages of a topic, queue by queue."""
    show = printer(out, charset_name, with_body=print_body)
    for queue in sorted(subscribe_queues(topic, await admin.route(topic))):
        span = await offset_range(admin, queue, begin_timestamp, end_timestamp)
        out.line(f"minOffset={span.low}, maxOffset={span.high}, {queue_text(queue)}")
        async with aclosing(pulls(admin, queue, span.low, span.end, sub_expression)) as results:
            async for result in results:
                for message in within(result.messages, end_timestamp):
                    show(message)
                tell_end(out, queue, result)
        out.line("-" * 56)


@command(example="mqadmin printMsgByQueue -n 127.0.0.1:9876 -t OrderTopic -a broker-a -i 0 -p true -d true")
@option("-t", "--topic", required=True, help="Topic.")
@option("-a", "--brokerName", required=True, help="Broker name.")
@option("-i", "--queueId", required=True, type=int, help="Queue.")
@option("-c", "--charsetName", default="UTF-8", show_default=True, help="Charset of the bodies.")
@option("-s", "--subExpression", help="Tags, `TagA || TagB`.  [all]")
@option("-b", "--beginTimestamp", callback=time_of, help=f"Stored at or after: {TIME_HELP}")
@option("-e", "--endTimestamp", callback=time_of, help=f"Stored before: {TIME_HELP}")
@option("-p", "--print-msg", type=bool, default=False, show_default=True, help="Print the messages (true, false).")
@option("-d", "--printBody", type=bool, default=False, show_default=True, help="Print the bodies (true, false).")
@option("-f", "--calculate", type=bool, default=False, show_default=True, help="Count by tag (true, false).")
async def print_msg_by_queue(
    admin: Admin,
    out: Output,
    topic: str,
    broker_name: str,
    queue_id: int,
    charset_name: str,
    sub_expression: str | None,
    begin_timestamp: int | None,
    end_timestamp: int | None,
    print_msg: bool,
    print_body: bool,
    calculate: bool,
) -> None:
    """Print or count the messages of one queue."""
    await admin.route(topic)
    queue = MessageQueue(topic, broker_name, queue_id)
    show = printer(out, charset_name, with_body=print_body)
    span = await offset_range(admin, queue, begin_timestamp, end_timestamp)
    counts: Counter[str] = Counter()
    async with aclosing(pulls(admin, queue, span.low, span.end, sub_expression)) as results:
        async for result in results:
            for message in within(result.messages, end_timestamp):
                counts[message.tags or ""] += 1
                if print_msg:
                    show(message)
                elif counts.total() % 1000 == 0:
                    out.progress(f"{counts.total()} messages")
    if calculate:
        for tag, count in counts.most_common():
            out.done(f"Tag: {tag:<30} Count: {count}", tag=tag, count=count)


@command(example="mqadmin consumeMessage -n 127.0.0.1:9876 -t OrderTopic -c 10")
@option("-t", "--topic", required=True, help="Topic.")
@option("-b", "--brokerName", help="Broker name.  [all]")
@option("-i", "--queueId", type=int, help="Queue; needs -b.  [all]")
@option("-o", "--offset", type=int, help="First offset; needs -i.")
@option("-g", "--consumerGroup", help="Accepted for compatibility: no offsets are used or stored.")
@option("-s", "--beginTimestamp", callback=time_of, help=f"Stored at or after: {TIME_HELP}")
@option("-e", "--endTimestamp", callback=time_of, help=f"Stored before: {TIME_HELP}")
@option("-c", "--MessageNumber", type=click.IntRange(1), default=128, show_default=True, help="At most so many.")
async def consume_message(
    admin: Admin,
    out: Output,
    topic: str,
    broker_name: str | None,
    queue_id: int | None,
    offset: int | None,
    consumer_group: str | None,
    begin_timestamp: int | None,
    end_timestamp: int | None,
    message_number: int,
) -> None:
    """Read messages of a topic, a broker or a queue; nothing is acknowledged."""
    if queue_id is not None and broker_name is None:
        raise click.UsageError("-i (queue) needs -b (broker name)")
    if offset is not None and queue_id is None:
        raise click.UsageError("-o (offset) needs -b (broker name) and -i (queue)")
    queues = [
        queue
        for queue in sorted(subscribe_queues(topic, await admin.route(topic)))
        if broker_name in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
    ]
    if not queues:
        raise NotFound(f"topic {topic} has no such queue")
    left = message_number
    for queue in queues:
        span = await offset_range(admin, queue, begin_timestamp, end_timestamp)
        first = span.low if offset is None else max(span.low, offset)
        if first > span.high:
            out.line(f"{queue_text(queue)} no matched msg, offset={first}")
            continue
        if left < span.high - first:
            of_queue = "" if queue_id is not None else f" of the {queue.queue_id} queue"
            older = "oldler" if queue_id is not None else "older"  # so spelled in Java
            out.line(f"The {older} {left} message{of_queue} will be provided")
        # As in Java, one pull more tells that there is nothing more; but not when the number is reached.
        async with aclosing(pulls(admin, queue, first, min(first + left, span.high + 1))) as results:
            left -= await _show_pulls(out, queue, results, left, end_timestamp)
        if left <= 0:
            return


async def _show_pulls(
    out: Output, queue: MessageQueue, results: AsyncIterator[PullResult], most: int, end_timestamp: int | None
) -> int:
    """Show what the pulls of a queue bring. Returns the number of messages, at most `most`."""
    show, left = printer(out, "utf-8", with_body=True), most
    async for result in results:
        if result.status is PullStatus.FOUND:
            out.line("Consume ok")
        found = within(result.messages, end_timestamp)[:left]
        for message in found:
            show(message)
        left -= len(found)
        tell_end(out, queue, result)
    return most - left


@command(example="mqadmin queryCq -n 127.0.0.1:9876 -t OrderTopic -b 127.0.0.1:10911 -q 0 -i 0 -c 10")
@option("-t", "--topic", required=True, help="Topic.")
@option("-q", "--queue", required=True, type=int, help="Queue.")
@option("-i", "--index", required=True, type=int, help="First index.")
@option("-c", "--count", type=click.IntRange(1), default=10, show_default=True, help="Entries.")
@option("-b", "--broker", help="Broker address.  [a broker of the topic]")
@option("-g", "--consumer", help="Show this group's subscription and evaluate its filter.")
async def query_cq(
    admin: Admin, out: Output, topic: str, queue: int, index: int, count: int, broker: str | None, consumer: str | None
) -> None:
    """Dump entries of a consume queue."""
    address = broker or next(iter((await admin.masters_of_topic(topic)).values()))
    header = QueryConsumeQueueRequestHeader(
        topic=topic, queue_id=queue, index=index, count=count, consumer_group=consumer
    )
    response = await admin.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
    if response.body is None:
        raise NotFound(response.remark or f"no entries at index {index}")
    found = QueryConsumeQueueResponseBody.decode(response.body)
    if found.subscription_data is not None:
        for line in ("Subscription data: ", pretty_json(found.subscription_data), RULE):
            out.line(line)
    if found.filter_data:
        for line in ("Filter data: ", found.filter_data, RULE):
            out.line(line)
    out.line("Queue data: ")
    out.line(f"max: {found.max_queue_index}, min: {found.min_queue_index}")
    out.line(RULE)
    for position, entry in enumerate(found.queue_data or (), index):
        for line in (f"idx: {position}", unit_text(entry), RULE):
            out.line(line)
        out.record(
            index=position,
            phy_offset=entry.physic_offset,
            size=entry.physic_size,
            tags_code=entry.tags_code,
        )
