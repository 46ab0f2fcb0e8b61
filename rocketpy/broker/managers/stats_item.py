"""A counter with sums and rates over the last minute, hour and day.

Each item keeps running totals; a sampler takes snapshots of them every 10 s, 10 min and 1 h. A window's figure is the
difference between its last and first snapshot.

Source: RocketMQ 4.9 `StatsItem`; same windows, so that dashboards show the same curves.
"""

from __future__ import annotations

import struct

import attrs

from rocketpy.message.numbers import LONG_MAX


@attrs.frozen
class StatsSnapshot:
    """The figures of one window, for VIEW_BROKER_STATS_DATA (315)."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


SNAPSHOT = struct.Struct(
    "=q"  # when, ms
    "q"  # value
    "q"  # times
)
"""A window is the bytes of its snapshots, one after the other: there may be items for tens of thousands of topics and
groups, and a full one takes 1.3 KB so; as Python numbers it took 3.6 KB."""

COUNT_MAX = LONG_MAX  # clients commit any offset: what they consumed may add up to anything
MINUTE_SNAPSHOTS = 7  # one per 10 s
HOUR_SNAPSHOTS = 7  # one per 10 min
DAY_SNAPSHOTS = 25  # one per hour


@attrs.define
class StatsItem:
    """One counter: what was added in all (`value`), in how many steps (`times`), and the snapshots of its windows."""

    value: int = 0
    times: int = 0
    _minute: bytes = attrs.field(init=False, default=b"")
    _hour: bytes = attrs.field(init=False, default=b"")
    _day: bytes = attrs.field(init=False, default=b"")

    def add(self, value: int, times: int = 1) -> None:
        self.value = min(self.value + value, COUNT_MAX)
        self.times = min(self.times + times, COUNT_MAX)

    def sample_minute(self, now_ms: int) -> None:
        self._minute = self._sampled(self._minute, MINUTE_SNAPSHOTS, now_ms, 10_000)

    def sample_hour(self, now_ms: int) -> None:
        self._hour = self._sampled(self._hour, HOUR_SNAPSHOTS, now_ms, 600_000)

    def sample_day(self, now_ms: int) -> None:
        self._day = self._sampled(self._day, DAY_SNAPSHOTS, now_ms, 3_600_000)

    @property
    def minute(self) -> StatsSnapshot:
        return _difference(self._minute)

    @property
    def hour(self) -> StatsSnapshot:
        return _difference(self._hour)

    @property
    def day(self) -> StatsSnapshot:
        return _difference(self._day)

    @property
    def is_idle(self) -> bool:
        """True if nothing was counted for a day."""
        if len(self._day) < DAY_SNAPSHOTS * SNAPSHOT.size:
            return False
        _, value, times = SNAPSHOT.unpack_from(self._day)
        return bool(value == self.value and times == self.times)

    def _sampled(self, window: bytes, snapshots: int, now_ms: int, interval_ms: int) -> bytes:
        if not window:  # counts before the first sample fall within one interval before it
            window = SNAPSHOT.pack(now_ms - interval_ms, 0, 0)
        return (window + SNAPSHOT.pack(now_ms, self.value, self.times))[-SNAPSHOT.size * snapshots :]


def _difference(window: bytes) -> StatsSnapshot:
    if len(window) < 2 * SNAPSHOT.size:
        return StatsSnapshot()
    first_ms, first_value, first_times = SNAPSHOT.unpack_from(window)
    last_ms, last_value, last_times = SNAPSHOT.unpack_from(window, len(window) - SNAPSHOT.size)
    value, times, span_ms = last_value - first_value, last_times - first_times, last_ms - first_ms
    return StatsSnapshot(
        sum=value,
        tps=value * 1000 / span_ms if span_ms > 0 else 0.0,
        avgpt=value / times if times else 0.0,
    )
