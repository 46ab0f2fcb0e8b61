"""Queue locks: the right of one client to consume a queue in order, for 60 s, renewed by its owner every 20 s.

Each grant is written to the journal before it is answered, so that a restarted manager or broker does not grant a queue
that is still locked. If the journal was lost, no lock is granted until the last lock that it could have contained has
expired.

Source: RocketMQ 4.9 `RebalanceLockManager`; the reference loses all locks at a restart.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator, Sequence

import attrs

from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.numbers import INT_MAX
from rocketpy.remoting.limits import Limit
from rocketpy.remoting.work import result_of

from ..clock import Clock, ProcessPauses
from ..memory.journal import Found, Journal
from ..memory.lock_file import LOCK_LIFE_MS

logger = logging.getLogger(__name__)

LOCKS_PER_STEP = 200


@attrs.define
class _Lock:
    client_id: str
    renewed_ms: int


class RebalanceLockManager:
    """Which client has locked a queue for consuming it in order, and until when."""

    def __init__(
        self,
        clock: Clock,
        journal: Journal,
        *,
        unknown_until_ms: int = 0,
        lock_life_ms: int = LOCK_LIFE_MS,
        pauses: ProcessPauses | None = None,
        locks_max: Callable[[], int] = lambda: INT_MAX,
    ) -> None:
        """Start without locks.

        Args:
            unknown_until_ms: until then (monotonic) clients may hold locks that are not in the journal.
            lock_life_ms: a lock that is not renewed for so long ends.
            pauses: time in which this process did not run; it ends no lock.
            locks_max: largest number of locks, over all groups.
        """
        self.limit = Limit("locks", "queueLocksMax", locks_max)
        self._count = 0
        self._clock = clock
        self._pauses = pauses or ProcessPauses(clock)
        self._journal = journal
        self._lock_life_ms = lock_life_ms
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}
        now_ms = clock.monotonic_ms()
        self._unknown_until_ms = now_ms + lock_life_ms if journal.found is Found.LOST else unknown_until_ms
        for key, value in journal.entries.items():
            group, *queue = json.loads(key)
            client_id, renewed_ms = json.loads(value)
            lock = _Lock(client_id, min(renewed_ms, now_ms))
            self._locks.setdefault(group, {})[MessageQueue(*queue)] = lock
            self._count += 1
        result_of(self.sweep())
        if self._locks:
            logger.info("restored %d queue locks of the previous manager", len(self))

    def lock(self, group: str, queues: Sequence[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock queues that are free or expired, and renew the caller's own. Returns the queues that the caller holds
        now.

        Raises:
            RequestRefused: the limit of locks is reached; then nothing is locked.
        """
        self._pauses.check()
        now_ms = self._clock.monotonic_ms()
        known = self._locks.get(group, {})
        self.limit.check(self._count, sum(queue not in known for queue in queues))
        table = self._locks.setdefault(group, {})
        held = []
        for queue in queues:
            lock = table.get(queue)
            if self._is_others(lock, client_id, now_ms):
                continue
            self._count += lock is None
            table[queue] = _Lock(client_id, now_ms)
            self._journal.put(_key(group, queue), json.dumps([client_id, now_ms]).encode())
            held.append(queue)
        if not table:
            del self._locks[group]
        return held

    def _is_others(self, lock: _Lock | None, client_id: str, now_ms: int) -> bool:
        if lock is None:
            return now_ms < self._unknown_until_ms
        return lock.client_id != client_id and not self._is_expired(lock, now_ms)

    def unlock(self, group: str, queues: Sequence[MessageQueue], client_id: str) -> None:
        """Release the caller's locks; locks of other clients stay."""
        table = self._locks.get(group, {})
        for queue in queues:
            lock = table.get(queue)
            if lock is not None and lock.client_id == client_id:
                self._drop(group, queue)

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        lock = self._locks.get(group, {}).get(queue)
        return None if lock is None or self._is_expired(lock, self._clock.monotonic_ms()) else lock.client_id

    def sweep(self) -> Generator[None, None, None]:
        """Remove expired locks, so that the table does not keep those of former clients. Work in steps."""
        now_ms = self._clock.monotonic_ms()
        looked_at = 0
        for group in list(self._locks):
            for queue in list(self._locks.get(group, ())):
                lock = self._locks.get(group, {}).get(queue)
                if lock is not None and self._is_expired(lock, now_ms):
                    self._drop(group, queue)
                looked_at += 1
                if looked_at % LOCKS_PER_STEP == 0:
                    yield

    def __len__(self) -> int:
        return self._count

    def _drop(self, group: str, queue: MessageQueue) -> None:
        table = self._locks[group]
        del table[queue]
        self._count -= 1
        self._journal.remove(_key(group, queue))
        if not table:
            del self._locks[group]

    def _is_expired(self, lock: _Lock, now_ms: int) -> bool:
        return self._pauses.silence_ms(lock.renewed_ms, now_ms) > self._lock_life_ms


def _key(group: str, queue: MessageQueue) -> bytes:
    return json.dumps([group, queue.topic, queue.broker_name, queue.queue_id]).encode()
