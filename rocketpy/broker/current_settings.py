"""The current settings. Settings are frozen objects; a run-time update (code 25) replaces the object in `value`.

Short: every room above reads it, and query workers, which load no tables.
"""

from __future__ import annotations

from rocketpy.config import (
    BrokerConfig,
    BrokerSettings,
    MessageStoreConfig,
    RocketpyConfig,
    properties,
    update_broker,
)


class CurrentSettings:
    """Read it at each use: a part that was kept would be out of date after an update."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.value = settings

    def apply(self, record: bytes) -> None:
        """Apply changes that the manager has checked: `key=value` lines, with all changes since the start."""
        self.value = update_broker(self.value, properties.read_changes(record)).settings

    @property
    def broker(self) -> BrokerConfig:
        return self.value.broker

    @property
    def store(self) -> MessageStoreConfig:
        return self.value.store

    @property
    def rocketpy(self) -> RocketpyConfig:
        return self.value.rocketpy

    @property
    def is_slave(self) -> bool:
        return self.value.is_slave

    @property
    def broker_addr(self) -> str:
        return self.value.broker_addr
