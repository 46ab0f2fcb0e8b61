"""Makes the answers to scrapes of a broker; if its tables are large, in a forked copy of the manager.

A copy serves nobody, so its work holds up nobody. It costs as much as the figures of a thousand topics and offsets: a
smaller broker makes its answers in the manager, in steps, and so does one that has no process or memory for a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import attrs
import trio

from rocketpy.metrics.scrape import ScrapeFailed
from rocketpy.metrics.snapshot import QueueSnapshot, Snapshot
from rocketpy.transport.steps import NoSteps, Steps, at_once

from .forked_copy import CopyFailed, ForkedCopy
from .snapshot import Observed, SnapshotTaker

_T = TypeVar("_T")

READS_PER_STEP = 200
SMALL_ENTRIES = 1_000  # topics, groups, offsets and clients together
COPY_MAX_S = 20.0
PLACE = "scrape"  # among the counted faults


@attrs.define(eq=False)
class Scrapes:
    """For threads of the endpoint, one at a time. `token`: of the loop that owns the tables."""

    take: SnapshotTaker
    token: trio.lowlevel.TrioToken
    _is_copy: bool = attrs.field(init=False, default=False)
    _observed: Observed | None = attrs.field(init=False, default=None)

    def make(self, work: Callable[[], bytes]) -> bytes:
        """Do `work`, which asks for `snapshot` or `queues`.

        Raises: ScrapeFailed.
        """
        if self.take.entries <= SMALL_ENTRIES:
            return work()
        self._observed = self.take.observe()
        try:
            begin = partial(ForkedCopy.begin, partial(self._in_copy, work), "rocketpy: scrape")
            copy = trio.from_thread.run_sync(begin, trio_token=self.token)
        except OSError:
            return work()
        try:
            return copy.result(COPY_MAX_S)
        except CopyFailed as failed:
            trio.from_thread.run_sync(self.take.controller.faults.count, PLACE, trio_token=self.token)
            raise ScrapeFailed(str(failed)) from failed

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the broker."""
        observed = self._observed if self._is_copy else None
        return self._taken(partial(self.take, observed or self.take.observe()))

    def queues(self, topics: list[str]) -> list[QueueSnapshot]:
        """Return the queues of these topics."""
        return self._taken(partial(self.take.queues, topics))

    def _in_copy(self, work: Callable[[], bytes]) -> bytes:
        self._is_copy = True
        self.take.store.open_again()
        return work()

    def _taken(self, take: Callable[[Steps], Coroutine[Any, Any, _T]]) -> _T:
        if self._is_copy:
            return at_once(take(NoSteps()))
        return trio.from_thread.run(take, Steps(READS_PER_STEP), trio_token=self.token)
