"""Failures of background steps: each is counted, the log gets one line per step and minute."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

import attrs

from rocketpy.errors import StoreError

logger = logging.getLogger(__name__)

REPEAT_S = 60.0


@attrs.define
class _Step:
    logged_s: float
    silent: int = 0  # failures since then


class FaultLog:
    """For several threads. `count` is called for each failure, `now_s` is a monotonic clock."""

    def __init__(self, now_s: Callable[[], float], count: Callable[[], None] = lambda: None) -> None:
        self._now_s = now_s
        self._count = count
        self._lock = threading.Lock()
        self._steps: dict[str, _Step] = {}

    @contextlib.contextmanager
    def kept(self, step: str) -> Iterator[None]:
        """A failure inside ends only the step. One that is not a failure of the disk is a bug, and is logged with its
        traceback. If it ended the worker instead, repeated failures would end the broker."""
        try:
            yield
        except Exception as exc:
            self.report(step, exc)

    def report(self, step: str, exc: Exception) -> None:
        """`step` says what was tried, and does not change from one failure to the next."""
        with self._lock:
            self._count()
            now_s, known = self._now_s(), self._steps.get(step)
            if known is not None and now_s < known.logged_s + REPEAT_S:
                known.silent += 1
                return
            more = (
                f" ({known.silent} more failures since the last line about it)"
                if known is not None and known.silent
                else ""
            )
            self._steps[step] = _Step(now_s)
        is_ours = not isinstance(exc, (StoreError, OSError))
        logger.error("%s: %s; trying again%s", step, exc, more, exc_info=exc if is_ours else None)
