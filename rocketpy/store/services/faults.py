"""Failures of background steps: each is counted, the log gets one line per step and minute.

Short: all services share it, and none of them owns it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from rocketpy.errors import StoreError
from rocketpy.logs import LogLimit, and_more

logger = logging.getLogger(__name__)


class FaultLog:
    """For several threads. `count` is called for each failure, `now_s` is a monotonic clock."""

    def __init__(self, now_s: Callable[[], float], count: Callable[[], None] = lambda: None) -> None:
        self._limit = LogLimit(now_s=now_s)
        self._count = count
        self._counting = threading.Lock()

    @contextlib.contextmanager
    def kept(self, step: str) -> Iterator[None]:
        """A failure inside of the block ends only this step. Any error except a disk error is a bug and is logged with
        its traceback. It does not end the worker, because repeated failures would end the broker."""
        try:
            yield
        except Exception as exc:
            self.report(step, exc)

    def report(self, step: str, exc: Exception) -> None:
        """`step` describes the failed step; it is the same text for each failure of the step."""
        with self._counting:
            self._count()
        told = self._limit.take(step)
        if told:
            is_ours = not isinstance(exc, (StoreError, OSError))
            logger.error("%s: %s; trying again%s", step, exc, and_more(told), exc_info=exc if is_ours else None)
