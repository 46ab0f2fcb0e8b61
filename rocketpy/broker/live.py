"""The settings in force. Settings are frozen; a run-time update (code 25) puts another object in this one's place."""

from __future__ import annotations

from rocketpy.config import BrokerConfig, BrokerSettings, MessageStoreConfig, RocketpyConfig


class LiveSettings:
    """Hand this on and read it at each use; never keep what it returned."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings

    @property
    def broker(self) -> BrokerConfig:
        return self.settings.broker

    @property
    def store(self) -> MessageStoreConfig:
        return self.settings.store

    @property
    def rocketpy(self) -> RocketpyConfig:
        return self.settings.rocketpy

    @property
    def is_slave(self) -> bool:
        return self.settings.is_slave

    @property
    def broker_addr(self) -> str:
        return self.settings.broker_addr
