"""Rebalance: updates the assigned queues of this member, every 20 s, and at once when the broker requests it.

A round computes the share (allocation.py), releases queues that left it and takes new ones. It changes nothing for a
topic whose queues or members are unknown.
Source: RocketMQ 4.9 `RebalanceImpl`, `RebalanceService`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import attrs

from rocketpy import aio
from rocketpy.errors import RocketError
from rocketpy.message.message_queue import MessageQueue

from ..allocation import Allocation, queue_order, share_of
from ..cluster.jobs import Job, Jobs
from ..options import ConsumeMode
from .process_queue import ProcessQueue

logger = logging.getLogger(__name__)


class QueueOwner(Protocol):
    """The consumer's side of a rebalance."""

    @property
    def topics(self) -> Collection[str]:
        """Topics that are subscribed to now."""

    async def readable_queues(self, topic: str) -> Collection[MessageQueue]:
        """All queues of the topic; empty when its route is not known."""

    async def member_ids(self, topic: str) -> Collection[str]:
        """Client ids of the group. Raises RocketError if no broker answered."""

    async def acquire(self, queue: MessageQueue) -> tuple[ProcessQueue, int] | None:
        """Take a queue: lock it if necessary, find its start offset. None: try again in the next round."""

    def begin_pulling(self, queue: MessageQueue, process_queue: ProcessQueue, offset: int) -> None: ...

    async def release(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        """Release a dropped queue: store its offset, unlock it. False: try again in the next round."""

    async def queues_changed(self, topic: str, mine: Collection[MessageQueue]) -> None: ...


@attrs.define(eq=False)
class Rebalancer:
    """The table of owned queues and the job that maintains it. One per consumer."""

    group: str
    client_id: str
    mode: ConsumeMode
    allocation: Allocation
    owner: QueueOwner
    now_ms: Callable[[], int]
    queues: dict[MessageQueue, ProcessQueue] = attrs.field(init=False, factory=dict)
    _closed: bool = attrs.field(init=False, default=False)
    _job: Job | None = attrs.field(init=False, default=None)
    _lock: aio.Lock = attrs.field(init=False, factory=aio.Lock)

    def start(self, jobs: Jobs, interval_s: float) -> None:
        """Begin the rounds."""
        self._job = jobs.every(interval_s, self.rebalance)

    def wake(self) -> None:
        """Start a round as soon as the current one is over."""
        if self._job is not None:
            self._job.wake()

    def close(self) -> None:
        """The consumer stops: take no more queues, even in a running round."""
        self._closed = True
        if self._job is not None:
            self._job.end()

    async def rebalance(self) -> None:
        async with self._lock:
            topics = list(self.owner.topics)
            for topic in topics:
                if self._closed:
                    return
                try:
                    await self._rebalance_topic(topic)
                except RocketError as error:
                    logger.warning(
                        "group %s: cannot rebalance topic %s: %s; keeping its assigned queues", self.group, topic, error
                    )
            for queue in [queue for queue in self.queues if queue.topic not in topics]:
                await self._give_up(queue)

    async def _rebalance_topic(self, topic: str) -> None:
        all_queues = await self.owner.readable_queues(topic)
        if not all_queues:
            logger.debug("group %s: no readable queue of topic %s is known", self.group, topic)
            return
        if self.mode is ConsumeMode.BROADCASTING:
            mine: Collection[MessageQueue] = all_queues
        else:
            member_ids = await self.owner.member_ids(topic)
            if not member_ids:
                return
            try:
                mine = share_of(self.allocation, self.client_id, all_queues, member_ids)
            except Exception:
                # The strategy may be the user's; a failing one must not end the loop.
                logger.exception(
                    "group %s: allocation strategy %s failed on topic %s; keeping its assigned queues",
                    self.group,
                    self.allocation.name,
                    topic,
                )
                return
        if await self._apply(topic, mine):
            await self.owner.queues_changed(topic, [queue for queue in self.queues if queue.topic == topic])

    async def _apply(self, topic: str, mine: Collection[MessageQueue]) -> bool:
        """Make the table agree with `mine`. Returns: whether it changed."""
        changed = False
        wanted = set(mine)
        for queue in self._owned(topic):
            if queue not in wanted:
                changed |= await self._give_up(queue)
            elif self.queues[queue].is_pull_expired(self.now_ms()):
                logger.error("group %s: queue %s was not pulled for 120 s: assigning it again", self.group, queue)
                changed |= await self._give_up(queue)
        for queue in sorted(wanted - self.queues.keys(), key=queue_order):
            changed |= await self._take(queue)
        return changed

    def _owned(self, topic: str) -> Iterable[MessageQueue]:
        return [queue for queue in self.queues if queue.topic == topic]

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            taken = await self.owner.acquire(queue)
        except RocketError as error:
            logger.warning("group %s: cannot start to consume queue %s: %s", self.group, queue, error)
            return False
        if taken is None or self._closed:
            return False
        process_queue, offset = taken
        self.queues[queue] = process_queue
        self.owner.begin_pulling(queue, process_queue, offset)
        return True

    async def _give_up(self, queue: MessageQueue) -> bool:
        process_queue = self.queues[queue]
        process_queue.drop()
        if not await self.owner.release(queue, process_queue):
            return False
        if self.queues.get(queue) is process_queue:
            del self.queues[queue]
        return True

    async def remove(self, queue: MessageQueue) -> None:
        """Drop a queue between rounds (illegal offset, reset); the next round takes it again."""
        async with self._lock:
            if queue in self.queues:
                await self._give_up(queue)

    async def drop_all(self) -> None:
        """At the end of the consumer: nothing is pulled or acknowledged any more."""
        self.close()
        async with self._lock:
            for process_queue in self.queues.values():
                process_queue.drop()
            self.queues.clear()
