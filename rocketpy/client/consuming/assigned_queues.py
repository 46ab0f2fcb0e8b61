"""The queues assigned to a pull consumer, and which of them are paused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from rocketpy import aio
from rocketpy.message.message_queue import MessageQueue

from .process_queue import ProcessQueue
from .pull_loop import PullLoop


@attrs.define(eq=False)
class AssignedQueue:
    """State of an assigned queue: the loop that pulls it, and an event that is set while it may."""

    process_queue: ProcessQueue
    unpaused: aio.Event
    pulls: PullLoop | None = None

    def end_pulls(self) -> None:
        if self.pulls is not None:
            self.pulls.end()


class AssignedQueues(Mapping[MessageQueue, AssignedQueue]):
    """By queue. A queue may be paused before it is assigned, and stays paused when it is assigned again."""

    def __init__(self) -> None:
        self._assigned: dict[MessageQueue, AssignedQueue] = {}
        self._paused: set[MessageQueue] = set()

    def __getitem__(self, queue: MessageQueue) -> AssignedQueue:
        return self._assigned[queue]

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(self._assigned)

    def __len__(self) -> int:
        return len(self._assigned)

    def add(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        """Add a queue, or replace its state."""
        unpaused = aio.Event()
        if queue not in self._paused:
            unpaused.set()
        self._assigned[queue] = AssignedQueue(process_queue, unpaused)

    def remove(self, queue: MessageQueue) -> None:
        """Remove a queue, if it is assigned, and end its pulls."""
        assigned = self._assigned.pop(queue, None)
        if assigned is not None:
            assigned.end_pulls()

    def pause(self, queue: MessageQueue) -> None:
        self._paused.add(queue)
        if (assigned := self._assigned.get(queue)) and assigned.unpaused.is_set():
            assigned.unpaused = aio.Event()

    def resume(self, queue: MessageQueue) -> None:
        self._paused.discard(queue)
        if assigned := self._assigned.get(queue):
            assigned.unpaused.set()

    async def wait_unpaused(self, queue: MessageQueue) -> None:
        """Wait while the queue is assigned and paused."""
        while (assigned := self._assigned.get(queue)) is not None and not assigned.unpaused.is_set():
            await assigned.unpaused.wait()
