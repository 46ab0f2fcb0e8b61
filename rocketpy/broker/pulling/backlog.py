"""The backlog of the groups: by topic, the messages that are not consumed yet, and the age of the oldest of them.

A round goes through all groups in steps, so that it holds up nobody. If a group's backlog in a topic exceeds
backlogAlarmMessages or backlogAlarmAgeMillis, a line in the log tells it, and metrics count it. Broadcasting groups
commit nothing: only their members know their offsets.

Groups that read far behind the end of the log can be switched off (SlowReaders).
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from heapq import heapify, heappushpop

import attrs
import trio

from rocketpy.logs import LogLimit
from rocketpy.remoting.json_writer import in_order
from rocketpy.transport.steps import Steps

from ..clock import Clock
from ..current_settings import CurrentSettings
from ..managers.broker_stats import BrokerStatsManager
from ..managers.config_file import evolved
from ..managers.consumer_offset import ConsumerOffsetManager
from ..managers.subscription_group import SubscriptionGroupManager
from ..managers.topic_config import TopicConfigManager
from ..store_api import Store

logger = logging.getLogger(__name__)

ROWS_MAX = 10_000  # pairs of group and topic whose figures are kept, those furthest behind; alarms are raised for all
READS_PER_STEP = 100  # queues whose ends are read
STAMP_READS = 20  # a store time is read from two files: it counts as so many
LOG_INTERVAL_S = 300.0
SLOW_READERS_S = 180.0  # as in the reference: three minutes to catch up after an operator has switched it on again
ROWS_PER_STEP = 500
SYSTEM_GROUPS = "CID_RMQ_SYS_"


@attrs.frozen
class Backlog:
    """One group in one topic: sums over the queues in which it has an offset."""

    group: str
    topic: str
    consumed: int  # sum of the committed offsets
    messages: int  # stored and not consumed
    oldest_ms: int | None = None  # store time of the oldest of them; None: there is none, or it cannot be read

    def age_ms(self, now_ms: int) -> int:
        """Return the time for which the oldest message has waited; 0 if there is none."""
        return 0 if self.oldest_ms is None else max(0, now_ms - self.oldest_ms)


@attrs.define(eq=False)
class BacklogMonitor:
    """Owner of the figures of the last whole round. Call in one trio thread."""

    settings: CurrentSettings
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    store: Store
    clock: Clock
    rows: list[Backlog] = attrs.field(init=False, factory=list)
    is_complete: bool = attrs.field(init=False, default=True)  # False: there are more than ROWS_MAX
    alarms: int = attrs.field(init=False, default=0)  # pairs beyond a bound
    _oldest: dict[tuple[str, str], tuple[int, int, int]] = attrs.field(init=False, factory=dict)
    """Queue, offset and store time of the oldest message of the last round: a group that stands still costs no read."""
    _looked_ms: int | None = attrs.field(init=False, default=None)
    _lock: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    _log_limit: LogLimit = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._log_limit = LogLimit(LOG_INTERVAL_S, lambda: self.clock.monotonic_ms() / 1000)

    async def look(self, max_age_s: float = 0.0, steps: Steps | None = None) -> None:
        """Go through all groups, unless that was done in the last `max_age_s` seconds."""
        steps = Steps(READS_PER_STEP) if steps is None else steps
        async with steps.turn(self._lock):
            now_ms = self.clock.monotonic_ms()
            if self._looked_ms is not None and now_ms - self._looked_ms < max_age_s * 1000:
                return
            rows: list[tuple[int, int, Backlog]] = []  # with messages and a number, so that they can be a heap
            count = 0
            worst: tuple[float, Backlog] | None = None
            alarms = 0
            found: dict[tuple[str, str], tuple[int, int, int]] = {}
            for group in list(self.groups.groups):
                if group.startswith(SYSTEM_GROUPS):
                    continue
                for topic in in_order(self.offsets.topics_of(group)):
                    row = await self._row(group, topic, found, steps)
                    excess = self._excess(row)
                    if excess > 1:
                        alarms += 1
                        worst = (excess, row) if worst is None or excess > worst[0] else worst
                    count += 1
                    if count <= ROWS_MAX:
                        rows.append((row.messages, -count, row))
                        if count == ROWS_MAX:
                            heapify(rows)
                    else:
                        heappushpop(rows, (row.messages, -count, row))
                await steps.did()
            self.is_complete = count <= ROWS_MAX
            self.rows, self._oldest = [row for _, _, row in rows], found
            self._alarm(alarms, worst[1] if worst else None)
            self._looked_ms = self.clock.monotonic_ms()

    async def _row(
        self, group: str, topic: str, found: dict[tuple[str, str], tuple[int, int, int]], steps: Steps
    ) -> Backlog:
        offsets = self.offsets.query_all(group, topic)
        behind = await self._behind(topic, offsets, steps)
        oldest = await self._oldest_of(group, topic, behind, steps)
        if oldest is not None and len(found) < ROWS_MAX:
            found[group, topic] = oldest
        messages = sum(count for _, count in behind.values())
        return Backlog(group, topic, sum(offsets.values()), messages, oldest[2] if oldest else None)

    async def _behind(self, topic: str, offsets: Mapping[int, int], steps: Steps) -> dict[int, tuple[int, int]]:
        """Queue id -> (offset of the first message that is not consumed, how many there are), of queues with some."""
        found = {}
        for queue_id, offset in offsets.items():
            low, high = self.store.bounds(topic, queue_id)
            first = max(offset, low)
            count = high - first
            if count > 0 and self.topics.select(topic) is not None:
                found[queue_id] = first, count
            await steps.did()
        return found

    async def _oldest_of(
        self, group: str, topic: str, behind: Mapping[int, tuple[int, int]], steps: Steps
    ) -> tuple[int, int, int] | None:
        """Return queue, offset and store time of the oldest message: the message that lies first in the log."""
        first: tuple[int, int, int] | None = None
        for queue_id, (offset, _) in behind.items():
            units = self.store.consume_queue_units(topic, queue_id, offset, 1)
            if units and (first is None or units[0].phy_offset < first[0]):
                first = units[0].phy_offset, queue_id, offset
            await steps.did()
        if first is None:
            return None
        _, queue_id, offset = first
        known = self._oldest.get((group, topic))
        if known is not None and known[:2] == (queue_id, offset):
            return known
        await steps.did(STAMP_READS)
        stored_ms = self.store.message_store_timestamp(topic, queue_id, offset)
        return (queue_id, offset, stored_ms) if stored_ms >= 0 else None

    def _excess(self, row: Backlog) -> float:
        """Return the larger ratio of the row's figures to their bounds; more than 1 is an alarm."""
        bounds = self.settings.rocketpy
        return max(
            row.messages / bounds.backlog_alarm_messages if bounds.backlog_alarm_messages else 0.0,
            row.age_ms(self.clock.now_ms()) / bounds.backlog_alarm_age_millis
            if bounds.backlog_alarm_age_millis
            else 0.0,
        )

    def _alarm(self, alarms: int, worst: Backlog | None) -> None:
        had, self.alarms = self.alarms, alarms
        if worst is not None and self._log_limit.take():
            logger.warning(
                "group %s is behind in topic %s: %d messages are not consumed, the oldest is %d s old; %d other pairs "
                "of group and topic are beyond backlogAlarmMessages or backlogAlarmAgeMillis as well. Add consumers, "
                "or look for one that hangs: mqadmin consumerProgress -g %s",
                worst.group,
                worst.topic,
                worst.messages,
                worst.age_ms(self.clock.now_ms()) // 1000,
                alarms - 1,
                worst.group,
            )
        elif had and not alarms:
            logger.info("no group is behind any more (backlogAlarmMessages, backlogAlarmAgeMillis)")


@attrs.frozen(eq=False)
class SlowReaders:
    """Switches off consumer groups that read far behind the end of the log: from the disk, to the harm of all others.
    Call `switch_off_slow_groups` each SLOW_READERS_S.

    Only with disableConsumeIfConsumerReadSlowly. A group that is off stays so until somebody switches it on again
    (`mqadmin updateSubGroup -c CLUSTER -g GROUP -s true`).

    Source: RocketMQ 4.9 `BrokerController#protectBroker`, `SubscriptionGroupManager#disableConsume`.
    """

    settings: CurrentSettings
    groups: SubscriptionGroupManager
    stats: BrokerStatsManager

    def switch_off_slow_groups(self) -> Generator[None, None, None]:
        """Switch off each group whose last message lay too far behind in one of its queues. Work in steps."""
        config = self.settings.broker
        if not config.disable_consume_if_consumer_read_slowly:
            return
        for number, (topic, name, behind) in enumerate(self.stats.fall_sizes(), 1):
            group = self.groups.select(name)
            if behind > config.consumer_fallbehind_threshold and group is not None and group.consume_enable:
                self.groups.update(evolved(group, consume_enable=False))
                logger.warning(
                    "switched off consumer group %s: in topic %s it reads %d bytes behind the end of the log, more "
                    "than consumerFallbehindThreshold (%d); `mqadmin updateSubGroup -c %s -g %s -s true` switches it "
                    "on again",
                    name,
                    topic,
                    behind,
                    config.consumer_fallbehind_threshold,
                    config.broker_cluster_name,
                    name,
                )
            if number % ROWS_PER_STEP == 0:
                yield
