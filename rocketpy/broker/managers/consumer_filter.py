"""The SQL92 subscriptions of consumer groups, online or lately so, with their filter bits.

A subscription of a group that has left is dead: it is kept for `filterDataCleanTimeSpan`, so that a group that comes
back with the same expression finds its filter bits in the messages stored meanwhile.

Source: RocketMQ 4.9 `ConsumerFilterManager`; file and rules are the reference's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import attrs

from rocketpy.errors import FilterInvalid
from rocketpy.filter.bloom import BloomFilter
from rocketpy.logs import LogLimit
from rocketpy.remoting.bodies.client import EXPRESSION_TYPE_SQL92, SubscriptionData
from rocketpy.remoting.bodies.group import BloomFilterData, ConsumerFilterData, FilterDocument
from rocketpy.remoting.fast_path import FastPath, FilterPlace
from rocketpy.remoting.json_writer import Members, pretty_pieces
from rocketpy.transport.steps import Steps, finished

from ..clock import Clock
from ..current_settings import CurrentSettings
from ..files import json_file
from .config_file import ConfigFile, evolved
from .filter_compiler import FilterCompiler

logger = logging.getLogger(__name__)

MARKS = 4096  # csrc/store/filters/filter_marks.h
FILTERS_MAX = 10_000
TEXT_MAX = 1024 * 1024  # characters of all expressions: a new manager compiles them again, at up to 8 us each
LATE_MS = 30_000  # how long before a start its groups are taken to have been online
BORN_LATER_MS = 1_000
"""The store worker learns of a filter a moment after it is registered. A Java broker that takes over the store relies
on the bits of messages stored after `bornTime`; so that is later by more than this moment."""


def is_tag_type(expression_type: str | None) -> bool:
    return not expression_type or expression_type == "TAG"


@attrs.define(eq=False)
class _Entry:
    data: ConsumerFilterData
    place: FilterPlace | None  # None: without filter bits


class ConsumerFilterManager:
    """The SQL92 subscriptions of consumer groups, with their file."""

    def __init__(self, path: Path, settings: CurrentSettings, clock: Clock, fast_path: FastPath) -> None:
        self._settings = settings
        self._clock = clock
        self.compiler = FilterCompiler()
        self._fast_path = fast_path
        broker = settings.broker
        self.is_enabled = broker.enable_property_filter
        self.bloom = BloomFilter.of(broker.max_error_rate_of_bloom_filter, broker.expect_consumer_num_use_filter)
        self._has_bits = broker.enable_calc_filter_bit_map and settings.store.enable_consume_queue_ext
        self._entries: dict[str, dict[str, _Entry]] = {}  # by group and topic
        self._dead: dict[tuple[str, str], None] = {}  # group and topic, in the order of their death
        self._count = self._text = 0
        self._free_marks = list(range(MARKS - 1, -1, -1))
        self._started = self._last_id = time.monotonic_ns()  # a restarted manager gives none of the ids of the last one
        self._log = LogLimit()
        self.file = ConfigFile(path, lambda: pretty_pieces(self.document()))

    # --- questions ---

    @property
    def version(self) -> str:
        """Another one after each change, and after a restart of the manager."""
        return f"{self._started}.{self.file.changes}"

    def find(self, group: str, topic: str) -> ConsumerFilterData | None:
        entry = self._entries.get(group, {}).get(topic)
        return None if entry is None else entry.data

    def is_compiled(self, subscription: SubscriptionData) -> bool:
        """Return True if the expression of the subscription has to be compiled."""
        return self.is_enabled and subscription.expression_type == EXPRESSION_TYPE_SQL92

    def program(self, subscription: SubscriptionData) -> bytes | None:
        """The program of a SQL92 subscription; None if it cannot be evaluated."""
        if not self.is_compiled(subscription):
            return None
        try:
            return self.compiler.program(subscription.sub_string)
        except FilterInvalid:
            return None

    def check(self, subscription: SubscriptionData) -> None:
        """Compile the subscription's expression. Raises: FilterInvalid: it cannot be compiled."""
        self.compiler.program(subscription.sub_string)

    def place(self, group: str, subscription: SubscriptionData) -> FilterPlace | None:
        """Return the place of the subscription's filter bits; None if no entry has its expression."""
        entry = self._entries.get(group, {}).get(subscription.topic)
        return entry.place if entry is not None and entry.data.expression == subscription.sub_string else None

    async def prepare(self, subscription: SubscriptionData) -> None:
        """Compile it, in a thread, before it is registered; not behind pulls."""
        if self.is_compiled(subscription):
            await self.compiler.prepare(subscription.sub_string, is_urgent=True)

    # --- changes ---

    def load(self) -> None:
        """Load the file. What was live before the stop counts as having left LATE_MS ago. Raises: ConfigError."""
        document = json_file.load_as(self.file.path, FilterDocument)
        if document is None:
            return
        found = [data for topic in document.filter_data_by_topic.values() for data in topic.group_filter_data.values()]
        if not all(map(self._fits, found)):
            logger.warning("dropped %d filters of %s: they have bits of another size", len(found), self.file.path)
            return
        now_ms = self._clock.now_ms()
        live_ms = now_ms - LATE_MS
        for data in sorted(found, key=lambda data: data.dead_time or live_ms):
            if self._has_room(len(data.expression)):
                self._enter(data if data.dead_time else evolved(data, dead_time=max(live_ms, data.born_time)))

    def _fits(self, data: ConsumerFilterData) -> bool:
        bits = data.bloom_filter_data
        return (
            bits is not None
            and bits.bit_num == self.bloom.bit_count
            and len(bits.bit_pos) == len(self.bloom.positions("", ""))
        )

    def register(self, group: str, subscriptions: Mapping[str, SubscriptionData]) -> None:
        """The online group has these subscriptions."""
        wanted = {topic: data for topic, data in subscriptions.items() if not is_tag_type(data.expression_type)}
        if not wanted and group not in self._entries:
            return
        for subscription in wanted.values():
            self._register_one(group, subscription)
        self._mark_dead(group, self._entries.get(group, {}).keys() - wanted.keys())

    def _register_one(self, group: str, subscription: SubscriptionData) -> None:
        topic, version = subscription.topic, subscription.sub_version
        known = self.find(group, topic)
        is_same = known is not None and (known.expression, known.expression_type) == (
            subscription.sub_string,
            subscription.expression_type,
        )
        if known is not None and version < known.client_version:
            return
        if known is not None and (is_same or version == known.client_version):
            if version > known.client_version or known.is_dead:
                self._replace(evolved(known, client_version=version, dead_time=0))
            return
        self._drop(group, topic)
        if self.program(subscription) is None:
            self._tell_of_failure(group, subscription)
        elif self._has_room(len(subscription.sub_string)):
            self._enter(self._new(group, subscription))
            self.file.changed()
        elif self._log.take("room"):
            logger.warning("group %s cannot filter topic %s: there are %d filters already", group, topic, self._count)

    async def follow(self, document: FilterDocument, is_online: Callable[[str], bool]) -> None:
        """Take over what the master of this slave has. What members say who are connected here (`is_online`) is newer:
        consumers tell all brokers of a name.

        Filters that the master has dropped die here by themselves. Bits are valid from now on: this broker makes its
        own.
        """
        if not self.is_enabled:
            return
        steps = Steps()
        for topic in document.filter_data_by_topic.values():
            for data in topic.group_filter_data.values():
                known = self.find(data.consumer_group, data.topic)
                if known is None or known.client_version < data.client_version:
                    subscription = SubscriptionData(
                        topic=data.topic,
                        sub_string=data.expression,
                        expression_type=data.expression_type,
                        sub_version=data.client_version,
                    )
                    await self.prepare(subscription)
                    self._register_one(data.consumer_group, subscription)
                if data.is_dead and not is_online(data.consumer_group):
                    self._mark_dead(data.consumer_group, {data.topic})
                await steps.did()

    def _has_room(self, size: int) -> bool:
        """Drops dead filters, the oldest first, if it has to."""
        while self._count >= FILTERS_MAX or self._text + size > TEXT_MAX:
            if not self._dead:
                return False
            self._drop(*next(iter(self._dead)))
        return True

    def _new(self, group: str, subscription: SubscriptionData) -> ConsumerFilterData:
        return ConsumerFilterData(
            consumer_group=group,
            topic=subscription.topic,
            expression=subscription.sub_string,
            expression_type=subscription.expression_type,
            client_version=subscription.sub_version,
            born_time=self._clock.now_ms() + (BORN_LATER_MS if self._has_bits else 0),
            bloom_filter_data=BloomFilterData(
                bit_num=self.bloom.bit_count, bit_pos=list(self.bloom.positions(group, subscription.topic))
            ),
        )

    def _tell_of_failure(self, group: str, subscription: SubscriptionData) -> None:
        if not self._log.take("refused"):
            return
        reason = "set enablePropertyFilter=true" if not self.is_enabled else "this type is not known"
        try:
            if self.is_compiled(subscription):
                self.compiler.program(subscription.sub_string)
        except FilterInvalid as exc:
            reason = str(exc)
        topic, kind = subscription.topic, subscription.expression_type
        logger.warning("group %s cannot filter topic %s by %s: %s", group, topic, kind, reason)

    def unregister(self, group: str) -> None:
        """The last member of the group has left."""
        self._mark_dead(group, set(self._entries.get(group, ())))

    def _mark_dead(self, group: str, topics: set[str]) -> None:
        for topic in topics:
            known = self.find(group, topic)
            if known is not None and not known.is_dead:
                self._replace(evolved(known, dead_time=max(self._clock.now_ms(), known.born_time)))

    def _replace(self, data: ConsumerFilterData) -> None:
        self._entries[data.consumer_group][data.topic].data = data
        self._record_death(data)
        self.file.changed()

    def _record_death(self, data: ConsumerFilterData) -> None:
        self._dead.pop((data.consumer_group, data.topic), None)
        if data.is_dead:
            self._dead[data.consumer_group, data.topic] = None

    def _enter(self, data: ConsumerFilterData) -> None:
        """Keep the filter, and let dispatch write its bits if it can be evaluated."""
        self.compiler.hold(data.expression)
        place = self._tell(data)
        self._entries.setdefault(data.consumer_group, {})[data.topic] = _Entry(data, place)
        self._count += 1
        self._text += len(data.expression)
        self._record_death(data)

    def _tell(self, data: ConsumerFilterData) -> FilterPlace | None:
        bits = data.bloom_filter_data
        if not self._has_bits or not self._free_marks or bits is None:
            return None
        try:
            program = self.compiler.program(data.expression)
        except FilterInvalid:
            return None
        self._last_id += 1
        place = FilterPlace(self._last_id, self._free_marks.pop(), bits.bit_num, tuple(bits.bit_pos))
        self._fast_path.filter_changed(data.consumer_group, data.topic, program=program, place=place)
        return place

    def _drop(self, group: str, topic: str) -> None:
        entry = self._entries.get(group, {}).pop(topic, None)
        if entry is None:
            return
        if not self._entries[group]:
            del self._entries[group]
        self._dead.pop((group, topic), None)
        self._count -= 1
        self._text -= len(entry.data.expression)
        self.compiler.release(entry.data.expression)
        if entry.place is not None:
            self._fast_path.filter_removed(group, topic)
            self._free_marks.append(entry.place.mark)
        self.file.changed()

    def clean(self) -> Generator[None, None, None]:
        """Drop filter data that has been dead for filterDataCleanTimeSpan. Work in steps."""
        limit_ms = self._clock.now_ms() - self._settings.broker.filter_data_clean_time_span
        while self._dead:
            group, topic = next(iter(self._dead))
            data = self.find(group, topic)
            if data is None or data.dead_time >= limit_ms:
                return
            self._drop(group, topic)
            yield

    async def save(self) -> None:
        """Drop the old dead, then save the file if it has changed."""
        await finished(self.clean())
        await self.file.save()

    def document(self) -> Members:
        """The table in the format of the file, as it is now; the entries are made while it is written."""
        by_topic: dict[str, list[ConsumerFilterData]] = {}
        for topics in self._entries.values():
            for topic, entry in topics.items():
                by_topic.setdefault(topic, []).append(entry.data)
        tables = Members(lambda: ((topic, _of_topic(topic, found)) for topic, found in by_topic.items()))
        return Members(lambda: [("filterDataByTopic", tables)])


def _of_topic(topic: str, found: list[ConsumerFilterData]) -> Members:
    """FilterDataOfTopic, made entry by entry."""
    groups = Members(lambda: ((data.consumer_group, evolved(data, dead=data.is_dead)) for data in found))
    return Members(lambda: [("groupFilterData", groups), ("topic", topic)])
