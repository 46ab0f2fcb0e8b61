"""Counts caught faults by place, and logs each place at most once a minute.

A place is the name of a request code, a callback or a duty, so their number is bounded. The first fault of a place is
logged with the end of its traceback; those that follow within the interval are counted in its next line. So
clients that cause faults cannot fill the log.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from .logs import LogLimit, and_more

TEXT_MAX = 500  # characters of an exception's text in the log
FRAMES_MAX = 12  # of its traceback, the innermost ones
_log = logging.getLogger(__name__)

T = TypeVar("T")


class Faults:
    """The faults of one process; for its one thread.

    Args:
        now_s: seconds that only grow.
        name: of the logger, below this module's.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic, *, name: str = "") -> None:
        self._limit = LogLimit(now_s=now_s)
        self._log = _log.getChild(name) if name else _log
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """Faults since the process started, by place."""
        return self._counts

    def count(self, place: str) -> None:
        """Count a fault of `place` that has its own line in the log."""
        self._counts[place] += 1

    def report(self, place: str, fault: BaseException | str) -> None:
        """Count a fault of `place`; log it unless the place was in the log a short while ago."""
        self.count(place)
        told = self._limit.take(place)
        if told:
            self._log.error("failed: %s%s: %s", place, and_more(told), describe(fault))


def describe(fault: BaseException | str) -> str:
    """One line that says what happened, then the innermost frames; bounded, with control characters escaped."""
    if isinstance(fault, str):
        return printable(fault)
    fault = first_of(fault)
    frames = "".join(traceback.format_tb(fault.__traceback__, limit=-FRAMES_MAX))
    return f"{type(fault).__name__}: {printable(str(fault))}" + (f"\n{frames}" if frames else "")


def first_of(fault: BaseException) -> BaseException:
    """Return the first exception within groups; `fault` itself if it is no group."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


def printable(text: str) -> str:
    """`text` for a log: cut to TEXT_MAX characters, everything but printable ASCII escaped."""
    cut = text[:TEXT_MAX].encode("unicode_escape").decode("ascii")
    return cut if len(text) <= TEXT_MAX else f"{cut}... ({len(text)} characters)"


def do_each(act: Callable[[T], object], items: Iterable[T]) -> None:
    """Do `act` to every item: one that fails does not keep the others from it.

    Raises:
        ExceptionGroup: what the failing ones raised, at the end.
    """
    failed: list[Exception] = []
    for item in items:
        try:
            act(item)
        except Exception as exc:
            failed.append(exc)
    if failed:
        raise ExceptionGroup(f"{len(failed)} failed", failed)
