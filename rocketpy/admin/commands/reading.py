"""Messages: print those of a topic or a queue, read them for other programs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import attrs
import click

from rocketpy import aio
from rocketpy.client.cluster.route import subscribe_queues
from rocketpy.client.messages import ReceivedMessage
from rocketpy.client.results import PullResult, PullStatus
from rocketpy.message.message_queue import MessageQueue

from ..admin import Admin
from ..base import command, option
from ..core import NotFound
from ..java_text import message_text, queue_text
from ..message_output import message_record
from ..messages import offset_range, pulls
from ..output import Output, parse_time_ms
from ..resuming import Pace, Positions

_PATH = click.Path(dir_okay=False, path_type=Path)
COUNT = 128  # of consumeMessage, as in Java
FOLLOW_S = 0.5  # between two looks at queues that have nothing new


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
    queue = await admin.queue(topic, broker_name, queue_id)
    show = printer(out, charset_name, with_body=print_body)
    span = await offset_range(admin, queue, begin_timestamp, end_timestamp)
    counts: Counter[str] = Counter()
    with out.bar.task("messages", span.end - span.low) as reached:
        async with aclosing(pulls(admin, queue, span.low, span.end, sub_expression)) as results:
            async for result in results:
                for message in within(result.messages, end_timestamp):
                    counts[message.tags or ""] += 1
                    if print_msg:
                        show(message)
                reached(counts.total())
    if calculate:
        for tag, count in counts.most_common():
            out.done(f"Tag: {tag:<30} Count: {count}", tag=tag, count=count)


@command(
    example="mqadmin consumeMessage -n 127.0.0.1:9876 -t OrderTopic -c 10", endless=lambda options: options["follow"]
)
@option("-t", "--topic", required=True, help="Topic.")
@option("-b", "--brokerName", help="Broker name.  [all]")
@option("-i", "--queueId", type=int, help="Queue; needs -b.  [all]")
@option("-o", "--offset", type=int, help="First offset; needs -i.")
@option("-g", "--consumerGroup", help="Accepted for compatibility: no offsets are used or stored.")
@option("-s", "--beginTimestamp", callback=time_of, help=f"Stored at or after: {TIME_HELP}")
@option("-e", "--endTimestamp", callback=time_of, help=f"Stored before: {TIME_HELP}")
@option("-c", "--MessageNumber", type=click.IntRange(1), help=f"At most so many.  [{COUNT}]")
@click.option("--all", "all_messages", is_flag=True, help="All that there are now, if -c does not say fewer.")
@click.option("--follow", is_flag=True, help="Go on with new messages, until Ctrl-C or -c.")
@click.option("--rate", type=click.FloatRange(min=0), default=0, help="Messages per second.  [as fast as they come]")
@click.option("--from", "positions_file", type=_PATH, help="Begin where --save has left off; a missing file: at first.")
@click.option("--save", type=_PATH, help="Keep the offset behind the last message of each queue here.")
async def consume_message(
    admin: Admin,
    out: Output,
    topic: str,
    broker_name: str | None,
    queue_id: int | None,
    offset: int | None,
    consumer_group: str | None,
    message_number: int | None,
    all_messages: bool,
    positions_file: Path | None,
    save: Path | None,
    rate: float,
    **span: Any,
) -> None:
    """Read messages of a topic, a broker or a queue; nothing is acknowledged.

    With --output json a line is what sendMessage --input reads.
    """
    if queue_id is not None and broker_name is None:
        raise click.UsageError("Please set the brokerName before queueId!")
    if offset is not None and queue_id is None:
        raise click.UsageError("Please set queueId before offset!")
    if offset is not None and positions_file is not None:
        raise click.UsageError("give either -o (offset) or --from, not both")
    if broker_name is not None:
        await admin.queue(topic, broker_name, queue_id or 0)
    queues = [
        queue
        for queue in sorted(subscribe_queues(topic, await admin.route(topic)))
        if broker_name in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
    ]
    if not queues:
        raise NotFound(f"topic {topic} has no such queue")
    first = Positions.load(positions_file) if positions_file is not None else {}
    if offset is not None:
        first = {queues[0]: offset}
    count = message_number or (sys.maxsize if all_messages or span["follow"] else COUNT)
    wanted = Wanted(count, one_queue=queue_id is not None, **span)
    await Reading(admin, out, wanted, Positions(save, dict(first)), Pace(rate)).run(queues, first)


@attrs.frozen
class Wanted:
    """The choice of messages: at most `count`, stored within times where given; `follow`: new ones as well."""

    count: int
    one_queue: bool
    follow: bool
    begin_timestamp: int | None
    end_timestamp: int | None


@attrs.define
class Reading:
    """The reading of one consumeMessage, queue by queue, and again if new messages are wanted."""

    admin: Admin
    out: Output
    wanted: Wanted
    positions: Positions
    pace: Pace
    shown: int = attrs.field(default=0, init=False)
    is_first_round: bool = attrs.field(default=True, init=False)

    @property
    def left(self) -> int:
        return self.wanted.count - self.shown

    async def run(self, queues: Sequence[MessageQueue], first: Mapping[MessageQueue, int]) -> None:
        """Show the messages from the offsets in `first` on, in queues that are not there from their beginning."""
        offsets: dict[MessageQueue, int | None] = {**first}
        total = None if self.wanted.count == sys.maxsize else self.wanted.count
        with self.positions.kept(), self.out.bar.task("messages", total) as reached:
            while True:
                for queue in queues:
                    offsets[queue] = await self._queue(queue, offsets.get(queue))
                    reached(self.shown)
                    if self.left <= 0:
                        return
                if not self.wanted.follow:
                    return
                self.is_first_round = False
                await aio.sleep(FOLLOW_S)

    async def _queue(self, queue: MessageQueue, offset: int | None) -> int:
        """Show what is there of one queue. Returns the offset at which to go on."""
        span = await offset_range(self.admin, queue, self.wanted.begin_timestamp, self.wanted.end_timestamp)
        first = span.low if offset is None else max(span.low, offset)
        if first > span.high:
            self._tell(f"{queue_text(queue)} no matched msg, offset={first}")
            return first
        if self.left < span.high - first:
            of_queue = "" if self.wanted.one_queue else f" of the {queue.queue_id} queue"
            older = "oldler" if self.wanted.one_queue else "older"  # so spelled in Java
            self._tell(f"The {older} {self.left} message{of_queue} will be provided")
        # As in Java, one pull more tells that there is nothing more; but not when the number is reached.
        async with aclosing(pulls(self.admin, queue, first, min(first + self.left, span.high + 1))) as results:
            async for result in results:
                await self._show(queue, result)
                first = result.next_begin_offset
        return first

    async def _show(self, queue: MessageQueue, result: PullResult) -> None:
        if result.status is PullStatus.FOUND:
            self._tell("Consume ok")
        show = printer(self.out, "utf-8", with_body=True)
        for message in within(result.messages, self.wanted.end_timestamp)[: self.left]:
            await self.pace.wait()
            show(message)
            self.shown += 1
            self.positions.note(queue, message.queue_offset)
        if self.is_first_round:
            tell_end(self.out, queue, result)

    def _tell(self, text: str) -> None:
        if self.is_first_round:
            self.out.line(text)
