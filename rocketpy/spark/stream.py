"""The streaming side of the source `rocketmq`.

Spark asks in the driver where a batch should end (latestOffset) and which tasks read it (partitions), and keeps ends
in the query's checkpoint. A restarted query reads the ranges in its checkpoint again: queue offsets make it exact. The
limits of a batch are the share of each queue, and the smallest backlog for which a batch is begun.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from rocketpy.errors import RocketError
from rocketpy.message.message_queue import MessageQueue

from .cluster import CLUSTERS, Bounds
from .data_lost import DataLost, QueueGone, TopicRemade
from .first_messages import Comparison, compare, place_of
from .offsets import Document, Firsts, Offsets, begin_of
from .planning import MESSAGE_BYTES
from .pulls import Slice
from .ranges import Ranges, slice_within
from .slices import mean_message_bytes, partitions_of, read_partition
from .topic_options import TopicOptions
from .worker import reason_first

logger = logging.getLogger(__name__)


def share(backlog: Mapping[MessageQueue, int], total: int | None) -> dict[MessageQueue, int]:
    """Return the number of messages of each queue that a batch takes: in proportion to the backlog, but at least one of
    each queue that has any, so that a small queue never waits for a large one. The sum may exceed `total` by this
    minimum."""
    waiting = sum(backlog.values())
    if total is None or waiting <= total:
        return dict(backlog)
    shares = {queue: max(min(count, 1), count * total // waiting) for queue, count in backlog.items()}
    left = total - sum(shares.values())
    if left <= 0:
        return shares
    for queue in sorted(backlog, key=lambda queue: (-(backlog[queue] * total % waiting), queue)):
        if left <= 0:
            break
        if shares[queue] < backlog[queue]:
            shares[queue] += 1
            left -= 1
    return shares


@attrs.define(eq=False)
class MinimumBatch:
    """Holds batches back until `count_min` messages wait or `delay_s` has passed since the last batch."""

    count_min: int | None
    delay_s: float
    clock: Callable[[], float]
    _last_s: float | None = None

    def allows(self, waiting: int, *, always: bool) -> bool:
        """Return True if a batch may begin now. With `always` the minimum does not count."""
        now_s = self.clock()
        if self._last_s is None:
            self._last_s = now_s
        if not always and self.count_min is not None:
            if waiting < self.count_min and now_s - self._last_s < self.delay_s:
                return False
            if not waiting:
                return False
        self._last_s = now_s
        return True


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's source in the driver; its `read` runs in executors. Nothing is connected before it is used."""

    def __init__(
        self, options: TopicOptions, columns: tuple[str, ...], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = options
        self.columns = columns
        self._clock = clock
        self._initial: Document | None = None
        self._targets: Offsets | None = None  # of availableNow
        self._queues: set[MessageQueue] = set()
        self._missing: set[str] | None = None  # topics that do not exist; None: not looked for yet
        self._bounds: dict[MessageQueue, Bounds] = {}
        self._compared: tuple[Firsts, Comparison] | None = None  # of this discovery
        self._told: set[MessageQueue] = set()  # that these are passed over
        self._discovered_s = float("-inf")
        self._message_bytes: int | None = None
        self._minimum = MinimumBatch(options.offsets_min, options.trigger_delay_s, clock)

    @property
    def _ranges(self) -> Ranges:
        return Ranges(self.options, CLUSTERS.get(self.options.client_options()))

    # --- what Spark asks ----------------------------------------------------------------------------------------------

    @reason_first()
    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which a new query begins. Spark asks twice, and again after a crash in the first batch;
        `from` in the end offset of that batch then holds its beginning."""
        if self._initial is None:
            bounds = self._refresh()
            self._ranges.check(self._queues, self._missing or ())
            starts = self._ranges.starts(bounds, "latest")
            self._initial = Document(starts, is_initial=True)
        return self._initial.encode()

    def getDefaultReadLimit(self) -> ReadLimit:
        """One of the limits that are set: Spark takes one. latestOffset applies all of them."""
        options = self.options
        if options.offsets_max is not None:
            return ReadMaxRows(options.offsets_max)
        if options.trigger_bytes_max is not None:
            return ReadMaxBytes(options.trigger_bytes_max)
        return ReadAllAvailable() if options.offsets_min is None else ReadMinRows(options.offsets_min)

    @reason_first()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offsets at which the batch after `start` ends; `start` itself if there is nothing new."""
        begin = Document.decode(start)
        bounds = self._refresh_for(begin)
        comparison = self._compare(begin.firsts)
        latest = {queue: bound.max_offset for queue, bound in bounds.items()}
        if self._targets is not None:
            latest = {queue: min(at, latest[queue]) for queue, at in self._targets.items() if queue in latest}
        known = {queue: at for queue, at in begin.ends.items() if not begin.is_initial or queue in latest}
        known = self._checked(self._begun_anew(known, comparison), bounds)
        begins = {q: known[q] if q in known else self._first_of(q, begin, comparison) for q in latest}
        backlog = {queue: max(0, latest[queue] - begins[queue]) for queue in latest}
        granted = share(backlog, self._count_max(limit, backlog, begins))
        is_unlimited = isinstance(limit, ReadAllAvailable) or self._targets is not None
        if not begin.is_initial and not self._minimum.allows(sum(backlog.values()), always=is_unlimited):
            return start
        ends = {**known, **{queue: begins[queue] + count for queue, count in granted.items()}}
        is_all_new = begin.is_initial
        new = {
            queue: at
            for queue, at in begins.items()
            if is_all_new or queue not in begin.ends or comparison.is_remade(queue)
        }
        if not is_all_new and ends == begin.ends and not comparison.remade:
            return start
        return Document(ends, begins=new, firsts=comparison.firsts).encode()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the maximum offsets of the brokers, which the query's progress shows as its lag."""
        return Document({queue: bound.max_offset for queue, bound in self._bounds.items()}).encode()

    @reason_first()
    def prepareForTriggerAvailableNow(self) -> None:
        """The query reads what is there now; messages and queues that come later wait for the next run."""
        self._targets = {queue: bound.max_offset for queue, bound in self._refresh().items()}

    @reason_first()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, last = Document.decode(start), Document.decode(end)
        bounds = self._bounds_of(last.ends)
        comparison = self._compare(last.firsts)
        slices = []
        for queue, stop in last.ends.items():
            if comparison.is_remade(queue) and self.options.fail_on_data_loss:
                raise TopicRemade(queue, stop)
            if comparison.is_remade(queue):
                logger.warning("%s: the batch up to %d was of a topic that was deleted; nothing is read", queue, stop)
                continue
            begin = begin_of(queue, first, last)
            if begin is None:  # a queue of a checkpoint that does not say where it began
                begin = bounds[queue].min_offset if queue in bounds else stop
            if begin > stop:
                logger.warning("%s: the batch ends at %d, before its start %d; nothing is read", queue, stop, begin)
            found = slice_within(queue, begin, stop, bounds.get(queue), fail=self.options.fail_on_data_loss)
            slices += [found] if found is not None else []
        return partitions_of(self.options, slices, self._mean_bytes(slices))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(self.options, self.columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done. Spark says so when the next one begins, and never of the last one."""
        if not self.options.commit_to_group or self.options.consumer_group is None:
            return
        try:
            CLUSTERS.get(self.options.client_options()).commit(self.options.consumer_group, Document.decode(end).ends)
        except RocketError as error:
            logger.warning("cannot report progress to group %s: %s", self.options.consumer_group, error)

    # --- what brokers have --------------------------------------------------------------------------------------------

    def _refresh(self) -> dict[MessageQueue, Bounds]:
        """The offsets of all queues now. New queues and minimums are asked for every discoveryInterval."""
        if self._clock() - self._discovered_s >= self.options.discovery_s:
            self._discover()
        else:
            maxima = self._ranges.cluster.max_offsets(self._queues)
            self._bounds = {queue: Bounds(self._bounds[queue].min_offset, at) for queue, at in maxima.items()}
        return self._bounds

    def _discover(self) -> None:
        """Look for queues. A topic that does not exist is waited for the first time only: later it was deleted."""
        wait_s = self.options.wait_for_topic_s if self._missing is None else 0.0
        self._queues, self._missing = self._ranges.existing(wait_s)
        self._bounds = self._ranges.cluster.bounds(self._queues)
        self._discovered_s = self._clock()
        self._compared = None

    def _refresh_for(self, begin: Document) -> dict[MessageQueue, Bounds]:
        """The offsets of all queues now. If a queue ends before its position, look for queues at once: its topic may
        have been deleted.

        Raises:
            ConfigError: a topic or an assigned queue does not exist, and the query has no position in it.
        """
        bounds = self._refresh()
        if any(queue in bounds and at > bounds[queue].max_offset for queue, at in begin.ends.items()):
            self._discover()
        self._ranges.check(self._queues, self._missing or (), begin.ends)
        return self._bounds

    def _compare(self, kept: Firsts) -> Comparison:
        """Compare first messages of a checkpoint with those that are there, once after each discovery."""
        if self._compared is not None:
            before, comparison = self._compared
            if kept == before:
                return comparison
            if kept == comparison.firsts:
                return Comparison(kept)
        comparison = compare(kept, self._bounds, self._ranges.cluster, self.options.pull_settings.group)
        self._compared = (kept, comparison)
        for topic, broker in sorted(comparison.remade):
            logger.warning("topic %s on %s was deleted and made again since the checkpoint", topic, broker)
        return comparison

    def _bounds_of(self, queues: Mapping[MessageQueue, int]) -> dict[MessageQueue, Bounds]:
        """Return the known bounds; ask the brokers if these do not cover `queues`, as in a restarted query."""
        if any(queue not in self._bounds or self._bounds[queue].max_offset < end for queue, end in queues.items()):
            self._discover()
        return self._bounds

    def _begun_anew(self, known: Offsets, comparison: Comparison) -> Offsets:
        """The positions of the query; in topics that were made again those of the first messages.

        Raises:
            TopicRemade: there is such a topic, with failOnDataLoss.
        """
        positions = dict(known)
        for queue, at in known.items():
            if not comparison.is_remade(queue) or queue not in self._bounds:
                continue
            if self.options.fail_on_data_loss:
                raise TopicRemade(queue, at)
            positions[queue] = self._bounds[queue].min_offset
        return positions

    def _first_of(self, queue: MessageQueue, begin: Document, comparison: Comparison) -> int:
        """Return where reading begins in a queue without a position: with the first message that is there. In a queue
        that was added to a topic that the query reads, at 0: messages that were deleted before it was seen are lost."""
        is_added = not begin.is_initial and any(place_of(known) == place_of(queue) for known in begin.ends)
        return 0 if is_added and not comparison.is_remade(queue) else self._bounds[queue].min_offset

    def _checked(self, known: Offsets, bounds: Mapping[MessageQueue, Bounds]) -> Offsets:
        """The positions of the query. A queue that ends before its position goes on from its end: its broker has lost
        messages, or its store was replaced.

        Raises:
            DataLost, QueueGone: for such a queue, or one that has no route, with failOnDataLoss.
        """
        checked = dict(known)
        for queue, at in known.items():
            bound = bounds.get(queue)
            if bound is None:
                if self.options.fail_on_data_loss:
                    raise QueueGone(queue, at)
                if queue not in self._told:
                    logger.warning("%s: was read up to %d, and has no route now; going on without it", queue, at)
                    self._told.add(queue)
                continue
            self._told.discard(queue)
            if at > bound.max_offset:
                if self.options.fail_on_data_loss:
                    raise DataLost(queue, at, bound.min_offset, bound.max_offset)
                ends = bound.max_offset
                logger.warning("%s: was read up to %d, but it ends at %d; going on from there", queue, at, ends)
                checked[queue] = ends
        return checked

    # --- how much -----------------------------------------------------------------------------------------------------

    def _count_max(self, limit: ReadLimit, backlog: Mapping[MessageQueue, int], begins: Offsets) -> int | None:
        """Messages of a batch at most; None without limit."""
        if isinstance(limit, ReadAllAvailable):
            return None
        counts = [count for count in (self.options.offsets_max,) if count is not None]
        if self.options.trigger_bytes_max is not None:
            slices = [Slice(queue, begins[queue], begins[queue] + count) for queue, count in backlog.items() if count]
            counts.append(max(1, self.options.trigger_bytes_max // self._mean_bytes(slices)))
        return min(counts) if counts else None

    def _mean_bytes(self, slices: list[Slice]) -> int:
        if self._message_bytes is None and slices:
            self._message_bytes = mean_message_bytes(self.options, slices)
        return self._message_bytes or MESSAGE_BYTES
