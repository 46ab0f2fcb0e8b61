"""Messages: find one by its ids, its key or its place; entries of consume queues."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import click

from rocketpy.client.cluster.received import inflated
from rocketpy.codes import RequestCode
from rocketpy.remoting.bodies.broker import QueryConsumeQueueResponseBody
from rocketpy.remoting.headers.pull import QueryConsumeQueueRequestHeader

from ..admin import Admin
from ..base import command, option
from ..core import NotFound
from ..java_text import RULE, pretty_json, send_result_text, unit_text
from ..message_output import body_options, print_detail, print_tracks, show_or_consume
from ..messages import query_by_key, query_by_unique_key, read_queue, view_by_offset_id
from ..output import Column, Output, Table
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
        body["with_offset_id"] = False
        await show_or_consume(admin, out, inflated(message), consumer_group, client_id, body)


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
    queue = await admin.queue(topic, broker_name, queue_id)
    async with aclosing(read_queue(admin, queue, offset, offset + 1)) as messages:
        async for message in messages:
            print_detail(out, message, **body)
            await print_tracks(admin, out, message)
            return
    raise NotFound(f"no message at offset {offset} of {queue}")


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
    out.done(
        f"max: {found.max_queue_index}, min: {found.min_queue_index}",
        min_index=found.min_queue_index,
        max_index=found.max_queue_index,
    )
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
