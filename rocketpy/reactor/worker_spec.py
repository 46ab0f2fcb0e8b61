"""The specification of a worker process. Descriptors that it does not name are closed first in the child."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from .ring import WorkerBlock


class StopPhase:
    """Order of the stop, lowest first: workers that send requests stop before the workers that answer them."""

    INTAKE = 0  # acceptor leaves, selectors read no more, TLS workers learn what follows
    CODECS = 10
    MANAGERS = 20  # and query workers
    FAST_PATH = 30  # send and pull workers
    REPLICATION = 35  # nothing more is published: slaves get the rest
    STORE = 40
    SELECTORS = 50
    TLS = 60  # has the rest of the selectors' answers


DOUBLINGS_MAX = 30
BEAT_MAX_S = 2.0  # a wake-up each second costs an idle process 0.02 % of a core
BEATS = 5  # at least, before a silent worker is killed
EXIT_REOPEN = 75  # EX_TEMPFAIL: the store has to be opened anew, so the broker stops in order and starts again


@attrs.frozen
class RestartPolicy:
    """At most `limit` restarts within `window_s`: the first at once, the others after doubling, jittered waits.

    Without a limit (None) the failures of a worker never stop the broker: it can serve without this one."""

    limit: int | None = 10
    window_s: float = 60.0
    backoff_s: float = 0.05
    backoff_max_s: float = 5.0

    def delay_s(self, restarts_in_window: int, jitter: float) -> float:
        """Wait before a restart that follows `restarts_in_window` others; `jitter` is in [0, 1)."""
        if restarts_in_window == 0:
            return 0.0
        whole: float = min(self.backoff_max_s, self.backoff_s * 2 ** min(restarts_in_window - 1, DOUBLINGS_MAX))
        return whole * (0.5 + jitter / 2)


@attrs.frozen
class WorkerContext:
    """The argument of a worker's main in the child."""

    name: str
    block: WorkerBlock
    report_ready: Callable[[], None]
    """Called once when the worker serves. The broker is ready when all workers have called it."""
    beat_s: float = BEAT_MAX_S
    """The loop of a worker without work turns at least so often: it sends a heartbeat, and closes what it no longer
    needs."""

    @property
    def beat_ns(self) -> int:
        return int(self.beat_s * 1e9)


Main: TypeAlias = Callable[[WorkerContext], int | None]


@attrs.frozen(kw_only=True)
class WorkerSpec:
    """One worker: its main function, the descriptors that it keeps, its place in the stop.

    `main` runs in a forked child and returns when the worker was ordered to stop and has finished. A RocketError that
    it raises before it is ready ends the start of the broker, with one line of explanation.
    """

    name: str  # "selector-0": key of its block, label of its metrics
    role: str  # "selector"
    block: WorkerBlock
    main: Main
    """It returns None, or EXIT_REOPEN as its exit status."""
    keep_fds: tuple[int, ...] = ()
    stop_phase: int = StopPhase.FAST_PATH
    quiet_phase: int | None = None
    """The phase in which it receives STOP_INTAKE, if it stays to send or pass on responses until its stop_phase."""
    hang_timeout_s: float | None = 10.0
    """Seconds without a heartbeat after which it is killed and restarted; None: never."""
    restart: RestartPolicy = RestartPolicy()
    starts_on: int | None = None
    """A socket at which a connection waits for the worker when it is to be started: one that listens, or the end of a
    handoff pair. None: it is started with the broker. A process less is 4 % of idle memory (processes/boot/memory.py).
    """
    is_simple: bool = False
    """`main` imports nothing, starts no thread and draws no random number: it is little more than a loop of the C core.
    Then the interpreter is not told of the fork, which would cost each worker pages of its own, in all 6 % of idle
    memory (processes/boot/memory.py)."""
    prefers_latency: bool = False
    """The kernel is asked to run it soon after a wake-up, in short slices. For workers that do little per message."""

    @property
    def beat_s(self) -> float:
        """Seconds between two heartbeats."""
        return BEAT_MAX_S if self.hang_timeout_s is None else min(BEAT_MAX_S, self.hang_timeout_s / BEATS)

    @property
    def title(self) -> str:
        """The title that `ps` shows."""
        return f"rocketpy: {self.name.replace('-', ' ')}"
