"""Backlog of groups, and the inner state of their members: once, or watched until it is interrupted."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import click

from rocketpy import aio
from rocketpy.codes import ResponseCode, version_name
from rocketpy.errors import BrokerError, RocketError
from rocketpy.remoting.bodies.client import ConsumerRunningInfo

from ..admin import Admin
from ..base import EXIT_PARTIAL, WATCH, command, option
from ..java_files import is_file_name
from ..messages import NO_OFFSETS
from ..monitoring import Monitor
from ..output import Column, Output, Table, second_text
from ..progress import (
    all_groups,
    group_progress,
    queue_complaints,
    queue_owners,
    running_info_text,
    same_subscriptions,
)

ROUND_S = 60.0  # of startMonitoring, as in Java
_QUEUE = (
    Column("Topic", 64),
    Column("Broker Name", 32),
    Column("QID", 4),
    Column("Broker Offset", 20),
    Column("Consumer Offset", 20),
)
PROGRESS = Table((*_QUEUE, Column("Diff", 20), Column("LastTime")))
PROGRESS_WITH_IP = Table((*_QUEUE, Column("Client IP", 20, gap=1), Column("Diff", 20), Column("LastTime")))
ALL_GROUPS = Table(
    (
        Column("Group", 64),
        Column("Count", 6),
        Column("Version", 24, gap=1),
        Column("Type", 5),
        Column("Model", 14),
        Column("TPS", 7),
        Column("Diff Total"),
    )
)
BROKER_STATS = Table(
    (
        Column("Topic", 64),
        Column("Group", 64),
        Column("Broker Name", 32),
        Column("QID", 4),
        Column("Broker Offset", 20),
        Column("Consumer Offset", 20),
        Column("Diff", 20),
        Column("LastTime"),
    )
)
MEMBERS = Table(
    (
        Column("Index", 10, gap=1),
        Column("ClientId", 40, gap=1),
        Column("Version", 20, gap=1),
        Column("ConsumerRunningInfoFile"),
    )
)


def last_time(timestamp_ms: int) -> str:
    return second_text(timestamp_ms) if timestamp_ms > 0 else "N/A"


@command(example="mqadmin consumerProgress -n 127.0.0.1:9876 -g billing", watch=WATCH)
@option("-g", "--groupName", help="Group.  [a line for every group]")
@option(
    "-s",
    "--showClientIP",
    to="show_client_ip",
    type=bool,
    default=False,
    help="Show the client that consumes each queue.",
)
async def consumer_progress(admin: Admin, out: Output, group_name: str | None, show_client_ip: bool) -> None:
    """Show the backlog of a group queue by queue, or of all groups."""
    if group_name is None:
        out.heading(ALL_GROUPS)
        groups = await all_groups(admin)
        for group in out.steps(groups, "groups"):
            line = await group_progress(admin, group)
            out.row(
                ALL_GROUPS,
                (
                    line.group,
                    line.count,
                    line.version,
                    line.consume_type,
                    line.model,
                    round(line.consume_tps),
                    line.diff_total,
                ),
            )
        return
    stats = await admin.consume_stats(group_name)
    if not stats.offset_table:
        raise BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, NO_OFFSETS)
    owners = await queue_owners(admin, group_name) if show_client_ip else {}
    rows: list[tuple[object, ...]] = []
    for queue, offset in sorted(stats.offset_table.items()):
        row = (queue.topic, queue.broker_name, queue.queue_id, offset.broker_offset, offset.consumer_offset)
        diff, at = offset.broker_offset - offset.consumer_offset, last_time(offset.last_timestamp_ms)
        rows.append((*row, owners.get(queue, "N/A"), diff, at) if show_client_ip else (*row, diff, at))
    out.table(PROGRESS_WITH_IP if show_client_ip else PROGRESS, rows)
    out.line()
    out.line(f"Consume TPS: {stats.consume_tps:.2f}")
    out.line(f"Diff Total: {stats.total_diff}")
    out.record(consume_tps=stats.consume_tps, diff_total=stats.total_diff)


@command(example="mqadmin brokerConsumeStats -n 127.0.0.1:9876 -b 127.0.0.1:10911 -l 100", watch=WATCH)
@option("-b", "--brokerAddr", required=True, help="Broker, host:port.")
@option("-t", "--timeoutMillis", type=click.IntRange(1), default=50_000, show_default=True, help="Milliseconds.")
@option("-l", "--level", type=int, default=0, show_default=True, help="Show queues with at least this backlog.")
@option("-o", "--order", type=bool, default=False, show_default=True, help="Order topics only (true, false).")
async def broker_consume_stats(
    admin: Admin, out: Output, broker_addr: str, timeout_millis: int, level: int, order: bool
) -> None:
    """Show the backlog of all groups on a broker."""
    found = await admin.broker_consume_stats(broker_addr, is_order=order, timeout_s=timeout_millis / 1000)
    out.heading(BROKER_STATS)
    for by_group in found.consume_stats_list:
        for group, stats_of_topics in sorted(by_group.items()):
            for stats in stats_of_topics:
                for queue, offset in sorted(stats.offset_table.items()):
                    diff = offset.broker_offset - offset.consumer_offset
                    if diff >= level and (diff or offset.last_timestamp_ms > 0):  # not empty queues, as in Java
                        out.row(
                            BROKER_STATS,
                            (
                                queue.topic,
                                group,
                                queue.broker_name,
                                queue.queue_id,
                                offset.broker_offset,
                                offset.consumer_offset,
                                diff,
                                last_time(offset.last_timestamp_ms),
                            ),
                        )
    out.line()
    out.done(f"Diff Total: {found.total_diff}", diff_total=found.total_diff)


@command(example="mqadmin consumerStatus -n 127.0.0.1:9876 -g billing -s -i '10.0.0.21@4711#1'")
@option("-g", "--consumerGroup", required=True, help="Group.")
@option("-i", "--clientId", help="One member, printed in full.  [all: to files]")
@option("-b", "--brokerAddr", help="Ask through this broker.")
@option("-s", "--jstack", is_flag=True, help="With the stacks of its threads.")
async def consumer_status(
    admin: Admin, out: Output, consumer_group: str, client_id: str | None, broker_addr: str | None, jstack: bool
) -> int | None:
    """Show the state that a group's members report, and what looks wrong in it."""
    if client_id is not None:
        info = await admin.running_info(consumer_group, client_id, with_stack=jstack, address=broker_addr)
        out.done(running_info_text(info), client_id=client_id, properties=info.properties, jstack=info.jstack)
        return None
    now_ms = admin.instance.now_ms()
    directory = Path(str(now_ms))
    infos: dict[str, ConsumerRunningInfo] = {}
    connection = await admin.consumer_connection(consumer_group, broker_addr)
    members = sorted(connection.connection_set, key=lambda member: member.client_id)
    out.heading(MEMBERS)
    for index, member in enumerate(members, 1):
        try:
            info = await admin.running_info(consumer_group, member.client_id, with_stack=jstack, address=broker_addr)
        except RocketError as error:
            out.warn(f"{member.client_id}: {error}")
            continue
        infos[member.client_id] = info
        path = directory / (member.client_id if is_file_name(member.client_id) else f"member-{index}")
        await aio.in_thread(write_text, path, running_info_text(info) + "\n")
        out.row(MEMBERS, (index, member.client_id, version_name(member.version), path))
    analyse(out, infos, now_ms)
    return EXIT_PARTIAL if len(infos) < len(members) else None


def write_text(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def analyse(out: Output, infos: dict[str, ConsumerRunningInfo], now_ms: int) -> None:
    """Compare the members' subscriptions and look for stuck queues."""
    same = same_subscriptions(infos, now_ms)
    complaints = [
        text for client_id, info in sorted(infos.items()) for text in queue_complaints(client_id, info, now_ms)
    ]
    out.line()
    out.line()
    if same:
        out.line("Same subscription in the same group of consumer")
        out.line()
        out.line("Rebalance OK")
    else:
        out.line("WARN: Different subscription in the same group of consumer!!!")
    for complaint in complaints:
        out.line(complaint)
    out.record(same_subscriptions=same, complaints=complaints)


@command(example="mqadmin startMonitoring -n 127.0.0.1:9876", endless=lambda options: options["rounds"] is None)
@click.option("--interval", type=click.FloatRange(min=0.1), default=ROUND_S, show_default=True, help="Seconds.")
@click.option("--rounds", type=click.IntRange(1), help="End after so many rounds.  [endless]")
async def start_monitoring(admin: Admin, out: Output, interval: float, rounds: int | None) -> None:
    """Watch all groups: backlog, members that disagree, queues that do not move. Findings go to standard error."""
    monitor = Monitor(admin)
    done = 0
    while True:
        async with aclosing(monitor.round()) as findings:
            async for finding in findings:
                now = second_text(admin.instance.now_ms())
                if out.is_json:
                    out.record(time=now, kind=finding.kind, group=finding.group, text=finding.text)
                else:
                    out.warn(f"{now} {finding.kind} {finding.group}: {finding.text}")
        done += 1
        if done == rounds:
            return
        await aio.sleep(interval)
