"""Limits of a micro-batch: the share of each queue, and the smallest backlog for which a batch is begun."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from rocketpy.message.message_queue import MessageQueue


def share(backlog: Mapping[MessageQueue, int], total: int | None) -> dict[MessageQueue, int]:
    """Return the number of messages of each queue that a batch takes: in proportion to the backlog, but at least one of
    each queue that has any, so that a small queue never waits for a large one. The sum may exceed `total` by this
    minimum."""
    waiting = sum(backlog.values())
    if total is None or waiting <= total:
        return dict(backlog)
    shares = {queue: max(min(count, 1), count * total // waiting) for queue, count in backlog.items()}
    left = total - sum(shares.values())
    if left <= 0:
        return shares
    for queue in sorted(backlog, key=lambda queue: (-(backlog[queue] * total % waiting), queue)):
        if left <= 0:
            break
        if shares[queue] < backlog[queue]:
            shares[queue] += 1
            left -= 1
    return shares


@attrs.define(eq=False)
class MinimumBatch:
    """Holds batches back until `count_min` messages wait or `delay_s` has passed since the last batch."""

    count_min: int | None
    delay_s: float
    clock: Callable[[], float]
    _last_s: float | None = None

    def allows(self, waiting: int, *, always: bool) -> bool:
        """Return True if a batch may begin now. With `always` the minimum does not count."""
        now_s = self.clock()
        if self._last_s is None:
            self._last_s = now_s
        if not always and self.count_min is not None:
            if waiting < self.count_min and now_s - self._last_s < self.delay_s:
                return False
            if not waiting:
                return False
        self._last_s = now_s
        return True
