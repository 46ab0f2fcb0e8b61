"""The consumer groups of this broker: those of `subscriptionGroup.json`, built-in ones, and those created on first use.

Source: RocketMQ 4.9 `SubscriptionGroupManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketpy.message import names
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.json_writer import Members, pretty_pieces
from rocketpy.remoting.limits import Limit, require
from rocketpy.transport.steps import Steps

from ..clock import Clock
from ..current_settings import CurrentSettings
from ..files import json_file
from .config_file import ConfigFile, evolved, with_unknown_fields
from .fast_path_tables import FastPathTables

logger = logging.getLogger(__name__)

ANNOUNCED_PER_STEP = 200
KNOWN_FIELDS = frozenset(
    {
        "brokerId",
        "consumeBroadcastEnable",
        "consumeEnable",
        "consumeFromMinEnable",
        "groupName",
        "notifyConsumerIdsChangedEnable",
        "retryMaxTimes",
        "retryQueueNums",
        "whichBrokerWhenConsumeSlowly",
    }
)


class SubscriptionGroupManager:
    """The consumer groups and their settings, with their file."""

    def __init__(self, path: Path, settings: CurrentSettings, clock: Clock, tables: FastPathTables) -> None:
        self._settings = settings
        self._clock = clock
        self._tables = tables
        self._groups: dict[str, SubscriptionGroupConfig] = {
            group: SubscriptionGroupConfig(group_name=group) for group in names.PREDEFINED_GROUPS
        }
        self._unknown: dict[str, dict[str, Any]] = {}
        self.limit = Limit("groups", "groupsMax", lambda: settings.rocketpy.groups_max)
        self.data_version = DataVersion(timestamp_ms=clock.now_ms())
        self.file = ConfigFile(path, lambda: pretty_pieces(self.document()))

    def load(self) -> None:
        """Load the file; it overrides built-in groups. Raises: ConfigError."""
        document = self.file.load()
        if document is not None:
            with json_file.naming(self.file.path):
                self._take(document)

    def _take(self, document: Mapping[str, Any]) -> None:
        """Take the groups and the version of a file. Raises: BodyInvalid."""
        for name, fields in json_file.table(document, "subscriptionGroupTable").items():
            self._groups[name] = evolved(SubscriptionGroupConfig.from_json(fields), group_name=name)
            unknown = {key: value for key, value in fields.items() if key not in KNOWN_FIELDS}
            if unknown:
                self._unknown[name] = unknown
        if document.get("dataVersion"):
            self.data_version = DataVersion.from_json(document["dataVersion"])

    async def announce(self) -> None:
        """Send every group to the send and pull workers; once, at start."""
        steps = Steps(ANNOUNCED_PER_STEP)
        for config in list(self._groups.values()):
            self._tables.group(config)
            await steps.did()

    @property
    def groups(self) -> dict[str, SubscriptionGroupConfig]:
        return dict(self._groups)

    def select(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, or None; never creates it."""
        return self._groups.get(group)

    def find_or_create(self, group: str) -> SubscriptionGroupConfig | None:
        """The group; created with defaults if the configuration allows. The caller saves the file.

        Raises:
            RequestRefused: the name is not valid, or the limit of groups is reached.
        """
        config = self._groups.get(group)
        if config is not None or not group:
            return config
        if not self._settings.broker.auto_create_subscription_group and not group.startswith(names.SYSTEM_GROUP_PREFIX):
            return None
        require(names.group_fault(group))
        config = SubscriptionGroupConfig(group_name=group)
        self.update(config)
        logger.info("created consumer group %s", group)
        return config

    def update(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group. Raises: RequestRefused (the limit of groups is reached)."""
        if config.group_name not in self._groups:
            self.limit.check(len(self._groups))
        self._groups[config.group_name] = config
        self._tables.group(config)
        self._changed()

    def delete(self, group: str) -> bool:
        self._unknown.pop(group, None)
        if self._groups.pop(group, None) is None:
            return False
        self._tables.group_removed(group)
        self._changed()
        return True

    async def follow(self, groups: Mapping[str, SubscriptionGroupConfig], version: DataVersion) -> None:
        """Take over the table of the master of this slave."""
        steps = Steps(ANNOUNCED_PER_STEP)
        for name in self._groups.keys() - groups.keys() - set(names.PREDEFINED_GROUPS):
            self.delete(name)
            await steps.did()
        for name, config in groups.items():
            if self._groups.get(name) != config:
                self._groups[name] = config
                self._tables.group(config)
            await steps.did()
        self.data_version = version
        self.file.changed()

    def _changed(self) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.file.changed()

    def document(self) -> Members:
        """The table in the format of file and body: a copy of the groups and their version, to be written later."""
        return with_unknown_fields("subscriptionGroupTable", self.data_version, self.groups, self._unknown)
