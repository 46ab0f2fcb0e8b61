"""Offsets of groups: reset, skip, clone."""

from __future__ import annotations

import click

from ..admin import Admin
from ..base import command, option
from ..core import TO_THE_END, NotFound
from ..offsets import clone_offsets, reset_offline, reset_online
from ..output import Column, Output, Table, parse_time_ms

RESET = Table((Column("brokerName", 40), Column("queueId", 40), Column("offset", 40)))
RESET_OFFLINE = Table(
    tuple(
        Column(title, 20)
        for title in ("brokerName", "queueId", "brokerOffset", "consumerOffset", "timestampOffset", "rollbackOffset")
    )
)


async def reset(
    admin: Admin, out: Output, group: str, topic: str, timestamp_ms: int, force: bool, *, timestamp: str | None = None
) -> None:
    """Move an online group through its brokers, an offline one by writing offsets; print what happened.

    Args:
        timestamp: the time as it was given, to be repeated.
    """
    given = (
        f"[{group}], topic[{topic}], force[{str(force).lower()}], "
        f"timestamp(string)[{timestamp}], timestamp(long)[{timestamp_ms}]"
    )
    moved = await reset_online(admin, group, topic, timestamp_ms, force=force)
    if moved is not None:
        if timestamp is not None:
            out.line(f"rollback consumer offset by specified group{given}")
        rows = [(queue.broker_name, queue.queue_id, offset) for queue, offset in sorted(moved.items())]
        out.table(RESET, rows)
        return
    rollbacks = await reset_offline(admin, group, topic, timestamp_ms, force=force)
    if not rollbacks:
        raise NotFound(f"group {group} is offline and has no offset in topic {topic}")
    if timestamp is not None:
        out.line(f"rollback consumer offset by specified consumerGroup{given}")
    out.table(
        RESET_OFFLINE,
        [
            (
                one.queue.broker_name,
                one.queue.queue_id,
                one.broker_offset,
                one.consumer_offset,
                one.timestamp_offset,
                one.rollback_offset,
            )
            for one in rollbacks
        ],
    )


@command(
    example="mqadmin resetOffsetByTime -n 127.0.0.1:9876 -g billing -t OrderTopic -s 2024-03-01#10:00:00:000",
    destructive="Move group {group} in topic {topic} to {timestamp}?",
)
@option("-g", "--group", required=True, help="Group.")
@option("-t", "--topic", required=True, help="Topic.")
@option("-s", "--timestamp", required=True, help="`now` (the end), ms, or yyyy-MM-dd#HH:mm:ss:SSS.")
@option("-f", "--force", type=bool, default=True, show_default=True, help="Also move forwards (true, false).")
@option("-c", "--cplus", is_flag=True, help="The members are C++ clients; accepted, brokers tell every language.")
async def reset_offset_by_time(
    admin: Admin, out: Output, group: str, topic: str, timestamp: str, force: bool, cplus: bool
) -> None:
    """Move a group to the first message stored at or after a time."""
    try:
        timestamp_ms = parse_time_ms(timestamp)
    except ValueError:
        raise click.BadParameter(f"-s {timestamp!r} is neither now, ms, nor yyyy-MM-dd#HH:mm:ss:SSS") from None
    await reset(admin, out, group, topic, timestamp_ms, force, timestamp=timestamp)


@command(
    example="mqadmin skipAccumulatedMessage -n 127.0.0.1:9876 -g billing -t OrderTopic",
    destructive="Skip all messages that group {group} has not consumed of topic {topic}?",
)
@option("-g", "--group", required=True, help="Group.")
@option("-t", "--topic", required=True, help="Topic.")
@option("-f", "--force", type=bool, default=True, show_default=True, help="Accepted for compatibility.")
async def skip_accumulated_message(admin: Admin, out: Output, group: str, topic: str, force: bool) -> None:
    """Move a group to the end of a topic: what it has not consumed is skipped."""
    await reset(admin, out, group, topic, TO_THE_END, force)


@command(example="mqadmin cloneGroupOffset -n 127.0.0.1:9876 -s billing -d billing2 -t OrderTopic")
@option("-s", "--srcGroup", required=True, help="Group to copy from.")
@option("-d", "--destGroup", required=True, help="Group to copy to.")
@option("-t", "--topic", required=True, help="A topic of the group; must exist. All of its topics are copied.")
@option("-o", "--offline", type=bool, default=False, help="Accepted for compatibility.")
async def clone_group_offset(
    admin: Admin, out: Output, src_group: str, dest_group: str, topic: str, offline: bool
) -> None:
    """Give a group the offsets that another has, in all of its topics."""
    await admin.route(topic)
    copied = await clone_offsets(admin, src_group, dest_group)
    if not copied:
        raise NotFound(f"group {src_group} has no offset in any topic")
    out.done(
        f"clone group offset success. srcGroup[{src_group}], destGroup=[{dest_group}], topic[{topic}]",
        src_group=src_group,
        dest_group=dest_group,
        topic=topic,
        queues=len(copied),
    )
