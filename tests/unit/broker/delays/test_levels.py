"""The file of delay progress: what a start finds after the log has lost its end, in each order of saves and syncs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import trio

from rocketpy.broker.delays.levels import DelayProgress
from rocketpy.broker.files import json_file
from rocketpy.broker.files.log_marks import LogExtent
from rocketpy.message.names import SCHEDULE_TOPIC
from rocketpy.processes.boot.table_check import check_marked
from rocketpy.remoting.bodies.offset import DelayOffsetSerializeWrapper, LogMark
from rocketpy.remoting.fast_path import Delivery
from tests.support.fake_store import FakeStore

LEVEL = 3


class Disk:
    """A broker's progress over several lives, in one file."""

    def __init__(self, root: Path, delayed: int = 1000) -> None:
        self.path = root / "delayOffset.json"
        self.store = FakeStore(lambda: 0)
        self.store.fill(SCHEDULE_TOPIC, LEVEL - 1, delayed)
        self.store.end = self.store.durable = 0
        self.progress = self.open()

    def open(self) -> DelayProgress:
        self.progress = DelayProgress(self.path, 18, self.store)
        self.progress.load()
        return self.progress

    def deliver(self, offset: int, copy_bytes: int = 100) -> None:
        self.store.end += copy_bytes
        self.progress.advance(LEVEL, offset)

    def save(self) -> None:
        trio.run(self.progress.file.save)

    def lose(self, end: int) -> None:
        """The log ends there, and the broker starts again."""
        self.store.end = self.store.durable = end
        check_marked(self.path, LogExtent(end))
        self.open()

    @property
    def java(self) -> dict[int, int]:
        """Return the delay table as a broker of the reference reads it."""
        found = json_file.load_as(self.path, DelayOffsetSerializeWrapper)
        return found.offset_table if found else {}


def test_a_power_failure_takes_the_progress_back_with_the_copy(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.deliver(1)
    disk.store.durable = 100
    disk.save()
    disk.deliver(2)
    disk.save()  # the copy of message 1 is in the page cache only
    disk.lose(100)
    assert disk.progress.offsets == {LEVEL: 1} and disk.progress.loaded.phy_offset == 100
    disk.deliver(2, copy_bytes=500)  # again, and the log grows beyond the old position
    disk.open()
    assert disk.progress.offsets == {LEVEL: 1}, "what was lowered does not come back"


def test_without_a_loss_the_newest_save_counts(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.deliver(1)
    disk.save()
    disk.deliver(2)
    disk.save()
    disk.lose(disk.store.end)
    assert disk.progress.offsets == {LEVEL: 2}


def test_a_java_broker_reads_what_the_disk_has_the_log_for(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.deliver(1)
    disk.save()
    assert disk.java == {} and disk.progress.file.is_dirty, "saved again when the log is on the disk"
    disk.store.durable = 100
    disk.save()
    assert disk.java == {LEVEL: 1} and not disk.progress.file.is_dirty
    disk.deliver(2)
    disk.save()
    assert disk.java == {LEVEL: 1}
    disk.progress.end()
    disk.save()
    assert disk.java == {LEVEL: 2}, "the log is flushed after the last save of a clean stop"


def test_the_progress_of_the_master_is_kept_with_its_position_and_epoch(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.store.end = disk.store.durable = 300
    disk.progress.follow(LogMark(offset_table={LEVEL: 4}, phy_offset=100, epoch=2))
    disk.save()
    disk.progress.follow(LogMark(offset_table={LEVEL: 9}, phy_offset=200, epoch=2))
    disk.save()
    check_marked(disk.path, LogExtent(300, {2: 150, 5: 300}))  # epoch 2 ended earlier in the new master's log
    assert disk.open().offsets == {LEVEL: 4}


@pytest.mark.parametrize(("phy_offset", "known", "offsets"), [(1004, {LEVEL}, {LEVEL: 5}), (1003, set(), {})])
def test_levels_whose_last_delivery_is_known_are_named(
    tmp_path: Path, phy_offset: int, known: set[int], offsets: dict[int, int]
) -> None:
    """Nothing more has to be looked up in the log for them. A delivery of another message says nothing."""
    progress = Disk(tmp_path).progress
    last = Delivery(LEVEL, phy_offset, 4)
    assert progress.follow_deliveries(lambda level: last if level == LEVEL else None) == known
    assert progress.offsets == offsets


@pytest.mark.parametrize(
    ("progress", "delivered", "known", "offset"),
    [
        (4, 4, {LEVEL}, 5),
        (6, 4, {LEVEL}, 6),  # the file is newer
        (0, 0, {LEVEL}, 1),
        (0, 1000, set(), 0),  # the queue was rebuilt, and is shorter
    ],
)
def test_the_newer_of_file_and_last_delivery_counts(
    tmp_path: Path, progress: int, delivered: int, known: set[int], offset: int
) -> None:
    disk = Disk(tmp_path)
    if progress:
        disk.progress.advance(LEVEL, progress)
    last = Delivery(LEVEL, 1000 + delivered, delivered)
    assert disk.progress.follow_deliveries(lambda level: last if level == LEVEL else None) == known
    assert disk.progress.offsets.get(LEVEL, 0) == offset


def test_each_level_is_asked_for_its_last_delivery(tmp_path: Path) -> None:
    asked: list[int] = []
    assert Disk(tmp_path).progress.follow_deliveries(asked.append) == set()
    assert asked == list(range(1, 19))


def test_levels_that_the_broker_does_not_have_are_left_out(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for level in (1, 18):
        disk.store.fill(SCHEDULE_TOPIC, level - 1, 10)
    json_file.save(disk.path, [b'{"offsetTable":{"0":5,"1":5,"18":6,"19":6}}'])
    assert disk.open().offsets == {1: 5, 18: 6}


def test_progress_stays_within_the_queue_of_its_level(tmp_path: Path) -> None:
    disk = Disk(tmp_path, delayed=30)
    disk.store.low[SCHEDULE_TOPIC, LEVEL - 1] = 20
    for saved, held in ((10, 20), (25, 25), (40, 30)):
        json_file.save(disk.path, [b'{"offsetTable":{"3":%d}}' % saved])
        assert disk.open().offsets == {LEVEL: held}


@pytest.mark.parametrize(("saved", "position", "held"), [(40, 900, 40), (50, 900, 50), (60, 900, 50), (40, -1, 30)])
def test_progress_with_a_position_is_kept_though_its_queue_is_not_dispatched_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: int, position: int, held: int
) -> None:
    """Of a slave that is promoted while its dispatch is behind. Without a position nothing says that the log has it.
    Fault: A new master lowered the progress of delay levels to the dispatched queue and delivered messages again."""
    disk = Disk(tmp_path, delayed=30)
    monkeypatch.setattr(disk.store, "log_end_of", lambda topic, queue_id: 50)
    json_file.save(disk.path, [b'{"offsetTable":{"3":%d},"phyOffset":%d}' % (saved, position)])
    assert disk.open().offsets == {LEVEL: held}


def test_a_level_without_a_queue_begins_at_0(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.store.low[SCHEDULE_TOPIC, 0] = -1
    assert disk.progress.bounds(1) == (0, 0)


def test_without_a_file_the_progress_presumes_nothing(tmp_path: Path) -> None:
    progress = DelayProgress(tmp_path / "delayOffset.json", 18, FakeStore(lambda: 0))
    assert progress.loaded == LogMark()
    progress.follow_without_progress()
    assert progress.file.is_dirty and progress.offsets == {}


def test_a_slave_that_knows_no_progress_saves_that_once(tmp_path: Path) -> None:
    """Its promotion looks for deliveries in the whole log."""
    disk = Disk(tmp_path)
    disk.store.end = disk.store.durable = 300
    disk.progress.follow_without_progress()
    disk.save()
    assert disk.open().loaded.phy_offset == 0
    disk.progress.follow_without_progress()
    assert not disk.progress.file.is_dirty


def test_a_slave_that_has_delivered_keeps_its_progress(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.deliver(1)
    changes = disk.progress.file.changes
    disk.progress.follow_without_progress()
    assert disk.progress.file.changes == changes
    disk.progress.end()
    disk.save()
    assert disk.open().loaded.phy_offset == 100


def test_a_table_of_the_master_that_has_not_changed_is_not_saved_again(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.store.end = disk.store.durable = 300
    disk.progress.follow(LogMark(offset_table={LEVEL: 4}, phy_offset=100))
    assert disk.progress.file.is_dirty
    disk.save()
    disk.progress.follow(LogMark(offset_table={LEVEL: 4}, phy_offset=200))
    assert not disk.progress.file.is_dirty
    disk.progress.end()
    assert not disk.progress.file.is_dirty, "the file has all there is"


@pytest.mark.parametrize("seed", range(40))
def test_no_delivery_is_missed_whatever_the_disk_has_kept(tmp_path: Path, seed: int) -> None:
    """Lives with deliveries, saves and syncs in any order; the log keeps any length from the durable position on."""
    choose = random.Random(seed)
    disk = Disk(tmp_path)
    copies: list[tuple[int, int]] = []  # end of the copy in the log, message
    for _ in range(12):
        for _ in range(choose.randrange(20)):
            match choose.randrange(4):
                case 0:
                    disk.save()
                case 1:
                    disk.store.durable = choose.randrange(disk.store.durable, disk.store.end + 1)
                case 2:
                    disk.store.end += choose.randrange(5000)  # other messages
                case _:
                    message = disk.progress.offsets.get(LEVEL, 0)
                    disk.deliver(message + 1, choose.randrange(100, 5000))
                    copies.append((disk.store.end, message))
        saved = disk.progress.offsets.get(LEVEL, 0) if not disk.progress.file.is_dirty else None
        end, kept = (
            disk.store.end,
            choose.choice((disk.store.end, choose.randrange(disk.store.durable, disk.store.end + 1))),
        )
        disk.lose(kept)
        copies = [(at, message) for at, message in copies if at <= kept]
        begin = disk.progress.offsets.get(LEVEL, 0)
        assert {message for _, message in copies} >= set(range(begin)), "each message before the progress has its copy"
        assert kept < end or saved is None or begin == saved, "nothing is delivered again for nothing"
