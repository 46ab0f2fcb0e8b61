"""Objects that the threads of the store worker share: their end, their failures, the lock of consume queues, and
whether the log grows."""

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


GROWING_LOOKS = 2  # without growth, until the log counts as resting


@attrs.define(eq=False)
class LogGrowth:
    """Lets threads rest while the log does not grow: no wake-up of theirs would find work.

    The main thread calls `look`, which wakes the others when the log grows again: they are as late as one that looks
    itself, and of an idle broker only one thread wakes up.
    """

    threads: StoreThreads
    _bells: list[threading.Event] = attrs.field(init=False, factory=list)
    _seen: tuple[int, ...] = attrs.field(init=False, default=())
    _looks: int = attrs.field(init=False, default=0)  # without growth, in a row

    @property
    def is_growing(self) -> bool:
        return self._looks < GROWING_LOOKS

    def bell(self) -> threading.Event:
        """Return the event of one more thread. Before the first look."""
        self._bells.append(threading.Event())
        return self._bells[-1]

    def look(self, *positions: int) -> None:
        """Compare with the last call; in the main thread."""
        was_growing = self.is_growing
        self._looks = 0 if positions != self._seen else self._looks + 1
        self._seen = positions
        if self.is_growing and not was_growing:
            self.ring()

    def ring(self) -> None:
        """Wake all threads."""
        for bell in self._bells:
            bell.set()

    def pause(self, bell: threading.Event, seconds: float, rest_s: float) -> bool:
        """Wait for `seconds` if the log grows, else until it does or for `rest_s`; less if somebody has set the bell.
        Returns whether the worker ends."""
        bell.wait(seconds if self.is_growing else max(seconds, rest_s))
        bell.clear()
        return self.threads.stop.is_set()
