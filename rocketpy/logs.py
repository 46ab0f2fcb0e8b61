"""The log of a server: lines on standard error, which services collect and terminals show.

LogLimit bounds repeated lines: events that clients or a failing disk cause again and again must not fill the log.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Hashable

import attrs

LOG_INTERVAL_S = 60.0


def set_up_logging(level: str) -> None:
    """Once per server, before workers are forked; they inherit it."""
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


@attrs.define
class _Kind:
    logged_s: float | None = None  # when its last line was written
    untold: int = 0  # events since then


class LogLimit:
    """One line of each kind in `interval_s`, with the number of events since the one before. For several threads.

    Args:
        now_s: seconds that only grow.
    """

    def __init__(self, interval_s: float = LOG_INTERVAL_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, _Kind] = {}

    def take(self, kind: Hashable = None, count: int = 1) -> int:
        """`count` more events of a kind (of a bounded number of kinds) have happened.

        Returns: how many events a line is to tell now, these included; 0: no line now.
        """
        with self._lock:
            known = self._kinds.setdefault(kind, _Kind())
            known.untold += count
            now_s = self._now_s()
            is_due = known.logged_s is None or now_s - known.logged_s >= self._interval_s
            if not is_due or not known.untold:
                return 0
            told, known.untold, known.logged_s = known.untold, 0, now_s
            return told


def and_more(told: int) -> str:
    """For a line about the last of `told` events: what it says of the others."""
    return f" (and {told - 1} more since the last line about it)" if told > 1 else ""
