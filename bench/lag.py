"""The lag of dispatch, in milliseconds, seen from outside: two positions of a live store's control block.

The lag at a moment is the age of the oldest byte that is published and not yet dispatched. It is exact to one sampling
interval, and never said to be smaller than it is.
"""

from __future__ import annotations

import bisect
import mmap
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from rocketpy.native.core import ffi

INTERVAL_S = 0.002


class ControlView:
    """The header of a store's control block (csrc/store/control/control_block.h), mapped; the broker may be running."""

    def __init__(self, store: Path) -> None:
        with (store / "control").open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 4096)
        self.header: Any = ffi.from_buffer("rp_control *", self._map)

    def power_loss(self) -> None:
        """Make the block as after a loss of power: written under another kernel, nothing flushed. No broker may run."""
        for index in range(16):
            self.header.boot_id[index] ^= 0xFF
        self.header.durable_phy_offset = self.header.units_durable_phy_offset = 0

    def close(self) -> None:
        ffi.release(self.header)
        self._map.close()


@attrs.frozen
class Sample:
    at_s: float
    published: int
    dispatched: int


def lags_ms(samples: Sequence[Sample]) -> list[float]:
    """Per sample: since when the first byte that is not dispatched yet has been waiting."""
    published = [sample.published for sample in samples]
    found = []
    for sample in samples:
        first = bisect.bisect_right(published, sample.dispatched)
        is_behind = sample.dispatched < sample.published
        found.append((sample.at_s - samples[max(0, first - 1)].at_s) * 1000 if is_behind else 0.0)
    return found


class LagSampler(threading.Thread):
    """Samples until stopped; use it as a context manager around a load."""

    def __init__(self, store: Path) -> None:
        super().__init__(name="lag")
        self._view = ControlView(store)
        self._stop_asked = threading.Event()
        self.samples: list[Sample] = []

    def run(self) -> None:
        header = self._view.header
        while not self._stop_asked.wait(INTERVAL_S):
            dispatched = int(header.dispatched_phy_offset)  # before the other: never behind by less than it is
            self.samples.append(Sample(time.monotonic(), int(header.published_phy_offset), dispatched))

    def __enter__(self) -> LagSampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_asked.set()
        self.join()
        self._view.close()

    def figures(self) -> dict[str, float]:
        """Median and maximum, and the median of the bytes behind."""
        lags = lags_ms(self.samples)
        behind = [sample.published - sample.dispatched for sample in self.samples]
        return {
            "lag_median_ms": round(statistics.median(lags), 3),
            "lag_max_ms": round(max(lags), 3),
            "lag_median_bytes": statistics.median(behind),
        }
