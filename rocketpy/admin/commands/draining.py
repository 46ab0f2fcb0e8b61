"""drainBroker, a command of our own: take a broker out of service without stranding messages on it.

Producers turn away when they next ask for routes, every 30 s by default, and the broker takes their messages until
then: no send fails. Nothing stops the broker from here, since the protocol has no such request: the exit status tells a
script that it may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import click

from rocketpy import aio
from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError, ClientError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.sys_flag import PermName
from rocketpy.remoting.bodies.client import ConsumerConnection, ConsumeType, MessageModel
from rocketpy.remoting.bodies.offset import OffsetWrapper

from ..admin import Admin
from ..base import EXIT_PARTIAL, command, option
from ..output import Column, Output, Table
from .name_servers import known_broker, tell_write_perm

LOOK_S = 2.0
WIPE_AGAIN_S = 10.0  # a name server of the reference gives the permission back with each new topic
TOLD_S = 10.0
STATS_TIMEOUT_S = 50.0
NAMED_MAX = 20  # groups in a warning
GROUPS = Table((Column("Group", 64), Column("Members", 8), Column("Unread")))


@attrs.frozen
class Unread:
    """A group that has not read everything on the broker."""

    group: str
    members: int
    messages: int


@attrs.frozen
class Look:
    """Groups with unread messages, and groups whose offsets the broker may not know."""

    unread: list[Unread]
    unseen: list[str] = attrs.field(factory=list)


@command(example="mqadmin drainBroker -n 127.0.0.1:9876 -b broker-a --wait && systemctl stop rocketpy-broker")
@option("-b", "--brokerName", required=True, help="Broker name.")
@click.option("--wait", is_flag=True, help="Return when every group has read what is on the broker.")
@click.option(
    "--wait-seconds",
    type=click.FloatRange(min=0),
    default=600,
    show_default=True,
    help="With --wait: give up after this time, with status 3.",
)
@click.option(
    "--route-seconds",
    type=click.FloatRange(min=0),
    default=35,
    show_default=True,
    help="Seconds in which every producer asks for routes (pollNameServerInterval and a bit).",
)
@click.option("--online-only", is_flag=True, help="Do not wait for groups without a member.")
async def drain_broker(
    admin: Admin,
    out: Output,
    broker_name: str,
    wait: bool,
    wait_seconds: float,
    route_seconds: float,
    online_only: bool,
) -> int | None:
    """Turn producers away from a broker, and wait until consumers have read what is on it.

    Name servers of rocketpy keep its write permission wiped until it stops in order, or until addWritePerm. Those of
    RocketMQ give it back when a topic changes; --wait wipes it again.

    \b
    Exit status: 0 drained (without --wait: producers are turned away), 3 groups have unread messages, which are listed.
    A group of push consumers that is online and has no offset yet counts with all messages of its topics. Groups that
    pull without an offset, or broadcast, may keep their offsets themselves: if they are online, a warning names them.
    Delayed messages and open transactions stay.
    """
    await known_broker(admin, broker_name)
    tell_write_perm(out, "wipe", broker_name, await admin.wipe_write_perm(broker_name))
    if not wait:
        out.line(f"producers turn away from {broker_name} within {route_seconds:g} s")
        return None
    look = await _wait(admin, out, broker_name, wait_seconds, route_seconds, online_only)
    left = look.unread
    unread = sum(each.messages for each in left)
    if left:
        out.table(GROUPS, [(each.group, each.members, each.messages) for each in left])
        out.warn(f"{broker_name} is not drained: {unread} messages are unread after {wait_seconds:g} s")
    else:
        out.line(f"{broker_name} is drained: stop it now; addWritePerm takes this back")
    if look.unseen:
        more = f" and {len(look.unseen) - NAMED_MAX} more" if len(look.unseen) > NAMED_MAX else ""
        names = ", ".join(look.unseen[:NAMED_MAX])
        out.warn(f"groups without an offset on {broker_name} may not have read all: {names}{more}")
    out.record(broker_name=broker_name, drained=not left, unread=unread)
    return EXIT_PARTIAL if left else None


async def _wait(admin: Admin, out: Output, broker_name: str, wait_s: float, route_s: float, online_only: bool) -> Look:
    """Look until nothing is unread, and that was seen when all producers had turned away.

    Returns: the last look; it has the groups with unread messages when the time is over.
    Raises: RocketError: the broker has not answered since then, so nobody knows.
    """
    begun_s = wiped_s = looked_s = aio.now_s()
    told_s = float("-inf")
    failure: RocketError | None = None  # of the last look
    look = await _look(admin, broker_name, online_only)
    total = sum(each.messages for each in look.unread)
    with out.bar.task(f"unread on {broker_name}", total) as reached:
        while True:
            now_s, unread = aio.now_s(), sum(each.messages for each in look.unread)
            if not look.unread and looked_s - begun_s >= route_s:
                return look
            if now_s - begun_s >= max(wait_s, route_s):
                if look.unread:
                    return look
                if failure is not None:
                    raise failure
            reached(max(0, total - unread))
            if now_s - told_s >= TOLD_S:
                told_s = now_s
                out.line(f"{unread} messages unread by {len(look.unread)} groups")
            await aio.sleep(LOOK_S)
            look_s = aio.now_s()
            try:  # the next look counts; a broker that stays away ends the wait by its time
                if look_s - wiped_s >= WIPE_AGAIN_S:
                    wiped_s = look_s
                    await admin.wipe_write_perm(broker_name)
                look, looked_s, failure = await _look(admin, broker_name, online_only), look_s, None
            except RocketError as error:
                failure = error


async def _look(admin: Admin, broker_name: str, online_only: bool) -> Look:
    """Compare offsets with the broker's; when all are equal, look for online groups that have none."""
    address = (await known_broker(admin, broker_name)).master_addr
    if address is None:
        raise ClientError(f"no master of {broker_name} is registered: nobody can tell what is unread")
    found = []
    offsets_of = await _offsets(admin, address)
    for group, offsets in offsets_of.items():
        behind = sum(offset.lag for offset in offsets.values())
        members = await _members(admin, group, address) if behind else 0
        if behind and (members or not online_only):
            found.append(Unread(group, members, behind))
    return Look(found) if found else await _without_offset(admin, address, offsets_of)


async def _without_offset(admin: Admin, address: str, offsets_of: Mapping[str, Iterable[MessageQueue]]) -> Look:
    """Look for online groups without an offset in a topic with messages to which they subscribe.

    Push consumers commit one some seconds after their first pull, also if they start at the end. Pull consumers may
    keep their offsets elsewhere, and consumers that broadcast do.
    """
    found, unseen = [], []
    topics = await admin.topic_configs(address)
    counts: dict[str, int] = {}
    for group in await admin.group_configs(address):
        online = await _online(admin, group, address)
        if online is None:
            continue
        known = {queue.topic for queue in offsets_of.get(group, ())}
        messages = 0
        for topic in online.subscription_table.keys() & topics.keys() - known:
            if topics[topic].perm & PermName.READ:
                if topic not in counts:
                    stats = await admin.topic_stats(topic, address=address)
                    counts[topic] = sum(offset.max_offset - offset.min_offset for offset in stats.values())
                messages += counts[topic]
        if not messages:
            continue
        if online.consume_type is ConsumeType.CONSUME_PASSIVELY and online.message_model is MessageModel.CLUSTERING:
            found.append(Unread(group, len(online.connection_set), messages))
        else:
            unseen.append(group)
    return Look(found, unseen)


async def _offsets(admin: Admin, address: str) -> dict[str, dict[MessageQueue, OffsetWrapper]]:
    """Return the offsets of each group in every queue of the broker that is written to or read.

    RocketMQ answers GET_BROKER_CONSUME_STATS with the queues that are written to: after a smaller writeQueueNums
    messages are in others, which the statistics of a single group have.
    """
    stats = await admin.broker_consume_stats(address, is_order=False, timeout_s=STATS_TIMEOUT_S)
    found: dict[str, dict[MessageQueue, OffsetWrapper]] = {}
    for by_group in stats.consume_stats_list:
        for group, stats_of_topics in by_group.items():
            offsets = found.setdefault(group, {})
            for stats_of_topic in stats_of_topics:
                offsets |= stats_of_topic.offset_table
    topics = (await admin.topic_configs(address)).values()
    if any(topic.read_queue_nums > topic.write_queue_nums for topic in topics):
        for group, offsets in found.items():
            offsets |= (await admin.consume_stats(group, address=address)).offset_table
    return found


async def _members(admin: Admin, group: str, address: str) -> int:
    online = await _online(admin, group, address)
    return 0 if online is None else len(online.connection_set)


async def _online(admin: Admin, group: str, address: str) -> ConsumerConnection | None:
    """Return the members of a group and their subscriptions; None: it has no member at this broker."""
    try:
        return await admin.consumer_connection(group, address)
    except BrokerError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return None
