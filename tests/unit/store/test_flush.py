"""The durable position: across files, only forwards, and never after a failed sync."""

from __future__ import annotations

import os
import resource
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy.native import Status
from rocketpy.native.core import ffi, lib
from rocketpy.store.control_block import RunningFlag
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.broker import disk_directory
from tests.support.store_writer import StoreWriter, small_config


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory whose files have times that follow writes."""
    with disk_directory() as directory:
        yield Path(directory)


@pytest.fixture
def flush(opened: OpenedStore) -> Iterator[Any]:
    flush = lib.rp_flush_open(os.fsencode(opened.paths.commitlog), opened.control.header)
    assert flush != ffi.NULL
    yield flush
    lib.rp_flush_close(flush)


def test_flush_follows_the_published_position(flush: Any, writer: StoreWriter) -> None:
    assert lib.rp_flush_log(flush) == Status.EMPTY
    for i in range(10):
        writer.put(body=b"x" * 4_000, store_timestamp_ms=1_000 + i)
    assert lib.rp_flush_log(flush) == Status.OK
    control = writer.control
    assert control.durable_phy_offset == control.published_phy_offset > 2 * 16_384
    assert control.header.physic_timestamp_ms == 1_009
    assert lib.rp_flush_log(flush) == Status.EMPTY
    counts = ffi.new("rp_flush_counts *")
    lib.rp_flush_read_counts(flush, counts)
    assert counts.flushes == 1


def test_a_failed_sync_is_never_forgotten(flush: Any, writer: StoreWriter, opened: OpenedStore) -> None:
    writer.put()
    moved = opened.paths.root / "elsewhere"
    opened.paths.commitlog.rename(moved)
    assert lib.rp_flush_log(flush) == Status.IO_ERROR
    moved.rename(opened.paths.commitlog)
    assert lib.rp_flush_log(flush) == Status.IO_ERROR  # what it could not sync may be lost
    assert writer.control.durable_phy_offset == 0


def test_a_restarted_worker_does_not_trust_the_next_success(
    flush: Any, writer: StoreWriter, opened: OpenedStore
) -> None:
    """The kernel reports a failure once, and calls clean what it could not write. Only a new opening, which looks at
    every record behind the durable position and writes it again, makes the log durable.
    Fault: A store worker that followed a failed fsync trusted the next success and called lost bytes durable."""
    writer.put()
    assert lib.rp_flush_log(flush) == Status.OK
    durable = writer.control.durable_phy_offset
    assert writer.control.header.flush_begun == 1
    put = writer.put()
    moved = opened.paths.root / "elsewhere"
    opened.paths.commitlog.rename(moved)
    second = lib.rp_flush_open(os.fsencode(opened.paths.commitlog), opened.control.header)
    assert lib.rp_flush_log(second) == Status.IO_ERROR
    lib.rp_flush_close(second)
    moved.rename(opened.paths.commitlog)
    assert opened.control.header.running_flags == RunningFlag.NOT_WRITEABLE  # set by who failed: it may die at once
    for _ in range(2):
        restarted = lib.rp_flush_open(os.fsencode(opened.paths.commitlog), opened.control.header)
        assert lib.rp_flush_log(restarted) == Status.IO_ERROR
        lib.rp_flush_close(restarted)
    assert writer.control.durable_phy_offset == durable
    writer.close()
    close_store(opened, clean=False)
    again = open_store(opened.config)
    assert again.report.kind is RecoveryKind.FLUSHED and again.report.scanned_records == 1
    assert again.control.durable_phy_offset == durable
    assert again.control.published_phy_offset == put.phy_offset + put.size
    assert again.control.header.running_flags == 0
    last = lib.rp_flush_open(os.fsencode(again.paths.commitlog), again.control.header)
    assert lib.rp_flush_log(last) == Status.OK
    assert again.control.durable_phy_offset == again.control.published_phy_offset
    lib.rp_flush_close(last)
    close_store(again, clean=True)


def test_a_restarted_worker_writes_again_what_is_not_durable(on_disk: Path) -> None:
    """The previous one may have died with a failed sync that nobody knows of. The kernel says that the pages are clean:
    whether they were written again shows in the file's time."""
    opened = open_store(small_config(on_disk / "store"))
    with StoreWriter(small_config(on_disk / "store"), opened.control) as writer:
        check_that_clean_pages_are_written_again(writer, opened)
    close_store(opened, clean=False)


def check_that_clean_pages_are_written_again(writer: StoreWriter, opened: OpenedStore) -> None:
    writer.put(body=b"x" * 12_000)
    writer.put(body=b"x" * 12_000)  # in the second file
    paths = [opened.paths.commitlog / f"{start:020d}" for start in (0, 16_384)]
    for path in paths:
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        os.utime(path, (1, 1))
    opened.control.header.flush_begun = 1
    restarted = lib.rp_flush_open(os.fsencode(opened.paths.commitlog), opened.control.header)
    assert lib.rp_flush_log(restarted) == Status.OK
    lib.rp_flush_close(restarted)
    assert [path.stat().st_mtime > 1 for path in paths] == [True, True]


def test_files_deleted_by_cleaning_are_passed_over(flush: Any, writer: StoreWriter, opened: OpenedStore) -> None:
    for _ in range(10):
        writer.put(body=b"x" * 4_000)
    opened.control.header.min_phy_offset = 16_384
    (opened.paths.commitlog / f"{0:020d}").unlink()
    assert lib.rp_flush_log(flush) == Status.OK
    assert writer.control.durable_phy_offset == writer.control.published_phy_offset


def test_one_sync_serves_all_that_wait_and_stops_when_told(flush: Any, writer: StoreWriter) -> None:
    """Holds: store, synchronous flush in groups."""
    outcomes: list[int] = []

    def serve() -> None:
        while not outcomes or outcomes[-1] != Status.STOPPED:
            outcomes.append(lib.rp_flush_serve(flush, ffi.NULL, 10_000_000_000))

    thread = threading.Thread(target=serve)
    for _ in range(5):
        writer.put()
    thread.start()
    lib.rp_flush_wake(flush)
    lib.rp_flush_stop(flush)
    thread.join(30)
    assert outcomes[0] == Status.OK and outcomes[-1] == Status.STOPPED and outcomes.count(Status.OK) == 1
    assert writer.control.durable_phy_offset == writer.control.published_phy_offset


def test_a_log_that_is_gone_is_an_error(writer: StoreWriter, opened: OpenedStore, flush: Any) -> None:
    writer.put()
    writer.close()
    shutil.rmtree(opened.paths.commitlog)
    assert lib.rp_flush_log(flush) == Status.IO_ERROR


def test_a_batch_of_dispatch_does_not_keep_a_flush_waiting(flush: Any, writer: StoreWriter) -> None:
    """What is published while a batch is collected and written is waited for: nobody else would wake the flush thread
    before the batch is done, and a batch over very many queues takes long.
    Fault: Under sync flush, sends waited for a whole batch of dispatch, or for 500 ms."""
    hour_ns = 3_600_000_000_000
    thread = threading.Thread(target=lambda: lib.rp_flush_wait(flush, 1, hour_ns))
    thread.start()  # sees nothing to flush, and waits, or sees all of it
    lib.rp_dispatch_set_watchers(writer.dispatch.handle, ffi.NULL, flush)
    control = writer.control
    for number in range(300):
        writer.put(f"T{number}", 0, dispatch=False)
    writer.dispatch.run_to_end()
    thread.join(60)
    is_waiting = thread.is_alive()
    lib.rp_flush_stop(flush)
    thread.join(60)
    assert not is_waiting
    assert control.dispatched_phy_offset == control.published_phy_offset


@pytest.mark.parametrize("is_restarted", [False, True])
def test_without_descriptors_a_flush_is_tried_again(
    flush: Any, writer: StoreWriter, opened: OpenedStore, is_restarted: bool
) -> None:
    """Nothing was synced, so nothing can have failed; and the file's name is still to be synced.
    Fault: A flush without a free descriptor counted as a failed sync: no message was taken until a restart."""
    writer.control.header.flush_begun = is_restarted
    writer.put()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        assert lib.rp_flush_log(flush) == Status.NO_MEMORY
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))
        assert lib.rp_flush_log(flush) == Status.NO_MEMORY  # one for the file, none for its directory
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not writer.control.header.running_flags and writer.control.durable_phy_offset == 0
    assert lib.rp_flush_log(flush) == Status.OK
    assert writer.control.durable_phy_offset == writer.control.published_phy_offset
