"""The broker's locks on an ordered consumer's queues: taken, renewed, given back.

Source: RocketMQ 4.9 `RebalanceImpl#lock`, `#lockAll`, `#unlock`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

import attrs

from rocketpy.errors import RocketError
from rocketpy.message.message_queue import MessageQueue

from ..cluster.brokers import Brokers
from .process_queue import ProcessQueue

logger = logging.getLogger(__name__)

FIRST_LOCK_S = 1.0


@attrs.frozen(eq=False)
class QueueLocks:
    """Locks of the queues in `queues`, the rebalancer's table."""

    group: str
    brokers: Brokers
    queues: Mapping[MessageQueue, ProcessQueue]
    now_ms: Callable[[], int]

    async def lock_all(self) -> None:
        """Renew all locks: on the broker they live 60 s, here they count for 30 s."""
        queues = list(self.queues)
        try:
            locked = await self.brokers.lock(self.group, queues)
        except RocketError as error:
            logger.warning("group %s: cannot renew queue locks: %s", self.group, error)
            return
        for queue in queues:
            self._mark(queue, queue in locked)

    async def lock(self, queue: MessageQueue) -> bool:
        try:
            locked = queue in await self.brokers.lock(self.group, [queue])
        except RocketError as error:
            logger.warning("group %s: cannot lock queue %s: %s", self.group, queue, error)
            return False
        self._mark(queue, locked)
        return locked

    def _mark(self, queue: MessageQueue, locked: bool) -> None:
        process_queue = self.queues.get(queue)
        if process_queue is not None:
            process_queue.locked = locked
            if locked:
                process_queue.last_lock_ms = self.now_ms()

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        try:
            await self.brokers.unlock(self.group, queues)
        except RocketError as error:
            logger.warning("group %s: cannot unlock queues: %s; the broker does it after 60 s", self.group, error)
