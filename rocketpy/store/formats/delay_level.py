"""messageDelayLevel as milliseconds. Dispatch needs it before the first delayed record: units of the delay topic hold
the time of delivery."""

from __future__ import annotations

from rocketpy.errors import ConfigError
from rocketpy.message.numbers import int_or

UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> list[int]:
    """Delay of level 1, 2, ... in ms.

    Raises:
        ConfigError: a piece that is not a number and one of s, m, h, d.
    """
    levels = []
    for piece in text.split():
        unit_ms = UNIT_MS.get(piece[-1], 0)
        number = int_or(piece[:-1], -1)
        if number < 0 or not unit_ms:
            reason = f"{piece[:40]!r} is not a delay; expected a number and one of s, m, h, d"
            raise ConfigError(reason, key="messageDelayLevel")
        levels.append(number * unit_ms)
    return levels
