"""Invariant: while files are deleted under them, readers see every message at most once, whole and in order, and what a
queue's minimum promises can be read; dispatch and sends notice nothing.

Writer with dispatch, cleaner and reader run in threads of their own over one store, as the send worker, the store
worker and the manager do. The disk says that it is full all the time, so each round deletes all it may.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="dispatch is C")

from rocketpy.message.record import decode_record
from rocketpy.store.files import DiskFiles, DiskUsage
from rocketpy.store.reading.get_message import GetMessageStatus
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.services.cleaning import Cleaner
from rocketpy.store.services.queue_cleaning import QueueCleaning
from rocketpy.store.services.queue_trim import QueueTrim
from rocketpy.store.services.threads import StoreThreads
from tests.support.store_writer import StoreWriter, small_config, threads_without_time

QUEUES = 3
MESSAGES = 3_000
IDLE = ("Idle", 0)  # written once: expires as a whole


class FullDisk(DiskFiles):
    def usage(self, path: Path) -> DiskUsage:
        return DiskUsage(100 << 30, 5 << 30, 5 << 30)


@attrs.define(eq=False)
class Race:
    opened: OpenedStore
    is_over: threading.Event = attrs.field(factory=threading.Event)
    errors: list[BaseException] = attrs.field(factory=list)
    threads: StoreThreads = attrs.field(factory=threads_without_time)  # one lock of queues for both
    deleted: int = 0
    seen: int = 0

    def guarded(self, duty: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                duty()
            except BaseException as exc:
                self.errors.append(exc)
                self.is_over.set()

        return threading.Thread(target=run)

    def write(self) -> None:
        control = self.opened.control
        try:
            with StoreWriter(self.opened.config, control) as writer:
                writer.put(*IDLE)
                trim = QueueTrim(self.opened.config, control, self.opened.files)
                cleaning = QueueCleaning(control, writer.dispatch, trim, self.threads)
                for number in range(MESSAGES):
                    if self.is_over.is_set():
                        return
                    put = writer.put("T", number % QUEUES, b"%d" % number * 40)
                    assert put.queue_offset == number // QUEUES
                    if number % 50 == 0:  # as the store worker between two runs of dispatch
                        header = control.header
                        header.durable_phy_offset = header.units_durable_phy_offset = header.dispatched_phy_offset
                    if number % 500 == 499:
                        for _ in cleaning.expire():
                            pass
                assert writer.put(*IDLE).queue_offset == 1
                trim.close()
        finally:
            self.is_over.set()

    def clean(self) -> None:
        config, control = self.opened.config, self.opened.control
        files = FullDisk()
        cleaner = Cleaner(config, control, files, lambda: 0, self.threads)
        while not self.is_over.is_set():
            self.deleted += cleaner.clean()
        cleaner.close()

    def read(self, queue_id: int) -> None:
        store = MessageStore(self.opened.config, self.opened.control)
        offset, is_last_look = 0, False
        while True:
            is_last_look = self.is_over.is_set()
            result = store.get_message("T", queue_id, offset, 32)
            for image in result.records:
                record = decode_record(image, check_crc=True)
                assert record is not None and record.queue_offset >= offset
                assert record.body == b"%d" % (record.queue_offset * QUEUES + queue_id) * 40
                offset = record.queue_offset + 1
                self.seen += 1
            assert result.next_begin_offset >= offset or result.status is GetMessageStatus.NO_MESSAGE_IN_QUEUE
            assert result.status is not GetMessageStatus.OFFSET_OVERFLOW_BADLY, "the queue went back"
            assert result.status is not GetMessageStatus.OFFSET_FOUND_NULL, "a file went before the minimum was moved"
            offset = max(offset, result.next_begin_offset)
            store.trim()
            if is_last_look and result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE:
                break
        assert store.max_offset("T", queue_id) == MESSAGES // QUEUES == offset
        store.close()

    def look_at_what_is_left(self, queue_id: int) -> None:
        """All of it is there; once nobody cleans any more."""
        store = MessageStore(self.opened.config, self.opened.control)
        low, high = store.min_offset("T", queue_id), store.max_offset("T", queue_id)
        while low < high:
            result = store.get_message("T", queue_id, low, 32)
            assert result.status is GetMessageStatus.FOUND, (low, high, result)
            low = result.next_begin_offset
        store.close()


def test_readers_and_writers_do_not_notice_cleaning(tmp_path: Path) -> None:
    race = Race(open_store(small_config(tmp_path / "store")))
    threads = [race.guarded(race.write), race.guarded(race.clean)]
    threads += [race.guarded(lambda queue_id=queue_id: race.read(queue_id)) for queue_id in range(QUEUES)]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not race.errors, race.errors
    assert race.deleted > 10 and race.seen > 0
    for queue_id in range(QUEUES):
        race.look_at_what_is_left(queue_id)
    close_store(race.opened, clean=True)
    reopened = open_store(race.opened.config)
    assert reopened.control.queue("Idle", 0).max_offset == 2  # type: ignore[union-attr]
    close_store(reopened, clean=False)
