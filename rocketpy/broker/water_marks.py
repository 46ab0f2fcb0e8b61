"""The water-mark lines of the log: the pools in which requests wait, and for how long.

The reference writes a line per pool and second into a file of its own. Here a pool has a line when its first request
has waited for a noticeable time, and at most one in ten seconds; metrics show all pools at all times.

Source: RocketMQ 4.9 `BrokerController#printWaterMark`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import attrs

from rocketpy.log_limit import LogLimit
from rocketpy.remoting.limits import PoolLoad

logger = logging.getLogger(__name__)

SHOWN_FROM_MS = 100
LOG_INTERVAL_S = 10.0


@attrs.define(eq=False)
class WaterMarks:
    """Call `look` once a second."""

    loads: Callable[[], Mapping[str, PoolLoad]]  # what waits, by pool
    now_s: Callable[[], float] = time.monotonic
    _limit: LogLimit = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._limit = LogLimit(LOG_INTERVAL_S, self.now_s)

    def look(self) -> None:
        """Log the pools that are behind."""
        for pool, load in self.loads().items():
            if load.head_wait_ms >= SHOWN_FROM_MS and self._limit.take(pool):
                name = pool.replace("_", " ").title()
                logger.info("[WATERMARK] %s Queue Size: %d SlowTimeMills: %d", name, load.waiting, load.head_wait_ms)
