"""Periodic jobs of a client. A timer begins each one, so a client that waits has no task for them.

A task that sleeps takes 3 KB under asyncio and 5 KB under trio, and a consumer had nine of them. The reference has one
thread for most of them; here a slow one does not delay the others.
Source: RocketMQ 4.9 `MQClientInstance#startScheduledTask`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from rocketpy import aio


@attrs.define(eq=False)
class Job:
    """A function that is called every `interval_s` seconds, counted from the end of a call to the begin of the next.

    A coroutine function gets a task in the nursery, whose error is the nursery's. There is at most one call at a time.
    """

    _nursery: aio.Nursery | None  # None: of a plain function, which must not raise
    _function: Callable[[], Any]
    interval_s: float
    _timer: aio.Timer | None = attrs.field(init=False, default=None)
    _is_running: bool = attrs.field(init=False, default=False)
    _is_wanted: bool = attrs.field(init=False, default=False)
    _is_over: bool = attrs.field(init=False, default=False)

    def begin_after(self, seconds: float) -> None:
        """Make the next call then."""
        self._timer = aio.call_at(aio.now_s() + seconds, self._call)

    def wake(self) -> None:
        """Call at once; if a call is running, as soon as it has ended."""
        if self._is_running:
            self._is_wanted = True
        elif not self._is_over:
            self._cancel()
            self._call()

    def end(self) -> None:
        """Begin no call any more; one that is running ends with the nursery."""
        self._is_over = True
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _call(self) -> None:
        if self._nursery is None:
            try:
                self._function()
            finally:  # a failure is logged by the loop
                self._ended()
        else:
            self._is_running = True
            self._nursery.start_soon(self._run)

    async def _run(self) -> None:
        await self._function()
        self._is_running = False
        self._ended()

    def _ended(self) -> None:
        if self._is_over:
            return
        if self._is_wanted:
            self._is_wanted = False
            self._call()
        else:
            self.begin_after(self.interval_s)


@attrs.define(eq=False)
class Jobs:
    """The jobs of one client, whose tasks live in `nursery`."""

    nursery: aio.Nursery
    _jobs: list[Job] = attrs.field(init=False, factory=list)
    _are_over: bool = attrs.field(init=False, default=False)

    def every(
        self, interval_s: float, function: Callable[[], Awaitable[object]], *, first_s: float | None = None
    ) -> Job:
        """Begin a job; its first call comes after `first_s` seconds, or after one interval."""
        return self._begin(Job(self.nursery, function, interval_s), first_s)

    def call_every(self, interval_s: float, function: Callable[[], None]) -> Job:
        """As `every`, for a plain function: it takes no task."""
        return self._begin(Job(None, function, interval_s), None)

    def _begin(self, job: Job, first_s: float | None) -> Job:
        if self._are_over:
            return job
        job.begin_after(job.interval_s if first_s is None else first_s)
        self._jobs.append(job)
        return job

    def end(self) -> None:
        """End all jobs; none begins any more."""
        self._are_over = True
        for job in self._jobs:
            job.end()
