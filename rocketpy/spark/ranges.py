"""From the options to the offsets that a query reads: which queues there are, where it starts, where it ends."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping

import attrs

from rocketpy.errors import ConfigError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS

from .cluster import Bounds, Cluster
from .data_lost import DataLost, QueueGone, queue_text
from .offsets import EARLIEST, LATEST, Offsets
from .pulls import Slice
from .topic_options import TopicOptions

logger = logging.getLogger(__name__)

LITERAL = re.compile(r"[\w%\-|]+", re.ASCII)


def matching(pattern: re.Pattern[str], topics: Collection[str]) -> set[str]:
    """The topics whose whole name matches. Retry, dead letter and system topics must be named by the pattern itself."""
    names = {part for part in pattern.pattern.split("|") if LITERAL.fullmatch(part)}
    return {topic for topic in topics if pattern.fullmatch(topic) and (topic in names or not _is_special(topic))}


def _is_special(topic: str) -> bool:
    prefixes = (SYSTEM_TOPIC_PREFIX, RETRY_PREFIX.lower(), DLQ_PREFIX.lower())
    return topic in SYSTEM_TOPICS or topic.lower().startswith(prefixes)


@attrs.define(eq=False)
class Ranges:
    """Asks a cluster for what the options mean."""

    options: TopicOptions
    cluster: Cluster

    def queues(self) -> set[MessageQueue]:
        """The queues that are read.

        Raises:
            ConfigError: a topic or an assigned queue does not exist.
        """
        found, missing = self.existing(self.options.wait_for_topic_s)
        self.check(found, missing)
        return found

    def existing(self, wait_s: float) -> tuple[set[MessageQueue], set[str]]:
        """The queues that are read and exist, and the topics that do not exist, after waiting for them."""
        topics = self.options.topics
        if topics is None:
            assert self.options.subscribe_pattern is not None
            names = matching(self.options.subscribe_pattern, self.options.shown(self.cluster.topics()))
            topics = frozenset(map(self.options.known, names))
        found, missing = self.cluster.existing(topics, wait_s)
        return (found & self.options.assign if self.options.assign else found), missing

    def check(
        self, found: Collection[MessageQueue], missing: Collection[str], read: Collection[MessageQueue] = ()
    ) -> None:
        """Check that all topics and assigned queues exist.

        Args:
            read: queues in which the query has a position; these may have been deleted.
        Raises:
            ConfigError: one of the others does not exist.
        """
        if absent := set(missing) - {queue.topic for queue in read}:
            raise ConfigError(f"topic {min(absent)} does not exist (option waitForTopic waits for one)")
        if gone := self.options.assign - set(found) - set(read):
            raise ConfigError(f"{queue_text(min(gone))} does not exist", key="assign")

    def starts(self, bounds: Mapping[MessageQueue, Bounds], default: str) -> Offsets:
        """Return the offset at which reading starts in each queue. Raises ConfigError."""
        options = self.options
        if options.starting_ms is not None or options.starting_times is not None:
            return self._by_time(bounds)
        asked = options.starting if options.starting is not None else default
        if asked == "group":
            assert options.consumer_group is not None
            committed = self.cluster.committed(options.consumer_group, bounds)
            return {queue: bounds[queue].min_offset if at is None else at for queue, at in committed.items()}
        if isinstance(asked, str):
            asked = dict.fromkeys(bounds, EARLIEST if asked == "earliest" else LATEST)
        _check_known(asked, bounds, "startingOffsets")
        fallback = EARLIEST if default == "earliest" else LATEST
        return {queue: _resolve(asked.get(queue, fallback), bound) for queue, bound in bounds.items()}

    def _by_time(self, bounds: Mapping[MessageQueue, Bounds]) -> Offsets:
        options = self.options
        if options.starting_times is None:
            times = dict.fromkeys(bounds, options.starting_ms or 0)
        else:
            _check_known(options.starting_times, bounds, "startingOffsetsByTimestamp")
            times = {queue: max(0, options.starting_times.get(queue, 0)) for queue in bounds}
        starts = self._search(times, bounds)
        empty = sorted(queue for queue, at in starts.items() if at >= bounds[queue].max_offset)
        if empty and options.too_young == "error":
            queue = empty[0]
            raise ConfigError(
                f"{queue_text(queue)} has nothing stored at {times[queue]} or later; "
                "startingOffsetsByTimestampStrategy=latest lets such a queue start at its end"
            )
        return starts

    def _search(self, times_ms: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds]) -> Offsets:
        return self.cluster.search(times_ms, bounds, self.options.pull_settings.group)

    def ends(self, bounds: Mapping[MessageQueue, Bounds]) -> Offsets:
        """Return the offset at which a batch query ends in each queue. Raises ConfigError."""
        options = self.options
        latest = {queue: bound.max_offset for queue, bound in bounds.items()}
        if options.ending_ms is not None:
            return self._search(dict.fromkeys(bounds, options.ending_ms), bounds)
        if options.ending_times is not None:
            _check_known(options.ending_times, bounds, "endingOffsetsByTimestamp")
            times = {queue: time for queue, time in options.ending_times.items() if time >= 0}
            return {**latest, **self._search(times, bounds)}
        if isinstance(options.ending, dict):
            _check_known(options.ending, bounds, "endingOffsets")
            return {queue: _resolve(options.ending.get(queue, LATEST), bound) for queue, bound in bounds.items()}
        return latest


def check_order(options: TopicOptions, starts: Offsets, ends: Offsets) -> None:
    """Check that a query does not end before it starts, by offsets that its options name.

    Raises:
        ConfigError: it does in some queue, which no message is the right answer to.
    """
    named = options.ending if isinstance(options.ending, dict) else {}
    by_time = options.starting_ms is not None or options.starting_times is not None
    is_default = options.starting in (None, "earliest") and not by_time
    for queue, start in sorted(starts.items()):
        if named.get(queue, LATEST) >= 0 and start > ends[queue] and not is_default:
            raise ConfigError(
                f"{queue_text(queue)} would be read from offset {start} on, beyond its endingOffsets {ends[queue]}",
                key="startingOffsets",
            )


def _check_known(offsets: Collection[MessageQueue], bounds: Mapping[MessageQueue, Bounds], key: str) -> None:
    if unknown := set(offsets) - set(bounds):
        queue = min(unknown)
        raise ConfigError(f"{queue_text(queue)} is not among those read", key=key)


def _resolve(offset: int, bound: Bounds) -> int:
    return {EARLIEST: bound.min_offset, LATEST: bound.max_offset}.get(offset, offset)


def slice_within(queue: MessageQueue, begin: int, end: int, bound: Bounds | None, *, fail: bool) -> Slice | None:
    """The part of [begin, end) that is there; None if nothing is to be read.

    Args:
        bound: what the broker has; None if it does not have the queue any more.
        fail: whether missing messages are an error.
    Raises:
        DataLost, QueueGone: some are missing, with `fail`.
    """
    if begin >= end:
        return None
    if bound is None and fail:
        raise QueueGone(queue, begin)
    bound = bound or Bounds(0, 0)
    low, high = max(begin, bound.min_offset), min(end, bound.max_offset)
    if (low, high) != (begin, end):
        if fail:
            wanted = end - 1 if begin == low < high else begin
            raise DataLost(queue, wanted, bound.min_offset, bound.max_offset)
        lost = (end - begin) - max(0, high - low)
        logger.warning(
            "queue %d of topic %s on %s: %d of the offsets %d to %d are not there any more; going on with the others",
            *(queue.queue_id, queue.topic, queue.broker_name, lost, begin, end),
        )
    return Slice(queue, low, high) if low < high else None
