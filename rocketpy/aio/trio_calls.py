"""Functions that a trio loop calls soon, or at a time, as asyncio's loop does by itself.

One system task of trio calls them for all connections and clients of a loop: a task for each deadline would take 5 KB,
and each write of a connection a task of its own. The task begins with the first function and ends when none waits.
"""

from __future__ import annotations

import contextvars
import itertools
import logging
import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush

import trio

logger = logging.getLogger(__name__)

CANCELLED_MIN = 64  # timers that may stay in the heap beside as many that wait


class TrioTimer:
    """aio.Timer."""

    __slots__ = ("_calls", "_context", "_function")

    def __init__(self, calls: TrioCalls, function: Callable[[], object]) -> None:
        self._calls = calls
        self._function: Callable[[], object] | None = function
        self._context = contextvars.copy_context()

    @property
    def is_waiting(self) -> bool:
        return self._function is not None

    def cancel(self) -> None:
        if self._function is not None:
            self._function = None
            self._calls.cancelled()

    def call(self) -> None:
        """Call the function, once."""
        function, self._function = self._function, None
        if function is not None:
            call(self._context, function)


def call(context: contextvars.Context, function: Callable[[], object]) -> None:
    """Call a function in its context. An error of it would end the loop."""
    try:
        context.run(function)
    except Exception:
        logger.exception("a function that the event loop called has failed: %r", function)


class TrioCalls:
    """The functions that wait for their call in one loop."""

    def __init__(self) -> None:
        self._soon: list[tuple[contextvars.Context, Callable[[], object]]] = []
        self._timers: list[tuple[float, int, TrioTimer]] = []  # a heap; the numbers keep the order of equal times
        self._numbers = itertools.count()
        self._waiting_count = 0  # timers that are not cancelled
        self._is_running = False
        self._task: trio.lowlevel.Task | None = None  # while it sleeps
        self._wakes_at_s = math.inf

    def soon(self, function: Callable[[], object]) -> None:
        self._soon.append((contextvars.copy_context(), function))
        self._wake()

    def at(self, when_s: float, function: Callable[[], object]) -> TrioTimer:
        timer = TrioTimer(self, function)
        heappush(self._timers, (when_s, next(self._numbers), timer))
        self._waiting_count += 1
        if when_s < self._wakes_at_s or not self._is_running:
            self._wake()
        return timer

    def cancelled(self) -> None:
        """Forget a timer: now, if it is the last one, or if many others were cancelled as well."""
        self._waiting_count -= 1
        if not self._waiting_count:
            self._timers.clear()
            if self._is_running:
                self._wake()
        elif len(self._timers) > 2 * self._waiting_count + CANCELLED_MIN:
            self._timers = [entry for entry in self._timers if entry[2].is_waiting]
            heapify(self._timers)

    def _wake(self) -> None:
        if not self._is_running:
            self._is_running = True
            trio.lowlevel.spawn_system_task(self._run)
        elif self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    async def _run(self) -> None:
        try:
            while True:
                self._wakes_at_s = math.inf
                with trio.CancelScope() as scope:  # left at its deadline alone: a scope costs ten times a wake
                    while True:
                        self._call_soon()
                        if not self._soon and not self._waiting_count:
                            return
                        first_s = self._timers[0][0] if self._timers else math.inf
                        if first_s != scope.deadline:
                            self._wakes_at_s = scope.deadline = first_s
                        await self._sleep()
                self._call_due()
        finally:
            self._is_running, self._wakes_at_s = False, math.inf

    async def _sleep(self) -> None:
        """Wait until there is a function to call soon, or for the scope's deadline."""
        if self._soon:
            await trio.lowlevel.checkpoint()
            return
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _call_soon(self) -> None:
        soon, self._soon = self._soon, []
        for context, function in soon:
            call(context, function)

    def _call_due(self) -> None:
        now_s, due = trio.current_time(), list[TrioTimer]()
        while self._timers and self._timers[0][0] <= now_s:
            due.append(heappop(self._timers)[2])
        for timer in due:
            if timer.is_waiting:
                self._waiting_count -= 1
                timer.call()


_CALLS: trio.lowlevel.RunVar[TrioCalls] = trio.lowlevel.RunVar("functions that a loop calls")


def calls_of_loop() -> TrioCalls:
    """Return those of the running loop."""
    try:
        return _CALLS.get()
    except LookupError:
        calls = TrioCalls()
        _CALLS.set(calls)
        return calls
