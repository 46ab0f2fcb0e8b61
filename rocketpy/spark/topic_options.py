"""Options of the source `rocketmq`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs

from rocketpy.client.consuming.subscription import SQL92, TAG, Sql92
from rocketpy.errors import ConfigError, FilterInvalid
from rocketpy.filter.parser import parse
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import TOOLS_CONSUMER_GROUP
from rocketpy.message.numbers import LONG_MAX
from rocketpy.message.tags import expression_tags

from .connection import ConnectionOptions
from .decoding import DecodingOptions
from .offsets import EARLIEST, LATEST, offsets_of, queues_of
from .options import boolean, directory, json_object, one_of, option, seconds, size, text, whole, words
from .pulls import PullSettings
from .scan import Selection

YEAR_9999_END_MS = 253_402_300_799_999
PACKED_MAX = 100_000
WORDS = ("earliest", "latest", "group")


def _offsets(value: str) -> Any:
    """earliest, latest, group, or offsets by topic, broker and queue."""
    return value.strip().lower() if value.strip().lower() in WORDS else offsets_of(json_object(value))


def _times(value: str) -> Any:
    return offsets_of(json_object(value))


def _pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(text(value))
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None


def _store_paths(value: str) -> Path | dict[str, Path]:
    """A directory, or one for each broker."""
    if not value.strip().startswith("{"):
        return directory(value)
    given = json_object(value)
    if not all(isinstance(path, str) for path in given.values()):
        raise ValueError('must name a directory for each broker: {"broker": "/path"}')
    return {broker: directory(path) for broker, path in given.items()}


def _assign(value: str) -> frozenset[MessageQueue]:
    return queues_of(json_object(value))


@attrs.frozen(kw_only=True, slots=False)
class TopicOptions(ConnectionOptions, DecodingOptions):
    """Which queues are read, from where to where, how many messages at once, and what happens when some are gone."""

    topic: str | None = option("topic", text, None, "one topic")
    subscribe: frozenset[str] = option("subscribe", words, frozenset(), "topics, separated by commas")
    subscribe_pattern: re.Pattern[str] | None = option("subscribePattern", _pattern, None, "topics, by their names")
    assign: frozenset[MessageQueue] = option("assign", _assign, frozenset(), '{"topic": {"broker": [0, 1]}}')
    sub_expression: str = option("subExpression", text, "*", "tags a || b, or an SQL92 condition")
    expression_type: str = option("expressionType", one_of(TAG, SQL92), TAG, "what subExpression is")

    starting: Any = option("startingOffsets", _offsets, None, "earliest, latest, group, or JSON")
    starting_ms: int | None = option("startingTimestamp", whole(0, YEAR_9999_END_MS), None, "stored at or after (ms)")
    starting_times: Any = option("startingOffsetsByTimestamp", _times, None, "JSON: a time for each queue")
    too_young: str = option(
        "startingOffsetsByTimestampStrategy", one_of("error", "latest"), "error", "when nothing is that young"
    )
    ending: Any = option("endingOffsets", _offsets, "latest", "latest, or JSON")
    ending_ms: int | None = option("endingTimestamp", whole(0, YEAR_9999_END_MS), None, "stored before (ms)")
    ending_times: Any = option("endingOffsetsByTimestamp", _times, None, "JSON: a time for each queue")

    offsets_max: int | None = option("maxOffsetsPerTrigger", whole(1, LONG_MAX), None, "messages of a batch")
    trigger_bytes_max: int | None = option("maxBytesPerTrigger", size(1, 1 << 50), None, "bytes of a batch, about")
    offsets_min: int | None = option("minOffsetsPerTrigger", whole(1, LONG_MAX), None, "a batch waits for so many")
    trigger_delay_s: float = option("maxTriggerDelay", seconds(0, 1e7), 900.0, "but no longer than this")
    discovery_s: float = option("discoveryInterval", seconds(0, 1e6), 10.0, "how often new queues are looked for")

    partitions_min: int | None = option("minPartitions", whole(1, PACKED_MAX), None, "tasks, at least")
    partitions_max: int | None = option("maxPartitions", whole(1, PACKED_MAX), None, "tasks, at most")
    partition_bytes: int = option("targetPartitionBytes", size(1, 1 << 40), 64 << 20, "bytes for one task, about")
    pull_batch_size: int = option("pullBatchSize", whole(1, 65_536), 1024, "messages asked for by one request")
    pull_timeout_ms: int = option("pullTimeoutMs", whole(1, 3_600_000), 20_000, "for one request")
    store_paths: Any = option("storePath", _store_paths, None, "the broker's store, or JSON: one for each broker")
    pull_pipeline: int = option("pullPipeline", whole(1, 64), 4, "full requests in flight, for each task")

    fail_on_data_loss: bool = option("failOnDataLoss", boolean, True, "false: go on with what is there")
    consumer_group: str | None = option("consumerGroup", text, None, "for startingOffsets=group and commitToGroup")
    commit_to_group: bool = option("commitToGroup", boolean, False, "report progress to consumerGroup")
    wait_for_topic_s: float = option("waitForTopic", seconds(0, 86_400), 0.0, "how long a topic may be missing")

    def __attrs_post_init__(self) -> None:
        self._put_namespace()
        self.names()
        self._check_topics()
        self._check_offsets()
        if self.expression_type == TAG and expression_tags(self.sub_expression) == []:
            raise ConfigError(f'"{self.sub_expression}" holds no tag', key="subExpression")
        if self.expression_type == SQL92:
            self._check_condition()
        if (self.commit_to_group or "group" in (self.starting, self.ending)) and self.consumer_group is None:
            raise ConfigError("is needed for commitToGroup and for startingOffsets=group", key="consumerGroup")

    def _put_namespace(self) -> None:
        """Put the namespace before all topics and groups: from here on they are as brokers know them."""

        def known(value: Any) -> Any:
            if isinstance(value, str):
                return self.known(value)
            if isinstance(value, MessageQueue):
                return attrs.evolve(value, topic=self.known(value.topic))
            if isinstance(value, dict):
                return {known(queue): offset for queue, offset in value.items()}
            return frozenset(map(known, value))

        for name in ("topic", "subscribe", "assign", "consumer_group"):
            if getattr(self, name):
                object.__setattr__(self, name, known(getattr(self, name)))
        for name in ("starting", "starting_times", "ending", "ending_times"):
            if isinstance(offsets := getattr(self, name), dict):
                object.__setattr__(self, name, known(offsets))

    def _check_condition(self) -> None:
        try:
            parse(self.sub_expression)
        except FilterInvalid as error:
            raise ConfigError(f"is no SQL92 condition: {error}", key="subExpression") from None

    def _check_topics(self) -> None:
        given = [self.topic, self.subscribe, self.subscribe_pattern, self.assign]
        if sum(bool(one) for one in given) != 1:
            raise ConfigError("exactly one of topic, subscribe, subscribePattern and assign is needed")

    def _check_offsets(self) -> None:
        if self.ending in ("earliest", "group") or (
            isinstance(self.ending, dict) and any(offset == EARLIEST for offset in self.ending.values())
        ):
            raise ConfigError("must be latest, or JSON without -2", key="endingOffsets")
        for one, other in (("startingTimestamp", "starting"), ("endingTimestamp", "ending")):
            if getattr(self, f"{other}_ms") is not None and getattr(self, f"{other}_times") is not None:
                raise ConfigError(f"excludes {other}OffsetsByTimestamp", key=one)
        if self.starting_ms is not None and self.ending_ms is not None and self.starting_ms > self.ending_ms:
            raise ConfigError("must not be after endingTimestamp", key="startingTimestamp")
        if self.partitions_min and self.partitions_max and self.partitions_min > self.partitions_max:
            raise ConfigError("must not be above maxPartitions", key="minPartitions")

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics that are named; None: they are chosen by a pattern."""
        if self.subscribe_pattern is not None:
            return None
        assigned = frozenset(queue.topic for queue in self.assign)
        return assigned or self.subscribe or frozenset({self.topic or ""})

    def store_path_of(self, broker_name: str) -> Path | None:
        """The directory with the files of this broker, if executors see it."""
        paths: Path | dict[str, Path] | None = self.store_paths
        return paths.get(broker_name) if isinstance(paths, dict) else paths

    @property
    def pull_settings(self) -> PullSettings:
        """The settings of the pulls; without a group of its own a query uses TOOLS_CONSUMER_GROUP, which every broker
        has."""
        is_sql = self.expression_type == SQL92
        return PullSettings(
            group=self.consumer_group or TOOLS_CONSUMER_GROUP,
            expression=Sql92(self.sub_expression) if is_sql else self.sub_expression,
            batch_size=self.pull_batch_size,
            pipeline=self.pull_pipeline,
            timeout_s=self.pull_timeout_ms / 1000,
            fail_on_data_loss=self.fail_on_data_loss,
        )

    @property
    def selection(self) -> Selection:
        """The filter that the reader applies again: brokers compare hashes of tags, and some misread conditions."""
        if self.expression_type == SQL92:
            return Selection(condition=self.sub_expression)
        return Selection(tags=frozenset(expression_tags(self.sub_expression) or ()))


__all__ = ["EARLIEST", "LATEST", "TopicOptions"]
