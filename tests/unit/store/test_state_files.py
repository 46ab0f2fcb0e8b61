"""checkpoint, abort, lock and control as an outsider sees them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from rocketpy.config import MessageStoreConfig
from rocketpy.store.files import DiskFiles, StorePaths
from rocketpy.store.inspection.state_files import HEADER, lock_holder, read_control, read_state
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from tests.support.store_writer import StoreWriter

FILES = DiskFiles()


def test_a_store_in_use(opened: OpenedStore, writer: StoreWriter) -> None:
    put = writer.put()
    state = read_state(FILES, opened.paths)
    assert state.in_use_by == os.getpid() and state.has_abort and not state.is_closed and state.checkpoint is None
    control = state.live_control
    assert control is not None and control.published_phy_offset == control.dispatched_phy_offset == put.size
    assert (control.queue_count, control.topic_count, control.commitlog_file_size) == (1, 1, 16_384)
    assert control.is_same_boot and not control.is_clean
    assert lock_holder(opened.paths.lock) == os.getpid()  # looking has not taken the lock away


def test_a_closed_store(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    close_store(opened, clean=True)
    state = read_state(FILES, opened.paths)
    assert state.is_closed and state.checkpoint is not None and state.live_control is None
    assert state.control is not None and state.control.is_clean and state.control.is_current
    opened.paths.lock.write_bytes(b"lock")  # another broker was here
    os.utime(opened.paths.lock, (1, 1))
    control = read_control(FILES, opened.paths)
    assert control is not None and not control.is_current


def test_no_block_or_one_of_another_version(tmp_path: Path) -> None:
    paths = StorePaths.of(tmp_path)
    assert read_control(FILES, paths) is None
    paths.control.write_bytes(b"x" * 10)
    assert read_control(FILES, paths) is None
    paths.control.write_bytes(bytes(HEADER.size))
    assert read_control(FILES, paths) is None


def test_whoever_holds_the_lock_is_named(tmp_path: Path) -> None:
    """A Java broker's lock is a POSIX lock on byte 0; one on another byte, or flock, is none of ours."""
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    script = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX, 1, int(sys.argv[2]));"
        "print(flush=True); sys.stdin.read()"
    )
    for byte, is_ours in ((0, True), (2, False)):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(byte)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        assert lock_holder(path) == (child.pid if is_ours else None)
        child.communicate()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lock_holder(path) is None
    assert lock_holder(tmp_path / "none") is None
