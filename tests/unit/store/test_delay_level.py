"""messageDelayLevel in milliseconds."""

from __future__ import annotations

import pytest

from rocketpy.errors import ConfigError
from rocketpy.store.formats.unit import parse_delay_levels


def test_delay_levels() -> None:
    levels = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
    assert len(levels) == 18 and levels[2] == 10_000 and levels[17] == 7_200_000
    assert parse_delay_levels("2d") == [172_800_000]


@pytest.mark.parametrize("text", ["1", "s", "1x", "-1s", "1s two"])
def test_delay_levels_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        parse_delay_levels(text)
