"""All that a worker is born with. What its spec does not name is closed first thing in the child."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from .ring import WorkerBlock


class StopPhase:
    """When workers are told to leave, lowest first: whoever still answers goes after those who ask."""

    INTAKE = 0  # acceptor leaves, selectors read no more
    CODECS = 10
    MANAGERS = 20
    PROCESSORS = 30
    STORE = 40
    SELECTORS = 50


@attrs.frozen
class RestartPolicy:
    """At most `limit` restarts within `window_s`: the first at once, the others after doubling, jittered waits."""

    limit: int = 10
    window_s: float = 60.0
    backoff_s: float = 0.05
    backoff_max_s: float = 5.0

    def delay_s(self, restarts_in_window: int, jitter: float) -> float:
        """Wait before a restart that follows `restarts_in_window` others; `jitter` is in [0, 1)."""
        if restarts_in_window == 0:
            return 0.0
        whole: float = min(self.backoff_max_s, self.backoff_s * 2 ** (restarts_in_window - 1))
        return whole * (0.5 + jitter / 2)


@attrs.frozen
class WorkerContext:
    """What a worker's main is handed in the child."""

    name: str
    block: WorkerBlock
    report_ready: Callable[[], None]
    """To be called once it serves: the supervisor reports readiness when all have."""


@attrs.frozen(kw_only=True)
class WorkerSpec:
    """One worker: how it starts, what it keeps, when it stops.

    `main` runs in a forked child and returns when the worker has been told to leave and is done. A RocketError that it
    raises before it is ready is a reason not to start, shown as one line.
    """

    name: str  # "selector-0": key of its block, label of its metrics
    role: str  # "selector"
    block: WorkerBlock
    main: Callable[[WorkerContext], None]
    keep_fds: tuple[int, ...] = ()
    stop_phase: int = StopPhase.PROCESSORS
    quiet_phase: int | None = None
    """When it is told STOP_INTAKE, if it is to stay and answer until its stop_phase."""
    hang_timeout_s: float | None = 10.0
    """Without a heartbeat for so long it is killed and replaced; None: never."""
    restart: RestartPolicy = RestartPolicy()
    is_simple: bool = False
    """`main` imports nothing, starts no thread and draws no random number: it is little more than a loop of the C core.
    Then the interpreter is not told of the fork, which would cost the worker half a megabyte of pages of its own."""
    is_hot: bool = False
    """It does little per message and hands on: the kernel is asked to run it in short slices, soon after a wake-up."""

    @property
    def title(self) -> str:
        """How `ps` shows it."""
        return f"rocketpy: {self.name.replace('-', ' ')}"
