"""Delay levels: `1s 5s 10s ...` are levels 1, 2, 3, ...

Source: RocketMQ 4.9 `ScheduleMessageService#parseDelayLevel`.
"""

from __future__ import annotations

import re
from typing import Self

import attrs

from rocketpy.errors import ConfigError
from rocketpy.message.properties import DELAY

from .properties import text_property

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"(\d+)([smhd])")


@attrs.frozen
class DelayLevels:
    delays_ms: tuple[int, ...]  # of level 1, 2, ...

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `messageDelayLevel`. Raises: ConfigError."""
        delays = []
        for word in text.split():
            match = _LEVEL.fullmatch(word)
            if match is None:
                raise ConfigError(f"{word!r} is no delay; write a number and s, m, h or d", key="messageDelayLevel")
            delays.append(int(match[1]) * _UNIT_MS[match[2]])
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
    """The DELAY property; 0 when it is absent or no number."""
    text = text_property(properties, DELAY) or "0"
    return int(text) if text.isascii() and text.isdigit() else 0
