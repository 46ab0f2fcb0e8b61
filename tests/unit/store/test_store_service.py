"""The store worker, run in a thread, joined by real rings to a test that plays send, pull and manager."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from rocketpy.config import FlushDiskType, MessageStoreConfig
from rocketpy.native.core import ffi, lib
from rocketpy.store.files import DiskFiles, file_name
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore
from rocketpy.store.services import housekeeping, store_service
from rocketpy.store.services.store_service import StoreSeams, StoreService
from tests.support.shared_memory import remove_ring, worker_block
from tests.support.store_writer import StoreWriter
from tests.support.waiting import wait_until


@attrs.define
class Rig:
    """A running store worker and the other ends of its rings."""

    opened: OpenedStore
    worker: Any
    pull_in: Any
    manager_out: Any
    manager_in: Any
    thread: threading.Thread | None = None
    errors: list[BaseException] = attrs.field(factory=list)

    def wake(self) -> None:
        lib.rp_worker_wake(self.worker, 1)

    def read(self, reader: Any) -> tuple[int, bytes] | None:
        data, size, kind = ffi.new("const uint8_t **"), ffi.new("uint32_t *"), ffi.new("uint16_t *")
        if lib.rp_ring_read(reader, data, size, kind):
            return None
        record = bytes(ffi.buffer(data[0], size[0]))
        lib.rp_ring_release(reader)
        return kind[0], record

    def wait_record(self, reader: Any) -> tuple[int, bytes]:
        found: list[tuple[int, bytes]] = []

        def look() -> bool:
            record = self.read(reader)
            if record is not None:
                found.append(record)
            return bool(found)

        wait_until(lambda: look() or bool(self.errors), "a record on the ring")
        assert not self.errors
        return found[0]

    def stop(self) -> None:
        self.worker.stop = 1
        self.wake()
        assert self.thread is not None
        self.thread.join(30)
        assert not self.thread.is_alive()


def take_as_durable(writer: StoreWriter) -> None:
    """Set the durable positions to the end of the log. A flush that was on its way can set them back."""
    header = writer.control.header
    header.durable_phy_offset = header.units_durable_phy_offset = header.published_phy_offset


@pytest.fixture
def flush_disk_type() -> FlushDiskType:
    return FlushDiskType.ASYNC_FLUSH


@pytest.fixture
def changes() -> dict[str, Any]:
    return {}


class FaultyFiles(DiskFiles):
    """A disk one of whose calls fails, as the operating system says it, while `failing` names it."""

    def __init__(self) -> None:
        self.failing = ""
        self.failures = 0

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name == super().__getattribute__("__dict__").get("failing"):
            self.failures += 1
            raise OSError(errno.EIO, "Input/output error")
        return super().__getattribute__(name)


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def rig(
    config: MessageStoreConfig,
    opened: OpenedStore,
    flush_disk_type: FlushDiskType,
    changes: dict[str, Any],
    files: FaultyFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Rig]:
    monkeypatch.setattr(housekeeping, "ALLOCATE_INTERVAL_S", 0.02)
    monkeypatch.setattr(store_service, "RETRY_S", 0.02)
    worker, pull, manager = (worker_block(index) for index in range(3))
    to_pull = lib.rp_ring_create(65_536, worker, pull)
    to_manager = lib.rp_ring_create(65_536, worker, manager)
    from_manager = lib.rp_ring_create(65_536, manager, worker)
    seams = StoreSeams(
        worker=worker,
        pulls=[lib.rp_ring_writer_open(to_pull)],
        manager_in=lib.rp_ring_reader_open(from_manager),
        manager_out=lib.rp_ring_writer_open(to_manager),
        send=pull,
    )
    rig = Rig(
        opened,
        worker,
        lib.rp_ring_reader_open(to_pull),
        lib.rp_ring_writer_open(from_manager),
        lib.rp_ring_reader_open(to_manager),
    )
    changed = attrs.evolve(config, flush_disk_type=flush_disk_type, **changes)
    service = StoreService(changed, opened.control, seams, files)

    def run() -> None:
        try:
            service.run(lambda: setattr(worker, "ready", 1))
        except BaseException as exc:
            rig.errors.append(exc)

    rig.thread = threading.Thread(target=run)
    rig.thread.start()
    wait_until(lambda: worker.ready == 1 or bool(rig.errors), "the worker's readiness")
    yield rig
    if rig.thread.is_alive():
        rig.stop()
    for ring in (to_pull, to_manager, from_manager):
        remove_ring(ring)
    assert not rig.errors


def test_dispatches_and_tells_who_watches(rig: Rig, writer: StoreWriter, store: MessageStore) -> None:
    """Holds: store, queues and index dispatched from the log."""
    queue = writer.control.add_queue(b"T", 4)
    queue.watched = 1
    writer.put("T", 4, dispatch=False)
    rig.wake()
    kind, record = rig.wait_record(rig.pull_in)
    assert kind == lib.RP_MSG_ARRIVAL
    index = ffi.from_buffer("rp_msg_arrival *", record).queue
    assert lib.rp_control_queue(writer.control.block, index) == queue
    assert queue.watched == 0 and store.max_offset("T", 4) == 1
    writer.put("T", 4, dispatch=False)
    rig.wake()
    wait_until(lambda: store.max_offset("T", 4) == 2, "dispatch")
    assert rig.read(rig.pull_in) is None  # nobody watched


def clean_topic(rig: Rig, topic: bytes) -> None:
    """Ask, and wait for the answer."""
    request = bytes(ffi.buffer(ffi.new("rp_msg_clean_topic *", {"token": 77, "topic_size": len(topic)}))) + topic
    data = ffi.from_buffer(request)
    assert lib.rp_ring_write(rig.manager_out, lib.RP_MSG_CLEAN_TOPIC, [{"data": data, "size": len(request)}], 1) == 0
    lib.rp_ring_wake(rig.manager_out)
    assert rig.wait_record(rig.manager_in) == (lib.RP_MSG_CLEANED, request)


def test_clean_topic_removes_what_was_deleted_and_answers(rig: Rig, writer: StoreWriter, store: MessageStore) -> None:
    for queue_id in range(3):
        writer.put("Old", queue_id, dispatch=False)
    writer.put("Kept", 0, dispatch=False)
    writer.control.delete_queues("Old")
    writer.control.delete_units("Old", writer.control.published_phy_offset)
    clean_topic(rig, b"Old")
    assert not (rig.opened.paths.consumequeue / "Old").exists()
    assert store.max_offset("Old", 1) == 0 and store.max_offset("Kept", 0) == 1  # its queues are not there
    assert writer.put("Old", 1, dispatch=False).queue_offset == 1  # offsets go on
    rig.wake()
    wait_until(lambda: store.max_offset("Old", 1) == 2, "dispatch into the new queue")
    assert store.min_offset("Old", 1) == 1 and store.is_whole("Old", 1)


def test_what_was_put_since_the_topic_was_deleted_stays(rig: Rig, writer: StoreWriter, store: MessageStore) -> None:
    """The topic was created again before the store had removed what it held.
    Fault: A topic deleted while producers sent lost the units of messages acknowledged after the deletion."""
    for _ in range(120):  # files of 50 units
        writer.put("Old", 0, dispatch=False)
    writer.control.delete_queues("Old")
    below = writer.control.published_phy_offset
    kept = [writer.put("Old", 0, dispatch=False) for _ in range(3)]
    writer.control.delete_units("Old", below)
    clean_topic(rig, b"Old")
    assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (120, 123)
    for put in kept:
        assert store.get_message("Old", 0, put.queue_offset, 1).records == [put.image]
    assert [path.name for path in (rig.opened.paths.consumequeue / "Old" / "0").iterdir()] == [file_name(100 * 20)]
    assert store.is_whole("Old", 0)


def test_a_directory_that_cannot_be_removed_ends_nothing(
    rig: Rig, writer: StoreWriter, store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A leftover dotfile keeps the directory and nothing else; a directory in place of a file is reported.
    Fault: A dotfile in a deleted queue's directory ended the store worker repeatedly, and then the broker."""
    for topic in ("Dot", "Odd"):
        writer.put(topic, 0, dispatch=False)
    rig.wake()
    wait_until(lambda: store.max_offset("Odd", 0) == 1, "dispatch")
    dotfile = rig.opened.paths.consumequeue / "Dot" / "0" / ".nfs0001"
    dotfile.touch()
    (rig.opened.paths.consumequeue / "Odd" / "0" / "directory").mkdir()
    for topic in ("Dot", "Odd"):
        writer.control.delete_queues(topic)
        writer.control.delete_units(topic, writer.control.published_phy_offset)
        clean_topic(rig, topic.encode())
    assert [path.name for path in dotfile.parent.iterdir()] == [".nfs0001"]
    assert "cannot remove files of a consume queue" in caplog.text
    for topic in ("Dot", "Odd"):
        assert writer.put(topic, 0, dispatch=False).queue_offset == 1
    rig.wake()
    wait_until(lambda: store.max_offset("Odd", 0) == 2, "dispatch goes on")


def test_clean_expired_drops_the_files_of_queues_without_messages(
    rig: Rig, writer: StoreWriter, store: MessageStore
) -> None:
    writer.put("Old", 2, dispatch=False)
    writer.put("Kept", 0, body=b"x" * 16_200, dispatch=False)  # in the second file
    rig.wake()
    wait_until(lambda: store.max_offset("Kept", 0) == 1, "dispatch")
    writer.control.header.min_phy_offset = 16_384  # as if the first log file had gone
    request = bytes(ffi.buffer(ffi.new("rp_msg_clean_topic *")))
    spans = [{"data": ffi.from_buffer(request), "size": len(request)}]
    assert lib.rp_ring_write(rig.manager_out, lib.RP_MSG_CLEAN_EXPIRED, spans, 1) == 0
    lib.rp_ring_wake(rig.manager_out)
    assert rig.wait_record(rig.manager_in) == (lib.RP_MSG_CLEANED, request)
    assert not (rig.opened.paths.consumequeue / "Old").exists()
    assert (rig.opened.paths.consumequeue / "Kept" / "0").exists()
    assert (store.min_offset("Old", 2), store.max_offset("Old", 2)) == (1, 1)
    assert writer.put("Old", 2, dispatch=False).queue_offset == 1
    rig.wake()
    wait_until(lambda: store.max_offset("Old", 2) == 2, "dispatch into the queue")


def test_settings_of_cleaning_change_while_it_runs(rig: Rig, writer: StoreWriter, store: MessageStore) -> None:
    for _ in range(3):
        writer.put(body=b"x" * 12_000, dispatch=False)
    rig.wake()
    first = rig.opened.paths.commitlog / f"{0:020d}"
    wait_until(lambda: writer.control.dispatched_phy_offset == writer.control.published_phy_offset, "dispatch")
    for text in (b"fileReservedTime=never\n", b"fileReservedTime=0\nbrokerName=unknown\n"):
        spans = [{"data": ffi.from_buffer(text), "size": len(text)}]
        assert lib.rp_ring_write(rig.manager_out, lib.RP_MSG_SETTINGS, spans, 1) == 0
    lib.rp_ring_wake(rig.manager_out)

    def is_gone() -> bool:
        take_as_durable(writer)
        store.request_delete_expired()  # again: it may have come before the settings
        return not first.exists()

    wait_until(is_gone, "the deletion of a file that is young")


def test_expired_files_are_deleted_when_asked_for(rig: Rig, writer: StoreWriter, store: MessageStore) -> None:
    for _ in range(3):
        writer.put(body=b"x" * 12_000, dispatch=False)
    rig.wake()
    first = rig.opened.paths.commitlog / f"{0:020d}"
    wait_until(lambda: writer.control.dispatched_phy_offset == writer.control.published_phy_offset, "dispatch")

    def is_gone() -> bool:
        take_as_durable(writer)
        with contextlib.suppress(FileNotFoundError):
            os.utime(first, (0, 0))  # again: a flush that was on its way sets the time of the last write
        store.request_delete_expired()
        return not first.exists()

    wait_until(is_gone, "the deletion")
    assert writer.control.min_phy_offset == 16_384


@pytest.mark.parametrize("flush_disk_type", [FlushDiskType.SYNC_FLUSH])
def test_sync_flush_moves_the_durable_position_at_once(rig: Rig, writer: StoreWriter) -> None:
    """Holds: store, synchronous flush in groups."""
    for _ in range(20):
        put = writer.put(dispatch=False)
        rig.wake()
        wait_until(lambda put=put: writer.control.durable_phy_offset >= put.phy_offset + put.size, "the flush")  # type: ignore[misc]


SELDOM = {"flush_interval_commit_log": 600_000, "flush_commit_log_least_pages": 1}


@pytest.mark.parametrize("changes", [SELDOM | {"flush_commit_log_timed": False}])
def test_flushing_that_is_not_timed_follows_each_page(rig: Rig, writer: StoreWriter) -> None:
    """Holds: store, asynchronous flush by time or size."""
    for _ in range(5):
        end = writer.put(body=b"x" * 5_000, dispatch=False)
        rig.wake()
        wait_until(lambda end=end: writer.control.durable_phy_offset >= end.phy_offset + end.size, "the flush")  # type: ignore[misc]
    small = writer.put(dispatch=False)  # less than a page: for the next time
    rig.wake()
    wait_until(lambda: writer.control.dispatched_phy_offset == writer.control.published_phy_offset, "dispatch")
    assert writer.control.durable_phy_offset == small.phy_offset


@pytest.mark.parametrize("changes", [SELDOM])
def test_flushing_by_the_clock_waits_for_it(rig: Rig, writer: StoreWriter) -> None:
    """Holds: store, asynchronous flush by time or size."""
    writer.put(body=b"x" * 9_000, dispatch=False)
    rig.wake()
    wait_until(lambda: writer.control.dispatched_phy_offset == writer.control.published_phy_offset, "dispatch")
    assert writer.control.durable_phy_offset == 0


def test_the_next_file_is_allocated_ahead(rig: Rig, writer: StoreWriter) -> None:
    names = [f"{0:020d}", f"{16384:020d}"]
    writer.put(body=b"x" * 12_000, dispatch=False)
    directory = rig.opened.paths.commitlog
    wait_until(lambda: sorted(path.name for path in directory.iterdir()) == names, "the next file")
    assert (directory / names[1]).stat().st_size == 16_384


def test_stopping_dispatches_what_is_left(rig: Rig, writer: StoreWriter, store: MessageStore) -> None:
    for _ in range(100):
        writer.put("T", 0, dispatch=False)
    rig.stop()
    assert store.max_offset("T", 0) == 100
    assert rig.worker.counters[lib.RP_COUNT_LOOPS] > 0


def test_damage_is_passed_over(rig: Rig, writer: StoreWriter, store: MessageStore) -> None:
    at, phy_offset = writer.reserve(200)
    ffi.memmove(at, b"\xff" * 200, 200)
    lib.rp_commitlog_publish(writer._log, 200, 1)
    writer.put("T", 0, dispatch=False)
    rig.wake()
    wait_until(lambda: store.max_offset("T", 0) == 1, "dispatch behind the damage")
    assert phy_offset == 0 and store.dispatch_behind_bytes == 0


@pytest.mark.parametrize("call", ["entries", "info", "usage", "remove", "sync_directory", "read", "write"])
def test_a_call_that_fails_is_left_to_the_next_round(
    call: str, rig: Rig, files: FaultyFiles, writer: StoreWriter, store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Allocation, the look at the disks, cleaning of log, queues and index, checkpoint: none ends the worker."""
    for number in range(400):
        writer.put("T", 0, body=b"x" * 300, properties=b"UNIQ_KEY\x01u%d" % number, dispatch=False)
    rig.wake()
    wait_until(lambda: writer.control.dispatched_phy_offset == writer.control.published_phy_offset, "dispatch")
    header = writer.control.header
    take_as_durable(writer)
    for path in rig.opened.paths.commitlog.iterdir():
        os.utime(path, (0, 0))
    files.failing = call

    def is_told() -> bool:
        store.request_delete_expired()
        writer.put("Other", 0, dispatch=False)
        rig.wake()
        writer.control.delete_queues("Other")
        writer.control.delete_units("Other", header.published_phy_offset)
        clean_topic(rig, b"Other")  # has units flushed, too
        return files.failures > 0 and "trying again" in caplog.text

    wait_until(is_told, "the log to name a call that fails")
    files.failing = ""
    first = rig.opened.paths.consumequeue / "T" / "0" / file_name(0)

    def is_cleaned() -> bool:
        store.request_delete_expired()
        take_as_durable(writer)
        return not first.exists()

    wait_until(is_cleaned, "cleaning, when the disk is in order again")
    assert rig.worker.counters[lib.RP_COUNT_STORE_FAULTS] > 0
    assert store.min_offset("T", 0) > 50
    assert not rig.errors
