"""A counter with a memory: sums and rates over the last minute, hour and day.

Each item keeps running totals; a sampler takes snapshots of them every 10 s, 10 min and 1 h. A window's figure is the
difference between its last and first snapshot.

Source: RocketMQ 4.9 `StatsItem`; same windows, so that dashboards show the same curves.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class StatsSnapshot:
    """One window as VIEW_BROKER_STATS_DATA (315) shows it."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


_Window = tuple[int, ...]
"""Snapshots one behind the other, each of SNAPSHOT_SIZE numbers: when (ms), value, times. Flat, since there may be
items for hundreds of thousands of topics and groups, and the cyclic garbage collector passes over tuples of numbers."""

SNAPSHOT_SIZE = 3
MINUTE_SNAPSHOTS = 7  # one per 10 s
HOUR_SNAPSHOTS = 7  # one per 10 min
DAY_SNAPSHOTS = 25  # one per hour


@attrs.define
class StatsItem:
    value: int = 0
    times: int = 0
    _minute: _Window = attrs.field(init=False, default=())
    _hour: _Window = attrs.field(init=False, default=())
    _day: _Window = attrs.field(init=False, default=())

    def add(self, value: int, times: int = 1) -> None:
        self.value += value
        self.times += times

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

    def _sampled(self, window: _Window, snapshots: int, now_ms: int, interval_ms: int) -> _Window:
        if not window:  # what was counted before the first sample happened within one interval of it
            window = (now_ms - interval_ms, 0, 0)
        return (*window, now_ms, self.value, self.times)[-SNAPSHOT_SIZE * snapshots :]


def _difference(window: _Window) -> StatsSnapshot:
    if len(window) < 2 * SNAPSHOT_SIZE:
        return StatsSnapshot()
    first_ms, first_value, first_times = window[:SNAPSHOT_SIZE]
    last_ms, last_value, last_times = window[-SNAPSHOT_SIZE:]
    value, times, span_ms = last_value - first_value, last_times - first_times, last_ms - first_ms
    return StatsSnapshot(
        sum=value,
        tps=value * 1000 / span_ms if span_ms > 0 else 0.0,
        avgpt=value / times if times else 0.0,
    )
