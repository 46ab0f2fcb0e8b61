"""messageDelayLevel as milliseconds. Dispatch needs it before the first delayed record: units of the delay topic hold
the time of delivery."""

from __future__ import annotations

from rocketpy.errors import ConfigError

UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> list[int]:
    """Delay of level 1, 2, ... in ms.

    Raises:
        ConfigError: a piece that is not a number and one of s, m, h, d.
    """
    levels = []
    for piece in text.split():
        number, unit = piece[:-1], piece[-1]
        if not (number.isascii() and number.isdecimal() and unit in UNIT_MS):
            raise ConfigError(f"{piece!r} is no delay: a number and one of s, m, h, d", key="messageDelayLevel")
        levels.append(int(number) * UNIT_MS[unit])
    return levels
