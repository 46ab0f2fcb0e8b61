"""Sends: one message or many, test messages, response times."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import click

from rocketpy import aio
from rocketpy.client.messages import Message
from rocketpy.errors import RocketError
from rocketpy.message.message_queue import MessageQueue

from ..admin import Admin
from ..base import EXIT_FAILED, EXIT_PARTIAL, command, option
from ..core import NotFound
from ..message_source import Given, Source
from ..output import Column, Output, Table, second_text
from ..resuming import Pace, Positions
from ..sending import send, send_loop, timed_send

_FILE, _PATH = click.Path(exists=True, dir_okay=False, allow_dash=True), click.Path(dir_okay=False, path_type=Path)
ATTEMPTS = 3  # of a send, as in Java

SEND = Table((Column("Broker Name", 32), Column("QID", 4), Column("Send Result", 20, gap=4), Column("MsgId")))
SEND_RT = Table((Column("Broker Name", 32), Column("QID", 4), Column("Send Result", 20, gap=4), Column("RT")))
CLUSTER_RT = Table(
    (
        Column("Cluster Name", 24),
        Column("Broker Name", 24),
        Column("RT", 8),
        Column("successCount", 16),
        Column("failCount", 16),
    )
)
CLUSTER_RT_HEADING = Table(
    (
        Column("Cluster Name", 24),
        Column("Broker Name", 24),
        Column("RT", 4),
        Column("successCount", 8),
        Column("failCount", 8),
    )
)


def test_body(size: int) -> bytes:
    return b"a" * size


@command(example="mqadmin sendMessage -n 127.0.0.1:9876 -t OrderTopic -p 'hello' -k order-1 -c paid")
@option("-t", "--topic", required=True, help="Topic.")
@option("-p", "--body", help="Body, sent as UTF-8.")
@click.option("--body-file", type=_FILE, help="File that is the body, `-` for standard input.")
@click.option("--input", "lines_file", type=_FILE, help="File with a message in each line, `-` for standard input.")
@click.option(
    "--input-format",
    type=click.Choice(["json", "text"]),
    default="json",
    show_default=True,
    help="json: as consumeMessage prints them with --output json. text: each line is a body.",
)
@option("-k", "--key", help="Keys, separated by spaces, of messages that bring none.")
@option("-c", "--tags", help="Tag of messages that bring none.")
@option("-b", "--broker", help="Send to this broker (name).")
@option("-i", "--qid", type=int, help="Send to this queue; needs -b.")
@option("-m", "--msgTraceEnable", type=bool, default=False, help="Accepted for compatibility; no trace is written.")
@click.option("--count", type=click.IntRange(1), help="Send so many: the body again, or no more lines than these.")
@click.option("--rate", type=click.FloatRange(min=0), default=0, help="Messages per second.  [as fast as they go]")
@click.option("--skip", type=click.IntRange(0), default=0, help="Leave out so many lines at the beginning.")
@click.option("--save", type=_PATH, help="Keep the place of the last message here, for consumeMessage --from.")
async def send_message(
    admin: Admin,
    out: Output,
    topic: str,
    broker: str | None,
    qid: int | None,
    rate: float,
    save: Path | None,
    msg_trace_enable: bool,
    **given: Any,
) -> int | None:
    """Send a message, or one for each line of a file or of standard input.

    A send that fails ends the command; it says how to go on. Exit status: 1 if nothing was sent, 3 if some were.
    """
    if qid is not None and broker is None:
        raise click.UsageError("Broker name must be set if the queue is chosen!")
    source = Source(Given(topic, **given))
    queue = None if broker is None else await admin.queue(topic, broker, qid or 0)
    positions = Positions(save, Positions.load(save) if save is not None else {})
    out.heading(SEND)
    with positions.kept():
        return await _send_all(admin, out, source, queue, Pace(rate), positions)


async def _send_all(
    admin: Admin, out: Output, source: Source, queue: MessageQueue | None, pace: Pace, positions: Positions
) -> int | None:
    via, is_done = send_loop(admin), False
    try:
        with out.bar.task("messages", source.given.count) as reached:
            async with aclosing(source.lines()) as lines:
                async for line in lines:
                    await pace.wait()
                    result = await send(via, line.message, queue, attempts=ATTEMPTS)
                    source.note_sent()
                    out.row(SEND, (result.queue.broker_name, result.queue.queue_id, result.status.value, result.msg_id))
                    if line.queue is not None:
                        positions.note(line.queue, line.queue_offset)
                    reached(source.sent)
        is_done = True
    except RocketError as error:
        out.row(SEND, ("Unknown", "Unknown", "Failed", "None"))
        out.warn(f"error: {source.place}{error}")
        return EXIT_PARTIAL if source.sent else EXIT_FAILED
    finally:  # also when it is interrupted
        if source.sent and not is_done:
            out.warn(source.remedy)
    return None


@command(example="mqadmin sendMsgStatus -n 127.0.0.1:9876 -b broker-a -c 10")
@option("-b", "--brokerName", required=True, help="Broker name; messages go to the topic of the same name.")
@option("-s", "--messageSize", type=click.IntRange(1), default=128, show_default=True, help="Bytes.")
@option("-c", "--count", type=click.IntRange(1), default=50, show_default=True, help="Messages.")
async def send_msg_status(admin: Admin, out: Output, broker_name: str, message_size: int, count: int) -> int | None:
    """Send test messages to a broker's own topic and show time and outcome of each."""
    failed, via = 0, send_loop(admin)
    for _ in out.steps(range(count), "messages"):
        timed = await timed_send(via, Message(broker_name, test_body(message_size)))
        failed += timed.error is not None
        out.done(f"rt={timed.rt_ms:.0f}ms, SendResult={timed.outcome}", rt_ms=timed.rt_ms, result=timed.outcome)
    return None if not failed else EXIT_FAILED if failed == count else EXIT_PARTIAL


@command(example="mqadmin checkMsgSendRT -n 127.0.0.1:9876 -t OrderTopic -a 20 -s 1024")
@option("-t", "--topic", required=True, help="Topic.")
@option("-a", "--amount", type=click.IntRange(2), default=100, show_default=True, help="Messages.")
@option("-s", "--size", type=click.IntRange(1), default=128, show_default=True, help="Bytes.")
async def check_msg_send_rt(admin: Admin, out: Output, topic: str, amount: int, size: int) -> int | None:
    """Measure the response time of sends; the first, which also connects, is not in the average."""
    out.heading(SEND_RT)
    total_ms, failed, via = 0.0, 0, send_loop(admin)
    for index in out.steps(range(amount), "messages"):
        timed = await timed_send(via, Message(topic, test_body(size)))
        failed += timed.error is not None
        total_ms += timed.rt_ms if index else 0.0
        queue_id = timed.result.queue.queue_id if timed.result else "-"
        out.row(SEND_RT, (timed.broker_name or "-", queue_id, str(timed.error is None).lower(), round(timed.rt_ms)))
    average_ms = total_ms / (amount - 1)
    out.done(f"Avg RT: {average_ms:.2f}", average_rt_ms=round(average_ms, 2))
    return None if not failed else EXIT_FAILED if failed == amount else EXIT_PARTIAL


@command(
    example="mqadmin clusterRT -n 127.0.0.1:9876 -c DefaultCluster --rounds 1",
    endless=lambda options: options["rounds"] is None,
)
@option("-a", "--amount", type=click.IntRange(1), default=100, show_default=True, help="Messages per broker and round.")
@option("-s", "--size", type=click.IntRange(1), default=128, show_default=True, help="Bytes.")
@option("-c", "--cluster", help="One cluster.  [all]")
@option("-p", "--print-log", type=bool, default=False, help="Log style: fields joined by bars.")
@option("-m", "--machine-room", default="noname", show_default=True, help="Room name in log style.")
@option("-i", "--interval", type=click.FloatRange(min=0.01), default=10.0, show_default=True, help="Seconds of pause.")
@click.option("--rounds", type=click.IntRange(1), help="End after so many rounds.  [endless]")
async def cluster_rt(
    admin: Admin,
    out: Output,
    amount: int,
    size: int,
    cluster: str | None,
    print_log: bool,
    machine_room: str,
    interval: float,
    rounds: int | None,
) -> int | None:
    """Measure the send latency of every broker, again and again, by messages to the topic named like it."""
    if not print_log:
        out.heading(CLUSTER_RT_HEADING)  # narrower than the rows, as in Java
    done = 0
    while True:
        any_failed = await _round(admin, out, amount, size, cluster, machine_room if print_log else None)
        done += 1
        if done == rounds:
            return EXIT_PARTIAL if any_failed else None
        await aio.sleep(interval)


async def _round(admin: Admin, out: Output, amount: int, size: int, cluster: str | None, log_room: str | None) -> bool:
    info = await admin.cluster_info()
    clusters = {cluster: info.cluster_addr_table[cluster]} if cluster in info.cluster_addr_table else {}
    if cluster is not None and not clusters:
        known = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise NotFound(f"cluster [{cluster}] not exist; there are: {known}")
    any_failed, via = False, send_loop(admin)
    for name, brokers in sorted((clusters or info.cluster_addr_table).items()):
        for broker_name in sorted(brokers):
            timings = [await timed_send(via, Message(broker_name, test_body(size))) for _ in range(amount)]
            good = [timed.rt_ms for timed in timings if timed.error is None]
            any_failed |= len(good) < amount
            rt_ms = sum(good) / len(good) if good else 0.0
            if log_room is None:
                out.row(CLUSTER_RT, (name, broker_name, f"{rt_ms:.2f}", len(good), amount - len(good)))
            else:
                now = second_text(admin.instance.now_ms())
                out.done(
                    f"{now}|{log_room}|{name}|{broker_name}|{round(rt_ms)}",
                    time=now,
                    room=log_room,
                    cluster=name,
                    broker_name=broker_name,
                    rt_ms=rt_ms,
                )
    return any_failed
