"""Objects that the threads of the store worker share: their end, their failures, and the lock of consume queues."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

import attrs

from rocketpy.errors import StoreError
from rocketpy.logs import LogLimit, and_more

logger = logging.getLogger(__name__)


class FaultLog:
    """Failures of background steps: each is counted, the log gets one line per step and minute.

    For several threads. `count` is called for each failure, `now_s` is a monotonic clock.
    """

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
            logger.error("store: %s: %s; trying again%s", step, exc, and_more(told), exc_info=exc if is_ours else None)


@attrs.frozen(eq=False)
class StoreThreads:
    """One per store worker, for all of its threads.

    `stop` is set when the worker ends; then every pause ends, too. A thread that was started stops by itself, and the
    main thread waits for it.
    """

    faults: FaultLog = attrs.field(factory=lambda: FaultLog(time.monotonic))
    stop: threading.Event = attrs.field(factory=threading.Event)
    queue_lock: threading.Lock = attrs.field(factory=threading.Lock)  # held while a queue is changed

    def pause(self, seconds: float) -> bool:
        """Wait, or until the worker ends. Returns whether it ends."""
        return self.stop.wait(seconds)
