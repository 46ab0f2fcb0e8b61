"""One program per store: against another process, a Java-style lock, and orphaned workers."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.store.recovery import store_lock
from rocketpy.store.recovery.lifecycle import close_store, open_store
from rocketpy.store.recovery.store_lock import COPIED_AFTER_NS, StoreLock

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_on_byte_0_excludes(tmp_path: Path, config: MessageStoreConfig) -> None:
    opened = open_store(config)
    close_store(opened, clean=True)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(opened.paths.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match="store is in use"):
            open_store(config)
        holder.stdin.close()
        holder.wait()
    close_store(open_store(config), clean=True)


def test_signing_moves_the_time_and_writes_what_java_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = StoreLock(tmp_path / "lock")
    os.utime(tmp_path / "lock", ns=(1, 1))
    assert lock.mtime_ns == 1
    synced: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.pread(descriptor, 9, 0)))
    assert lock.sign() != 1 and (tmp_path / "lock").read_bytes() == b"lock"
    assert synced == [b"lock"], "else a store that a power failure has hit seems to be used by another program"
    lock.release()


def test_a_file_with_the_time_of_another_one_is_copied(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path / "lock")
    signed_ns = lock.sign()
    assert not lock.is_copied
    os.utime(tmp_path / "lock", ns=(0, signed_ns - COPIED_AFTER_NS - 1))
    assert lock.is_copied
    lock.sign()
    assert not lock.is_copied
    lock.release()


def test_workers_of_a_dead_supervisor_hold_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "ORPHANS_WAIT_S", 0.0)
    lock = StoreLock(tmp_path / "lock")
    orphan = os.dup(lock.worker_fd)
    lock.release()
    with pytest.raises(StoreError, match="workers of an earlier broker"):
        StoreLock(tmp_path / "lock")
    os.close(orphan)
    StoreLock(tmp_path / "lock").release()


def test_workers_that_end_soon_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = StoreLock(tmp_path / "lock")
    orphan = os.dup(lock.worker_fd)
    lock.release()
    monkeypatch.setattr(time, "sleep", lambda seconds: os.close(orphan))
    StoreLock(tmp_path / "lock").release()


def test_a_store_that_workers_hold_leaves_no_descriptor_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "ORPHANS_WAIT_S", 0.0)
    held = StoreLock(tmp_path / "lock")
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(StoreError, match="workers of an earlier broker"):
        StoreLock(tmp_path / "lock")
    assert sorted(os.listdir("/proc/self/fd")) == before
    held.release()


def test_a_second_release_closes_no_descriptor_of_others(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path / "lock")
    lock.release()
    others = [os.open(tmp_path, os.O_RDONLY) for _ in range(2)]  # with the same numbers
    lock.release()
    for descriptor in others:
        os.close(descriptor)


def test_a_file_system_that_has_no_record_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(StoreError, match=r"cannot lock .*lock: No locks available"):
        StoreLock(tmp_path / "lock")
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_file_system_that_has_no_flock_does_not_wait_for_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = StoreLock(tmp_path / "lock")
    assert lock.worker_fd >= 0
    lock.release()
    assert lock.worker_fd == -1


def test_a_root_that_cannot_be_made_is_one_clear_line(tmp_path: Path, config: MessageStoreConfig) -> None:
    (tmp_path / "store").write_bytes(b"a file")
    with pytest.raises(StoreError, match=r"cannot make .*store") as caught:
        open_store(config)
    assert "\n" not in str(caught.value)
