"""The file `queuelocks` beside the store: queue locks outlive the broker, because their holders do.

A client that holds a queue goes on consuming it for up to 30 s while its broker is down. A starting broker trusts the
locks in the file if the same kernel is still running (then its page cache has survived any kill -9) and no other
program has used the store since. Otherwise it only knows when the last broker may have granted a lock: the newest file
of the store is not older than that by more than the kernel's write-back delay. Until such a lock has expired, no lock
is granted: `unknown_until_ms`. A first start, and one after a longer time, need not wait.

If the file cannot be created, on a full disk for example, the locks are in shared memory: they survive the manager, but
not the broker.
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import attrs

from ..clock import Clock
from .journal import Found, Journal, format_memory, half_bytes_of, is_formatted, owner_of

logger = logging.getLogger(__name__)

NAME = "queuelocks"
BYTES = 32 * 1024 * 1024  # the default queueLocksMax with the longest ASCII names, or 90 000 usual locks
LOCK_LIFE_MS = 60_000
WRITE_BACK_MS = 35_000  # after a power failure a file may be older than its content by this
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@attrs.frozen(eq=False)
class LockFile:
    """The mapped file, for `Journal`; inherited by every manager."""

    memory: memoryview
    unknown_until_ms: int
    """The time (monotonic) until which clients may hold locks that are not in the journal."""

    @classmethod
    def open(cls, root: Path, *, is_ours: bool, clock: Clock, boot_id: bytes | None = None) -> LockFile:
        """Map the file; create it again if its content cannot be trusted."""
        boot_id = _boot_id() if boot_id is None else boot_id
        last_run_ms = max(_times_ms(root), default=None)
        memory = _map(root / NAME)
        is_known = is_ours and is_formatted(memory, half_bytes_of(memory)) and owner_of(memory) == boot_id
        if is_known and Journal("queue locks", memory).found is Found.WHOLE:
            return cls(memory, unknown_until_ms=0)
        format_memory(memory, owner=boot_id, salt=int.from_bytes(os.urandom(8), "little"))
        wait_ms = 0
        if last_run_ms is not None:
            wait_ms = min(LOCK_LIFE_MS, last_run_ms + WRITE_BACK_MS + LOCK_LIFE_MS - clock.now_ms())
        if wait_ms > 0:
            logger.warning(
                "the store was in use %d s ago and its queue locks are lost: granting no lock for %d s, because "
                "clients may still hold theirs",
                max(0, clock.now_ms() - (last_run_ms or 0)) // 1000,
                wait_ms // 1000,
            )
        return cls(memory, unknown_until_ms=clock.monotonic_ms() + wait_ms if wait_ms > 0 else 0)


def _boot_id() -> bytes:
    return bytes.fromhex(BOOT_ID.read_text().strip().replace("-", ""))


def _times_ms(root: Path) -> Iterator[int]:
    """Modification times of files that a running broker often writes; none before the first start."""
    for path in (root / "checkpoint", root / NAME, *(root / "config").glob("*.json")):
        try:
            yield path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            continue


def _map(path: Path) -> memoryview:
    """Map the file, allocated in full; if that fails, map anonymous memory instead."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size != BYTES:
                os.ftruncate(descriptor, 0)
            os.posix_fallocate(descriptor, 0, BYTES)  # else a full disk would raise SIGBUS later
            return memoryview(mmap.mmap(descriptor, BYTES))
        finally:
            os.close(descriptor)
    except OSError as exc:
        logger.error(
            "cannot use %s (%s; it takes %d bytes): queue locks will be unknown after the next restart of the broker",
            path,
            exc.strerror,
            BYTES,
        )
        return memoryview(mmap.mmap(-1, BYTES))
