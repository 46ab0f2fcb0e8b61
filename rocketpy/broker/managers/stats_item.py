"""A counter with a memory: sums and rates over the last minute, hour and day.

Each item keeps running totals; a sampler takes snapshots of them every 10 s, 10 min and 1 h. A window's figure is the
difference between its last and first snapshot.

Source: RocketMQ 4.9 `StatsItem`; same windows, so that dashboards show the same curves.
"""

from __future__ import annotations

from collections import deque

import attrs


@attrs.frozen
class StatsSnapshot:
    """One window as VIEW_BROKER_STATS_DATA (315) shows it."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@attrs.frozen
class _Sample:
    at_ms: int
    value: int
    times: int


def _window(size: int) -> deque[_Sample]:
    return deque(maxlen=size)


@attrs.define
class StatsItem:
    value: int = 0
    times: int = 0
    _minute: deque[_Sample] = attrs.field(init=False, factory=lambda: _window(7))  # one per 10 s
    _hour: deque[_Sample] = attrs.field(init=False, factory=lambda: _window(7))  # one per 10 min
    _day: deque[_Sample] = attrs.field(init=False, factory=lambda: _window(25))  # one per hour

    def add(self, value: int, times: int = 1) -> None:
        self.value += value
        self.times += times

    def sample_minute(self, now_ms: int) -> None:
        self._sample(self._minute, now_ms, 10_000)

    def sample_hour(self, now_ms: int) -> None:
        self._sample(self._hour, now_ms, 600_000)

    def sample_day(self, now_ms: int) -> None:
        self._sample(self._day, now_ms, 3_600_000)

    @property
    def minute(self) -> StatsSnapshot:
        return _difference(self._minute)

    @property
    def hour(self) -> StatsSnapshot:
        return _difference(self._hour)

    @property
    def day(self) -> StatsSnapshot:
        return _difference(self._day)

    def _sample(self, window: deque[_Sample], now_ms: int, interval_ms: int) -> None:
        if not window:  # what was counted before the first sample happened within one interval of it
            window.append(_Sample(now_ms - interval_ms, 0, 0))
        window.append(_Sample(now_ms, self.value, self.times))


def _difference(window: deque[_Sample]) -> StatsSnapshot:
    if len(window) < 2:
        return StatsSnapshot()
    first, last = window[0], window[-1]
    value, times, span_ms = last.value - first.value, last.times - first.times, last.at_ms - first.at_ms
    return StatsSnapshot(
        sum=value,
        tps=value * 1000 / span_ms if span_ms > 0 else 0.0,
        avgpt=value / times if times else 0.0,
    )
