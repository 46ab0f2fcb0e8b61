"""History: one figure of the last hour, in bounded memory.

Short: states, pages and charts share it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

HOUR_MS = 3_600_000
STEP_MS = 10_000
POINTS_MAX = HOUR_MS // STEP_MS
VALUE_MAX = 1e18  # beyond it, and NaN, are no figures: brokers tell them as texts, and `inf` has no place on an axis


class History:
    """Points of one figure, oldest first: 16 bytes each, at most POINTS_MAX, none older than an hour.

    A point that comes less than STEP_MS after the last one replaces its value. So an hour fits whatever the rate of
    points is.
    """

    __slots__ = ("_times", "_values")

    def __init__(self) -> None:
        self._times = array("d")
        self._values = array("d")

    def __len__(self) -> int:
        return len(self._times)

    def add(self, now_ms: float, value: float) -> None:
        """Append a point. A clock that went back drops the points of the future that it left behind."""
        if not -VALUE_MAX <= value <= VALUE_MAX:
            return
        while self._times and self._times[-1] > now_ms:
            self._times.pop()
            self._values.pop()
        if self._times and now_ms - self._times[-1] < STEP_MS:
            self._values[-1] = value
            return
        self._times.append(now_ms)
        self._values.append(value)
        old = sum(1 for _ in self._older_than(now_ms - HOUR_MS))
        old = max(old, len(self._times) - POINTS_MAX)
        del self._times[:old], self._values[:old]

    def _older_than(self, limit_ms: float) -> Iterator[float]:
        for time_ms in self._times:
            if time_ms >= limit_ms:
                return
            yield time_ms

    def points(self, now_ms: float) -> list[tuple[float, float]]:
        """List (time, value) of the last hour."""
        return [
            (time_ms, value)
            for time_ms, value in zip(self._times, self._values, strict=True)
            if time_ms >= now_ms - HOUR_MS
        ]

    @property
    def last(self) -> float | None:
        return self._values[-1] if self._values else None
