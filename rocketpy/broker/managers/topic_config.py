"""The topics of this broker: `topics.json`, the built-in ones, and those created by a first send.

The file says, as its last member, up to which log position the table knows all topics (topics_position.py). A broker
that is opened as the master looks for the topics of later messages in its log (topics_of_log.py).

A change is made in memory and sent to the send and pull workers at once; `file.save()` waits for the disk. Unknown
fields (5.x writes some) stay in the file.

Source: RocketMQ 4.9 `TopicConfigManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from rocketpy.errors import StoreError
from rocketpy.logs import LogLimit, and_more
from rocketpy.message import names
from rocketpy.message.sys_flag import PermName
from rocketpy.remoting.bodies.offset import PHY_OFFSET
from rocketpy.remoting.bodies.topic import DataVersion, TopicConfig
from rocketpy.remoting.json_writer import Members, pretty_pieces
from rocketpy.remoting.limits import Limit, require
from rocketpy.transport.steps import Steps

from ..clock import Clock
from ..current_settings import CurrentSettings
from ..files import json_file
from .config_file import ConfigFile, evolved, with_unknown_fields
from .fast_path_tables import FastPathTables
from .topics_position import TopicsPosition

logger = logging.getLogger(__name__)

SCHEDULE_QUEUE_NUMS = 18
ANNOUNCED_PER_STEP = 200  # topics and queues
READ_WRITE = int(PermName.READ | PermName.WRITE)
KNOWN_FIELDS = frozenset(
    {"order", "perm", "readQueueNums", "topicFilterType", "topicName", "topicSysFlag", "writeQueueNums"}
)


class TopicConfigManager:
    """The topics and their settings, with their file; creates topics from templates."""

    def __init__(self, path: Path, settings: CurrentSettings, clock: Clock, tables: FastPathTables) -> None:
        self._settings = settings
        self._clock = clock
        self._tables = tables
        self._topics: dict[str, TopicConfig] = {}
        self._unknown: dict[str, dict[str, Any]] = {}
        self._system = set(names.SYSTEM_TOPICS)
        self.data_version = DataVersion(timestamp_ms=clock.now_ms())
        self.file = ConfigFile(path, lambda: pretty_pieces(self._file_document()))
        self.position = TopicsPosition(self.file)
        self._log_limit = LogLimit()
        self.limit = Limit("topics", "topicsMax", lambda: settings.rocketpy.topics_max)
        self.on_change: Callable[[TopicConfig], None] = lambda config: None  # registration follows topic changes
        self._add_built_in()

    def load(self) -> None:
        """Load the file; it overrides built-in topics. Raises: ConfigError."""
        found = json_file.load_with_image(self.file.path)
        if found is None:
            return self.position.load(None, None)
        document, image = found
        with json_file.naming(self.file.path):
            self._take(document)
        below = document.get(PHY_OFFSET)
        self.position.load(image, below if isinstance(below, int) else None)
        logger.info("loaded %d topics, data version %d", len(self._topics), self.data_version.counter)

    def _take(self, document: Mapping[str, Any]) -> None:
        """Take the topics and the version of a file. Raises: BodyInvalid."""
        for name, fields in json_file.table(document, "topicConfigTable").items():
            self._topics[name] = evolved(TopicConfig.from_json(fields), topic_name=name)
            unknown = {key: value for key, value in fields.items() if key not in KNOWN_FIELDS}
            if unknown:
                self._unknown[name] = unknown
        if document.get("dataVersion"):
            self.data_version = DataVersion.from_json(document["dataVersion"])

    async def announce(self) -> None:
        """Send every topic to the send and pull workers; once, at start."""
        steps = Steps(ANNOUNCED_PER_STEP)
        for config in list(self._topics.values()):
            self._tables.topic(config)
            await steps.did(1 + config.write_queue_nums)

    @property
    def topics(self) -> dict[str, TopicConfig]:
        """A copy of the table; later changes do not affect it."""
        return dict(self._topics)

    @property
    def system_topics(self) -> frozenset[str]:
        return frozenset(self._system)

    def is_system(self, topic: str) -> bool:
        return topic in self._system or topic.startswith(names.SYSTEM_TOPIC_PREFIX)

    def select(self, topic: str) -> TopicConfig | None:
        return self._topics.get(topic)

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Return True if the topic is here and has this queue, for reading or writing."""
        config = self._topics.get(topic)
        return config is not None and 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums)

    def create_in_send(
        self, topic: str, *, default_topic: str, client_queue_nums: int, topic_sys_flag: int
    ) -> TopicConfig | None:
        """Create a topic from the template that the sender names; None if the template is missing or does not allow it.

        Raises:
            RequestRefused: the name is not a valid topic name, or there are too many topics.
        """
        existing = self._topics.get(topic)
        if existing is not None:
            return existing
        template = self._topics.get(default_topic)
        if template is None:
            return None
        if default_topic == names.AUTO_CREATE_TOPIC_KEY_TOPIC and not self._settings.broker.auto_create_topic_enable:
            # A template that is only left in the file from an earlier configuration does not pass on its permission.
            template = evolved(template, perm=READ_WRITE)
            self._topics[default_topic] = template
            self._tables.topic(template)
        if not template.perm & PermName.INHERIT:
            return None
        self._check_new(topic)
        queue_nums = max(0, min(client_queue_nums, template.write_queue_nums))
        return self._create(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=int(template.perm & ~PermName.INHERIT),
                topic_filter_type=template.topic_filter_type,
                topic_sys_flag=topic_sys_flag,
            )
        )

    def create_if_missing(
        self, topic: str, *, queue_nums: int, perm: int = READ_WRITE, topic_sys_flag: int = 0
    ) -> TopicConfig:
        """The topic; created with these settings if it is missing: for retry, dead-letter and system topics.

        The limit of topics does not apply to dead-letter topics and to the broker's own topics.

        Raises:
            RequestRefused: the name is not a valid topic name, or there are too many topics.
        """
        existing = self._topics.get(topic)
        if existing is not None:
            return existing
        if names.is_retry_topic(topic):
            self._check_new(topic)
        return self._create(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=perm,
                topic_sys_flag=topic_sys_flag,
            )
        )

    def largest_template(self) -> int:
        """The largest number of queues that a topic created by a send can have."""
        templates = (config.write_queue_nums for config in self._topics.values() if config.perm & PermName.INHERIT)
        return max(templates, default=0)

    def adopt(self, topic: str, used: int, largest_template: int) -> TopicConfig:
        """Restore a topic that has messages in its first `used` queues and is missing from the file.

        The send worker may still accept messages for every queue that the topic was created with. It has as many as its
        template; which template is not known, so the largest one is assumed. Topics that a broker makes have none.
        """
        queue_nums = used
        if not topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)) and topic not in names.SYSTEM_TOPICS:
            queue_nums = max(used, largest_template)
        return self._create(TopicConfig(topic_name=topic, read_queue_nums=queue_nums, write_queue_nums=queue_nums))

    def update(self, config: TopicConfig) -> None:
        """Create or replace a topic, for the admin tool.

        Raises:
            StoreError, RequestRefused: no room for its queues, or the limit of topics is reached; nothing has changed.
        """
        if config.topic_name not in self._topics:
            self.limit.check(len(self._topics))
        self._put(config)

    def delete(self, topic: str) -> bool:
        self._unknown.pop(topic, None)
        if self._topics.pop(topic, None) is None:
            return False
        self._tables.topic_removed(topic)
        self.next_version()
        self.file.changed()
        return True

    async def follow(
        self,
        topics: Mapping[str, TopicConfig],
        version: DataVersion,
        below: int,
        delete_queues: Callable[[str], object],
        is_followed: Callable[[], bool],
    ) -> None:
        """Take over the table of the master of this slave. Topics that it has not, but for built-in ones, are removed
        with their queues, as long as `is_followed`. The version is taken over with the last topic.

        `below`: the end of our log before the master was asked.
        """
        steps, is_whole, is_changed = Steps(ANNOUNCED_PER_STEP), True, False
        for name in self._topics.keys() - topics.keys():
            if not is_followed():
                return
            if name not in self._system and self.delete(name):
                logger.info("removed topic %s: the master does not have it", name)
                delete_queues(name)
            await steps.did()
        for name, config in topics.items():
            if self._topics.get(name) != config:
                try:
                    self._tables.topic(config)
                except StoreError as exc:
                    if told := self._log_limit.take():
                        logger.error("cannot take over topic %s from the master: %s%s", name, exc, and_more(told))
                    is_whole = False
                    continue
                self._topics[name] = config
                is_changed = True
                await steps.did(config.write_queue_nums)
            await steps.did()
        self.position.know(below)  # a topic for which there is no room here could not be restored from the log either
        if is_whole:  # else all is compared again in the next round
            self.data_version = version
        if is_whole or is_changed:
            self.file.changed()

    async def update_order_topics(self, ordered: Collection[str]) -> bool:
        """Set the order flag of the topics that the name server lists, clear it on all others; True if any changed."""
        changed = False
        steps = Steps()
        for name in list(self._topics):
            config = self._topics.get(name)  # it may have been deleted or replaced meanwhile
            if config is not None and config.order != (name in ordered):
                changed = True
                self._topics[name] = evolved(config, order=not config.order)
                await steps.did(10)
            await steps.did()
        if changed:
            self.next_version()
            self.file.changed()
        return changed

    def next_version(self) -> None:
        """Increase the version, after any change of what name servers publish: they do not read equal versions
        again."""
        self.data_version = self.data_version.next(self._clock.now_ms())

    def _check_new(self, topic: str) -> None:
        """Check whether clients may create this topic. Raises: RequestRefused."""
        require(names.topic_fault(topic) or names.known_topic_fault(topic))  # with a group after a retry prefix
        self.limit.check(len(self._topics))

    def _create(self, config: TopicConfig) -> TopicConfig:
        logger.info(
            "created topic %s: %d read queues, %d write queues, perm %d",
            config.topic_name,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
        )
        self._put(config)
        return config

    def _put(self, config: TopicConfig) -> None:
        self._tables.topic(config)
        self._topics[config.topic_name] = config
        self.next_version()
        self.file.changed()
        self.on_change(config)

    def document(self) -> Members:
        """The table in the format of file and body: a copy of the topics and their version, to be written later."""
        return with_unknown_fields("topicConfigTable", self.data_version, self.topics, self._unknown)

    def _file_document(self) -> Members:
        below, document = self.position.below, self.document()  # in this order: topics of later messages may be missing
        return document if below < 0 else Members(lambda: [*document.wire_members(), (PHY_OFFSET, below)])

    def _add_built_in(self) -> None:
        config = self._settings.broker
        self._built_in(names.SELF_TEST_TOPIC, 1)
        if config.auto_create_topic_enable:
            self._built_in(names.AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, perm=7)
        self._built_in(names.BENCHMARK_TOPIC, 1024)
        self._built_in(config.broker_cluster_name, 16, perm=7 if config.cluster_topic_enable else int(PermName.INHERIT))
        self._built_in(config.broker_name, 1, perm=7 if config.broker_topic_enable else int(PermName.INHERIT))
        self._built_in(names.OFFSET_MOVED_EVENT, 1)
        self._built_in(names.SCHEDULE_TOPIC, SCHEDULE_QUEUE_NUMS)
        if config.trace_topic_enable:
            self._built_in(config.msg_trace_topic_name, 1)
        self._built_in(names.reply_topic(config.broker_cluster_name), 1)

    def _built_in(self, topic: str, queue_nums: int, perm: int = READ_WRITE) -> None:
        self._system.add(topic)
        self._topics[topic] = TopicConfig(
            topic_name=topic, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm
        )
