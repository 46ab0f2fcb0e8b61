"""Progress of steps that may take minutes."""

from __future__ import annotations

import logging
import time

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 1.0


class Progress:
    """Logs the progress of a step once a second."""

    def __init__(self, what: str, start: int, end: int) -> None:
        self._what = what
        self._start = start
        self._end = end
        self._began_s = self._said_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def __call__(self, at: int) -> None:
        now = time.monotonic()
        if now - self._said_s < PROGRESS_INTERVAL_S:
            return
        self._said_s = now
        done, total = (at - self._start) >> 20, max(self._end - self._start, at - self._start) >> 20
        logger.info("%s: %d of %d MiB, %.0f MiB/s", self._what, done, total, done / (now - self._began_s))
