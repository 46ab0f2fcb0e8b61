"""Health of a broker by its figures: workers, failing sends, refused connections, certificate, clock.

Brokers of rocketpy tell all of it (rocketpy/broker/runtime_info.py); those of the reference only failing sends and the
clock. A figure that a broker does not tell is None or empty, and raises no alarm.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

import attrs

from rocketpy.admin.statistics import broker_clock_ms
from rocketpy.message.numbers import long_or

from .history import STEP_MS

GAINS_MAX = 400  # more than an hour of steps
WORKERS_MAX = 64
WORKER = "worker_"
# Numbers of few digits: a broker may send anything, and a float holds at most 10**308.
WORKER_TEXT = re.compile(r"(\w+), silent (\d{1,15}) ms, restarts (\d{1,15})")
UPTIME_STEP_MS = 1000  # a broker tells whole seconds


@attrs.define(eq=False)
class Gains:
    """The growth of one counter, at most GAINS_MAX steps of it. After a smaller value the broker has been restarted."""

    last: int | None = attrs.field(init=False, default=None)
    _steps: deque[tuple[float, int]] = attrs.field(init=False, factory=lambda: deque(maxlen=GAINS_MAX))

    def add(self, now_ms: float, value: int | None) -> None:
        """Take the counter's value; the first one is where it begins. None: the broker does not tell it."""
        if value is None:
            return
        before, self.last = self.last, value
        gain = 0 if before is None else value - before if value >= before else value
        if gain and self._steps and 0 <= now_ms - self._steps[-1][0] < STEP_MS:
            begun_ms, gained = self._steps[-1]
            self._steps[-1] = begun_ms, gained + gain
        elif gain:
            self._steps.append((now_ms, gain))

    def within(self, now_ms: float, span_ms: float) -> int:
        """Return how much it has grown in the last `span_ms`. Steps far in the future are of a clock that was set back:
        they would count until it has caught up."""
        return sum(gain for at_ms, gain in self._steps if abs(now_ms - at_ms) <= span_ms)


@attrs.define(eq=False)
class WorkerState:
    """A worker process at the broker's last answer."""

    name: str
    state: str = ""
    silent_ms: int = 0
    restarts: Gains = attrs.field(init=False, factory=Gains)


@attrs.define(eq=False)
class BrokerHealth:
    """The health of one broker process at its last answer."""

    workers: dict[str, WorkerState] = attrs.field(init=False, factory=dict)
    failed_sends: Gains = attrs.field(init=False, factory=Gains)
    refused_connections: Gains = attrs.field(init=False, factory=Gains)
    unread_connections: Gains = attrs.field(init=False, factory=Gains)
    certificate_ends_ms: int | None = attrs.field(init=False, default=None)
    clock_ahead_ms: float = attrs.field(init=False, default=0)  # of the console's; the least that explains the answer

    def take(self, now_ms: float, took_ms: float, figures: Mapping[str, str]) -> None:
        """Take the figures of an answer that has just arrived, and took `took_ms`."""
        self.failed_sends.add(now_ms, _number(figures, "putMessageFailedTimes"))
        self.refused_connections.add(now_ms, _number(figures, "connectionsRefused"))
        self.unread_connections.add(now_ms, _number(figures, "unreadConnectionsClosed"))
        self.certificate_ends_ms = _number(figures, "certificateNotAfter")
        self.clock_ahead_ms = _ahead_ms(now_ms, took_ms, figures)
        found = {name: WORKER_TEXT.fullmatch(text) for name, text in figures.items() if name.startswith(WORKER)}
        told = {name.removeprefix(WORKER): match for name, match in sorted(found.items()) if match is not None}
        names = list(told)[:WORKERS_MAX]
        self.workers = {name: self.workers.get(name) or WorkerState(name) for name in names}
        for name, worker in self.workers.items():
            worker.state, worker.silent_ms = told[name][1], int(told[name][2])
            worker.restarts.add(now_ms, int(told[name][3]))


def _number(figures: Mapping[str, str], key: str) -> int | None:
    value = long_or(figures.get(key), -1)
    return None if value < 0 else value


def _ahead_ms(now_ms: float, took_ms: float, figures: Mapping[str, str]) -> float:
    """Return by how much the broker's clock is ahead of the console's, below 0 behind it; 0 if both may be right.

    The broker's time is that of its start and its uptime, at a moment between the question and the answer.
    """
    there_ms = broker_clock_ms(figures)
    if there_ms is None:
        return 0
    if there_ms > now_ms:
        return there_ms - now_ms
    return min(0, there_ms + UPTIME_STEP_MS - (now_ms - took_ms))
