"""Delay levels: `1s 5s 10s ...` are levels 1, 2, 3, ...

Source: RocketMQ 4.9 `ScheduleMessageService#parseDelayLevel`.
"""

from __future__ import annotations

from typing import Self

import attrs

from rocketpy.errors import ConfigError
from rocketpy.message.numbers import int_or
from rocketpy.message.properties import DELAY
from rocketpy.store.formats.unit import parse_delay_levels

from ..property_edits import text_property


@attrs.frozen
class DelayLevels:
    """The delay levels of messageDelayLevel, as the broker started with them."""

    delays_ms: tuple[int, ...]  # of level 1, 2, ...

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `messageDelayLevel`. Raises: ConfigError."""
        delays = parse_delay_levels(text)
        if not delays:
            raise ConfigError("at least one delay is needed", key="messageDelayLevel")
        return cls(tuple(delays))

    @property
    def level_max(self) -> int:
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        """A level above the highest means the highest; zero and less mean no delay."""
        return max(0, min(level, self.level_max))

    def delay_ms(self, level: int) -> int:
        return self.delays_ms[level - 1]


def delay_level_of(properties: bytes) -> int:
    """The DELAY property; 0 when it is absent or no int."""
    return int_or(text_property(properties, DELAY), 0)
