"""The file `lock`: one program per store, Java brokers included.

It is a POSIX record lock on byte 0, like Java's FileChannel.tryLock(0, 1, false), taken before anything is read or
changed (Java takes it only after its recovery). Such a lock belongs to a process, and is released when this process
closes any descriptor of the file. The supervisor holds it; workers are other processes, and cannot release it.

A second lock shows whether workers of a killed supervisor are still running: flock() on the root directory belongs to
the open file, which forked workers share (`worker_fd`, kept open by every worker that writes). It is free when the last
of them has ended.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from rocketpy.errors import StoreError
from rocketpy.native.core import ffi, lib

from ..files import translated

LOCK_TEXT = b"lock"  # content that Java writes
COPIED_AFTER_NS = 1_000_000  # a write sets both times of a file at once; some file systems need a moment
ORPHANS_WAIT_S = 5.0  # workers die with their supervisor, after a moment
ORPHANS_POLL_S = 0.02
AT_EMPTY_PATH, STATX_BTIME = 0x1000, 0x800
NS_PER_S = 1_000_000_000


class StoreLock:
    """Both locks of an open store, held from the constructor to `release`."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            StoreError: the store is in use, or the file cannot be written.
        """
        self._path = path
        self.worker_fd = -1
        with translated(path, "open"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as exc:
            os.close(self._descriptor)
            if exc.errno not in (errno.EACCES, errno.EAGAIN):
                raise StoreError(f"cannot lock {path}: {exc.strerror}") from exc
            raise StoreError(
                f"the store is in use: another broker holds {path}; stop it, or choose another storePathRootDir"
            ) from exc
        try:
            self.worker_fd = _lock_for_workers(path.parent)
        except BaseException:
            self.release()
            raise

    @property
    def mtime_ns(self) -> int:
        """Time of the last write to the file; every program that takes the lock writes it."""
        return os.fstat(self._descriptor).st_mtime_ns

    @property
    def is_copied(self) -> bool:
        """Return True if the file has its time from another file: this store was put here by `cp -a`, tar or rsync.

        A write sets mtime and ctime; only mtime can be copied. A new owner or mode of the file also makes this True.
        """
        found = os.fstat(self._descriptor)
        return found.st_ctime_ns - found.st_mtime_ns > COPIED_AFTER_NS

    @property
    def born_ns(self) -> int:
        """Time of birth of the file. Unlike all other times it belongs to no copy, and a new owner, mode, or name keeps
        it. 0: the file system has none."""
        return birth_ns(self._descriptor)

    def sign(self) -> int:
        """Write the content that Java writes. Returns the new mtime, by which a later start detects that another
        program has used the store."""
        with translated(self._path, "write"):
            os.pwrite(self._descriptor, LOCK_TEXT, 0)
            os.fsync(self._descriptor)
        return self.mtime_ns

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self.worker_fd >= 0:
            os.close(self.worker_fd)
            self.worker_fd = -1


def birth_ns(descriptor: int) -> int:
    """Return the time of birth of an open file; 0: it is not known."""
    found = ffi.new("struct statx *")
    if lib.statx(descriptor, b"", AT_EMPTY_PATH, STATX_BTIME, found) or not found.stx_mask & STATX_BTIME:
        return 0
    return int(found.stx_btime.tv_sec) * NS_PER_S + int(found.stx_btime.tv_nsec)


def _lock_for_workers(root: Path) -> int:
    """A descriptor of the directory, locked exclusively as long as any process holds a copy of it."""
    with translated(root, "open"):
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + ORPHANS_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError as exc:
            if exc.errno != errno.EWOULDBLOCK:
                return descriptor  # no such locks on this file system: do not wait for workers
            if time.monotonic() >= deadline:
                os.close(descriptor)
                raise StoreError(
                    f"the store is in use: workers of an earlier broker still hold {root}; wait until they have ended"
                ) from exc
        time.sleep(ORPHANS_POLL_S)
