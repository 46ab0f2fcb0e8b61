"""The upkeep of etcd: its alarms and the size of its database, and the history that nobody needs.

An etcd whose database has reached its quota takes no writes, so no master can be elected, while all else looks well. It
keeps each value that a key ever had until its history is compacted.
"""

from __future__ import annotations

import logging
from collections import deque

import attrs

from rocketpy.errors import RocketError

from .gateway import EtcdStatus, Gateway

LOOK_S = 10.0
MARKS_MAX = 32  # of the history, between now and what is compacted next
QUOTA_BYTES = 2 << 30  # unless etcd is started with another one
NEAR_QUOTA_RATIO = 0.75
_log = logging.getLogger(__name__)


def remedy(status: EtcdStatus) -> str:
    """Return the task of an operator, if etcd has an alarm or is about to; empty: there is none."""
    if status.alarms:
        return (
            "it takes no writes, so no master can be elected: compact and defragment it, or raise "
            "--quota-backend-bytes, then `etcdctl alarm disarm`"
        )
    if status.db_bytes > QUOTA_BYTES * NEAR_QUOTA_RATIO:
        return "defragment it (`etcdctl defrag`), or raise --quota-backend-bytes, before it takes no writes"
    return ""


@attrs.define(eq=False)
class Upkeep:
    """The upkeep of one etcd by one member.

    Args:
        keep_s: haEtcdCompactHours, in seconds; history older than this is removed by the master. 0: none is.
    """

    gateway: Gateway
    keep_s: float
    status: EtcdStatus = attrs.field(factory=EtcdStatus)
    _told: str = ""
    _marks: deque[tuple[float, int]] = attrs.field(factory=deque)  # revisions, with the time when they were the last

    async def look(self, now_s: float, *, is_master: bool) -> None:
        """Read the state of etcd, and tell what has changed; as master, remove old history. Call it every LOOK_S."""
        self.status = await self.gateway.status()
        self._tell()
        await self._compact(now_s, is_master)

    def _tell(self) -> None:
        task = remedy(self.status)
        if task == self._told:
            return
        self._told = task
        size = f"{self.status.db_bytes / 1e6:.0f} MB"
        if task:
            _log.error("failover: etcd has %s, and its database %s: %s", self.status.alarms or "no alarm", size, task)
        else:
            _log.warning("failover: etcd has no alarm any more; its database has %s", size)

    async def _compact(self, now_s: float, is_master: bool) -> None:
        if not self.keep_s:
            return
        if not self._marks or now_s >= self._marks[-1][0] + self.keep_s / MARKS_MAX:
            self._marks.append((now_s, self.status.revision))
        old = 0
        while self._marks and self._marks[0][0] <= now_s - self.keep_s:
            old = self._marks.popleft()[1]
        if old and is_master:
            try:
                await self.gateway.compact(old)
            except RocketError as exc:
                raise RocketError(f"history of etcd up to revision {old} cannot be compacted: {exc}") from exc
