"""The clock of a broker, as `rocketpy doctor` reads it in an answer."""

from __future__ import annotations

import pytest

from rocketpy.cli.client_checks import clock_skew_s

BOOT_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("uptime", "skew_s"),
    [
        ("[ 0 days, 0 hours, 1 minutes, 1 seconds ]", 1.5),
        ("[ -1 days, 23 hours, 0 minutes, 0 seconds ]", -3_659.5),
        ("[ 0 days, -1 hours, 0 minutes, 0 seconds ]", -3_659.5),
        (f"[ {'9' * 400} days, 0 hours, 0 minutes, 0 seconds ]", None),
        (f"[ {'9' * 5_000} days, 0 hours, 0 minutes, 0 seconds ]", None),
        ("for a while", None),
    ],
)
def test_the_clock_of_a_broker(uptime: str, skew_s: float | None) -> None:
    """Fault: Clocks set to before the start of a Java broker were not told, and long numbers ended the report."""
    figures = {"bootTimestamp": str(BOOT_MS), "runtime": uptime}
    assert clock_skew_s(figures, BOOT_MS / 1000 + 60) == skew_s
