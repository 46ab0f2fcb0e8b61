"""Which client may consume which queue in order: locks of 60 s, renewed by their owner every 20 s.

Memory only: after a restart clients lock again on their next round.

Source: RocketMQ 4.9 `RebalanceLockManager`.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from rocketpy.message.message_queue import MessageQueue

from ..clock import Clock

LOCK_LIFE_MS = 60_000


@attrs.define
class _Lock:
    client_id: str
    renewed_ms: int


class RebalanceLockManager:
    def __init__(self, clock: Clock, *, lock_life_ms: int = LOCK_LIFE_MS) -> None:
        self._clock = clock
        self._lock_life_ms = lock_life_ms
        self._locks: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Take or renew what is free, ours or expired; returns the queues that the caller holds now."""
        now_ms = self._clock.monotonic_ms()
        table = self._locks.setdefault(group, {})
        held = []
        for queue in queues:
            lock = table.get(queue)
            if lock is not None and lock.client_id != client_id and not self._is_expired(lock, now_ms):
                continue
            table[queue] = _Lock(client_id, now_ms)
            held.append(queue)
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release the caller's own locks; those of others stay."""
        table = self._locks.get(group, {})
        for queue in queues:
            lock = table.get(queue)
            if lock is not None and lock.client_id == client_id:
                del table[queue]
        if not table:
            self._locks.pop(group, None)

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        lock = self._locks.get(group, {}).get(queue)
        return None if lock is None or self._is_expired(lock, self._clock.monotonic_ms()) else lock.client_id

    def sweep(self) -> None:
        """Forget expired locks, so that the table does not grow with clients that are gone."""
        now_ms = self._clock.monotonic_ms()
        for group, table in list(self._locks.items()):
            for queue in [queue for queue, lock in table.items() if self._is_expired(lock, now_ms)]:
                del table[queue]
            if not table:
                del self._locks[group]

    def __len__(self) -> int:
        return sum(map(len, self._locks.values()))

    def _is_expired(self, lock: _Lock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms > self._lock_life_ms
