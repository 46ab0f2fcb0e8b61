"""The part of the snapshot for metrics that is by name: topics, groups in topics, online consumers.

The figures of the exporter are the statistics of the last minute (code 315); the lag of groups is from the last round
of the backlog monitor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import nlargest

from rocketpy.broker.managers import broker_stats
from rocketpy.broker.pulling.backlog import SYSTEM_GROUPS, Backlog, BacklogMonitor
from rocketpy.broker.services import BrokerServices
from rocketpy.codes import version_name
from rocketpy.metrics.snapshot import ConsumptionSnapshot, QueueSnapshot, TopicSnapshot
from rocketpy.remoting.bodies.client import ConsumeType, MessageModel
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.transport.steps import Steps

QUEUES_MAX = 10_000  # offsets of queues that one scrape shows
CONSUMERS_MAX = 10_000  # online consumers; beyond it none is shown
PRODUCER_GROUPS_MAX = 10_000  # that are shown, those that have had members for the longest time
KINDS_MAX = 10_000  # of online consumers; further ones are not shown
BEHIND_MAX = 1_000  # pairs of group and topic that are shown where there are too many for all


def topic_row(services: BrokerServices, topic: TopicConfig, ends: tuple[int, int]) -> TopicSnapshot:
    """Return the ends of a topic's queues together, and the traffic into it in the last minute."""
    low, high = ends
    return TopicSnapshot(
        topic=topic.topic_name,
        queues=topic.write_queue_nums,
        min_offset_sum=low,
        max_offset_sum=high,
        put_tps=services.stats.minute(broker_stats.TOPIC_PUT_NUMS, topic.topic_name).tps,
        put_bytes_tps=services.stats.minute(broker_stats.TOPIC_PUT_SIZE, topic.topic_name).tps,
        put_total=_total(services, broker_stats.TOPIC_PUT_NUMS, topic.topic_name),
        put_bytes_total=_total(services, broker_stats.TOPIC_PUT_SIZE, topic.topic_name),
        is_system=services.topics.is_system(topic.topic_name),
    )


async def queue_rows(services: BrokerServices, topics: Iterable[str], steps: Steps) -> list[QueueSnapshot]:
    """Return the queues of the topics, with the offsets of each group; at most QUEUES_MAX offsets."""
    found: list[QueueSnapshot] = []
    left = QUEUES_MAX
    for topic in dict.fromkeys(topics):
        await steps.did()
        if (config := services.topics.select(topic)) is None:
            continue
        offsets = {}
        for group in sorted(services.offsets.groups_of(topic)):
            offsets[group] = services.offsets.query_all(group, topic)
            await steps.did(1 + len(offsets[group]))
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            low, high = services.store.min_offset(topic, queue_id), services.store.max_offset(topic, queue_id)
            consumed = {group: queues[queue_id] for group, queues in offsets.items() if queue_id in queues}
            left -= 1 + len(consumed)
            if left < 0:
                return found
            found.append(
                QueueSnapshot(topic=topic, queue_id=queue_id, min_offset=low, max_offset=high, consumed=consumed)
            )
            await steps.did(2 + len(offsets))
    return found


def _total(services: BrokerServices, name: str, key: str) -> int:
    item = services.stats.item(name, key)
    return item.value if item else 0


async def consumption_rows(
    services: BrokerServices, backlog: BacklogMonitor, steps: Steps, *, is_small: bool = True
) -> list[ConsumptionSnapshot]:
    """Return the rows of groups that have offsets, and of groups that only read.

    Args:
        is_small: False: there are too many topics to show all; only the groups furthest behind are.
    """
    now_ms, shown = services.clock.now_ms(), set()
    found: list[ConsumptionSnapshot] = []
    shows_all = is_small and backlog.is_complete
    behind = (row for row in backlog.rows if row.messages)
    for row in backlog.rows if shows_all else nlargest(BEHIND_MAX, behind, key=lambda row: row.messages):
        found.append(_row(services, row.group, row.topic, row, now_ms))
        shown.add((row.group, row.topic))
        await steps.did(4)
    if not shows_all:
        return found
    for key in services.stats.keys(broker_stats.GROUP_GET_NUMS):
        topic, _, group = key.partition("@")
        if (group, topic) not in shown:
            found.append(_row(services, group, topic, None, now_ms))
        await steps.did()
    return found


def _row(services: BrokerServices, group: str, topic: str, backlog: Backlog | None, now_ms: int) -> ConsumptionSnapshot:
    stats, online, key = services.stats, services.consumers.group(group), f"{topic}@{group}"
    return ConsumptionSnapshot(
        group=group,
        topic=topic,
        consumer_offset_sum=backlog.consumed if backlog else None,
        lag_messages=backlog.messages if backlog else None,
        online_consumers=len(online.channels) if online else 0,
        is_broadcasting=online is not None and online.message_model is MessageModel.BROADCASTING,
        get_tps=stats.minute(broker_stats.GROUP_GET_NUMS, key).tps,
        get_bytes_tps=stats.minute(broker_stats.GROUP_GET_SIZE, key).tps,
        get_total=_total(services, broker_stats.GROUP_GET_NUMS, key),
        get_bytes_total=_total(services, broker_stats.GROUP_GET_SIZE, key),
        is_system=services.topics.is_system(topic) or group.startswith(SYSTEM_GROUPS),
        send_back_last_minute=stats.minute(broker_stats.SNDBCK_PUT_NUMS, key).sum,
        behind_bytes=stats.fall_size(group, topic),
        lag_ms=backlog.age_ms(now_ms) if backlog else None,
    )


async def online_consumers(services: BrokerServices, broker_addr: str, steps: Steps) -> list[tuple[str, str, str]]:
    """List (its address, ours, its group) of each online consumer; none if there are too many to show."""
    found: list[tuple[str, str, str]] = []
    for group in services.consumers.group_names:
        online = services.consumers.group(group)
        channels = online.member_channels if online else []
        if len(found) + len(channels) > CONSUMERS_MAX:
            return []
        found += [(str(channel.peer), broker_addr, group) for channel in channels]
        await steps.did(1 + len(channels))
    return found


async def producer_counts(services: BrokerServices, steps: Steps) -> dict[str, int]:
    """Return the members of each producer group. A client may name any number of groups by opening connections."""
    counts = {}
    for group in services.producers.group_names[:PRODUCER_GROUPS_MAX]:
        counts[group] = services.producers.member_count(group)
        await steps.did()
    return counts


async def clients_by_kind(
    services: BrokerServices, steps: Steps
) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str, str, str, bool]]]:
    """Count the producers by language and version, and the consumers also by group and by how they consume."""
    producers: Counter[tuple[str, str]] = Counter()
    consumers: Counter[tuple[str, str, str, str, bool]] = Counter()
    for group in services.producers.group_names:
        members = services.producers.members(group)
        producers.update((info.language.lower(), version_name(info.version).lower()) for info in members)
        await steps.did(1 + len(members))
    for group in services.consumers.group_names:
        if (online := services.consumers.group(group)) is None:
            continue
        mode = "pull" if online.consume_type is ConsumeType.CONSUME_ACTIVELY else "push"
        for info in list(online.channels.values()):
            language, version = info.language.lower(), version_name(info.version).lower()
            kind = group, language, version, mode, group.startswith(SYSTEM_GROUPS)
            if kind in consumers or len(consumers) < KINDS_MAX:
                consumers[kind] += 1
            await steps.did()
    return producers, consumers
