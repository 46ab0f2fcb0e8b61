"""Progress of groups and state of their members: values for consumerProgress, consumerStatus and statsAll.

Source: RocketMQ 4.9 `ConsumerProgressSubCommand`, `ConsumerRunningInfo#analyzeProcessQueue`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import attrs

from rocketpy.codes import ResponseCode, version_name
from rocketpy.errors import BrokerError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import RETRY_PREFIX, is_retry_topic
from rocketpy.message.numbers import long_or
from rocketpy.remoting.bodies.client import ConsumerConnection, ConsumerRunningInfo
from rocketpy.remoting.bodies.offset import ConsumeStats

from .admin import Admin
from .java_text import process_queue_text

YOUNG_MS = 2 * 60 * 1000  # members this young may not have the same subscriptions yet
BLOCKED_MS = 60 * 1000  # nothing consumed for this long, although there are messages


@attrs.frozen
class GroupProgress:
    """One line of the list of all groups. A group without members is OFFLINE."""

    group: str
    count: int
    version: str
    consume_type: str
    model: str
    consume_tps: float
    diff_total: int


async def group_progress(admin: Admin, group: str) -> GroupProgress:
    """A group's backlog and members; unknown values count as zero."""
    stats = ConsumeStats()
    connection: ConsumerConnection | None = None
    with suppress(RocketError):  # without a retry topic
        stats = await admin.consume_stats(group)
    with suppress(RocketError):  # offline
        connection = await admin.consumer_connection(group)
    members = connection.connection_set if connection is not None else []
    consume_type = "" if connection is None else "PULL" if connection.consume_type == "CONSUME_ACTIVELY" else "PUSH"
    return GroupProgress(
        group=group,
        count=len(members),
        version=version_name(min(member.version for member in members)) if members else "OFFLINE",
        consume_type=consume_type,
        model="" if connection is None or consume_type == "PULL" else str(connection.message_model or ""),
        consume_tps=stats.consume_tps,
        diff_total=stats.total_diff,
    )


async def all_groups(admin: Admin) -> list[str]:
    """Every group that has a retry topic: groups that only broadcast are not among them."""
    return [topic.removeprefix(RETRY_PREFIX) for topic in await admin.topics() if is_retry_topic(topic)]


async def queue_owners(admin: Admin, group: str) -> dict[MessageQueue, str]:
    """Queue -> address part of the client id that consumes it, as the members report; empty when none is online."""
    owners: dict[MessageQueue, str] = {}
    try:
        members = (await admin.consumer_connection(group)).connection_set
    except BrokerError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        members = []
    for member in members:
        try:
            info = await admin.running_info(group, member.client_id)
        except RocketError:
            continue  # gone since, or too slow: its queues show no address
        owners |= dict.fromkeys(info.mq_table, member.client_id.partition("@")[0])
    return owners


def same_subscriptions(infos: Mapping[str, ConsumerRunningInfo], now_ms: int) -> bool:
    """Return True if all members have the same subscriptions. Young groups and pull groups get the benefit of the
    doubt."""
    if not infos:
        return True
    first = infos[min(infos)]
    if first.properties.get("PROP_CONSUME_TYPE") != "CONSUME_PASSIVELY":
        return True
    started = first.properties.get("PROP_CONSUMER_START_TIMESTAMP", "")
    if now_ms - long_or(started, 0) < YOUNG_MS:
        return True
    sets = {
        frozenset((data.topic, data.sub_string, data.expression_type) for data in info.subscription_set)
        for info in infos.values()
    }
    return len(sets) == 1 and bool(first.subscription_set)


def queue_complaints(client_id: str, info: ConsumerRunningInfo, now_ms: int) -> list[str]:
    """Problems of a member's queues; empty if there are none."""
    ordered = info.properties.get("PROP_CONSUMEORDERLY") == "true"
    if info.properties.get("PROP_CONSUME_TYPE") != "CONSUME_PASSIVELY":
        return []
    complaints = []
    for queue, state in sorted(info.mq_table.items()):
        if ordered and not state.locked:
            complaints.append(f"{client_id} {queue} can't lock for a while, last lock {state.last_lock_timestamp_ms}")
        elif ordered and state.dropped and state.try_unlock_times > 0:
            complaints.append(f"{client_id} {queue} unlock {state.try_unlock_times} times, still failed")
        elif not ordered and state.cached_msg_count > 0 and now_ms - state.last_consume_timestamp_ms > BLOCKED_MS:
            blocked_ms = now_ms - state.last_consume_timestamp_ms
            complaints.append(f"{client_id} {queue} can't consume for a while, maybe blocked, {blocked_ms}ms")
    return complaints


def running_info_text(info: ConsumerRunningInfo) -> str:
    """The sections of a member's account, as Java prints them: properties, subscriptions, offsets, queues, rates."""
    lines = ["#Consumer Properties#"]
    lines += [f"{key:<40}: {value}" for key, value in sorted(info.properties.items())]
    lines += ["", "", "#Consumer Subscription#"]
    lines += [
        f"{number:03d} Topic: {data.topic:<40} ClassFilter: {str(data.class_filter_mode).lower():<8} "
        f"SubExpression: {data.sub_string}"
        for number, data in enumerate(info.subscription_set, 1)
    ]
    heading = f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  {'#Consumer Offset':<20}"
    lines += ["", "", "#Consumer Offset#", heading]
    queues = sorted(info.mq_table.items())
    lines += [f"{q.topic:<32}  {q.broker_name:<32}  {q.queue_id:<4}  {s.commit_offset:<20}" for q, s in queues]
    queue_heading = f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}"
    lines += ["", "", "#Consumer MQ Detail#", f"{queue_heading}  #ProcessQueueInfo"]
    lines += [f"{q.topic:<64}  {q.broker_name:<32}  {q.queue_id:<4}  {process_queue_text(s)}" for q, s in queues]
    rates = ("#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS", "#ConsumeFailedMsgsInHour")
    lines += ["", "", "#Consumer RT&TPS#", f"{'#Topic':<64}  " + rates_line(rates)]
    for topic, status in sorted(info.status_table.items()):
        figures: Sequence[float] = (
            status.pull_rt_ms,
            status.pull_tps,
            status.consume_rt_ms,
            status.consume_ok_tps,
            status.consume_failed_tps,
        )
        cells = [f"{figure:.2f}" for figure in figures] + [str(status.consume_failed_msgs)]
        lines.append(f"{topic:<32}  " + rates_line(cells))  # narrower than the heading, as in Java
    if info.jstack:
        lines += ["", "", "#Consumer jstack#", info.jstack]
    return "\n".join(lines)


def rates_line(cells: Sequence[str]) -> str:
    return " ".join(cell.rjust(width) for cell, width in zip(cells, (14, 14, 14, 14, 18, 25), strict=True))
