"""The timers of a slave: what the master has delivered is read from the log, and nothing is delivered here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the marks are C")

from rocketpy.native.core import lib
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.files import DiskFiles, StorePaths
from rocketpy.store.services.threads import StoreThreads
from rocketpy.store.services.timer_follower import TimerFollower
from rocketpy.store.timers import TimerMarks
from tests.support.log_images import record
from tests.support.store_writer import Put, StoreWriter, small_config

TIMER_TOPIC = "rmq_sys_wheel_timer"


class Slave:
    """A store into which the test puts what a master has sent."""

    def __init__(self, root: Path) -> None:
        config = small_config(root)
        self.paths = StorePaths.of(config.store_path_root_dir, config.store_path_commit_log)
        for directory in (self.paths.commitlog, self.paths.consumequeue):
            directory.mkdir(parents=True)
        self.control = ControlBlock(self.paths.control, config.mapped_file_size_commit_log)
        self.control.mark_boot()
        self.config, self.writer = config, StoreWriter(config, self.control)
        self.threads = StoreThreads()
        self.open_marks()

    def open_marks(self) -> None:
        self.marks = TimerMarks.open(self.paths, DiskFiles(), self.control)
        self.marks.follow_master()
        self.header = lib.rp_timer_marks_header(self.marks.pointer)
        self.follower = TimerFollower(self.config, self.control, self.marks, self.threads)

    def restart(self, *, after_power_failure: bool = False) -> None:
        """Open the same store with another store worker and no bits: the bits that it sets show what it has read."""
        lib.rp_timer_marks_cut(self.marks.pointer, 0)
        lib.rp_timer_marks_close(self.marks.pointer)
        if after_power_failure:
            self.control.header.boot_id[0] ^= 1
        self.open_marks()

    def put(self, topic: str = "T", *, timer: int = -1) -> Put:
        """A message; `timer`: the place of the timer that it delivers."""
        (put,) = self.writer.put_records([record(topic, b"x", prepared_transaction_offset=timer + 1)])
        return put

    def follow(self) -> None:
        """With everything on the disk."""
        self.control.header.durable_phy_offset = self.control.published_phy_offset
        self.follower.follow()

    def delivered(self, count: int) -> list[int]:
        return [number for number in range(count) if lib.rp_timer_has_ended(self.marks.pointer, number)]

    def close(self) -> None:
        self.writer.close()
        lib.rp_timer_marks_close(self.marks.pointer)
        self.control.close()


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[Slave]:
    slave = Slave(tmp_path)
    yield slave
    slave.close()


def test_the_marks_follow_the_log(slave: Slave) -> None:
    timers = [slave.put(TIMER_TOPIC) for _ in range(4)]
    for number in (0, 2):
        slave.put(timer=timers[number].phy_offset)
    slave.follow()
    assert slave.delivered(4) == [0, 2] and slave.header.floor == 1
    assert slave.marks.held_phy_offset == timers[1].phy_offset
    slave.put(timer=timers[1].phy_offset)
    slave.follow()
    assert slave.delivered(4) == [0, 1, 2] and slave.header.floor == 3
    assert slave.marks.held_phy_offset == timers[3].phy_offset
    slave.put(timer=timers[3].phy_offset)
    slave.follow()
    assert slave.marks.held_phy_offset == slave.control.published_phy_offset


def test_whoever_opens_the_store_next_reads_the_log(slave: Slave) -> None:
    timer = slave.put(TIMER_TOPIC)
    slave.put(timer=timer.phy_offset)
    slave.follow()
    assert slave.header.must_scan == 1 and slave.header.scanned_phy_offset == 0


def test_a_log_without_timers_is_not_held(slave: Slave) -> None:
    assert slave.marks.held_phy_offset == 0
    for _ in range(3):
        slave.put()
    slave.follow()
    assert slave.marks.held_phy_offset == slave.control.published_phy_offset


def test_a_bit_does_not_outlive_its_delivery(slave: Slave) -> None:
    """Only what is on the disk counts."""
    timer = slave.put(TIMER_TOPIC)
    slave.follow()
    slave.put(timer=timer.phy_offset)
    slave.follower.follow()
    assert slave.delivered(1) == []


def test_the_journal_of_a_former_master_says_nothing(slave: Slave) -> None:
    slave.header.journal_end = 5
    slave.marks.follow_master()
    assert slave.header.journal_begin == slave.header.journal_end == 5


def test_what_a_master_of_this_boot_has_marked_stays(slave: Slave) -> None:
    slave.header.boot_phy_offset, slave.header.must_scan = 5, 1
    slave.marks.follow_master()
    assert slave.header.boot_phy_offset == 5  # nobody has looked since the boot
    slave.header.must_scan = 0
    slave.marks.follow_master()
    assert (slave.header.boot_phy_offset, slave.header.must_scan) == (0, 1)


def test_a_restarted_worker_goes_on_where_the_previous_one_was(slave: Slave) -> None:
    timers = [slave.put(TIMER_TOPIC) for _ in range(3)]
    slave.put(timer=timers[1].phy_offset)
    slave.follow()
    slave.restart()
    slave.put(timer=timers[2].phy_offset)
    slave.follow()
    assert slave.delivered(3) == [2]


def test_after_a_power_failure_the_log_is_read_from_what_is_on_the_disk(slave: Slave) -> None:
    timers = [slave.put(TIMER_TOPIC) for _ in range(3)]
    slave.put(timer=timers[1].phy_offset)
    slave.follow()
    slave.restart(after_power_failure=True)
    slave.put(timer=timers[2].phy_offset)
    slave.follow()
    assert slave.delivered(3) == [1, 2]
    slave.header.followed_durable = slave.control.published_phy_offset
    slave.restart(after_power_failure=True)
    slave.follow()
    assert slave.delivered(3) == []


def test_a_log_that_is_shorter_now_is_read_from_its_end(slave: Slave) -> None:
    timer = slave.put(TIMER_TOPIC)
    slave.follow()
    slave.header.followed_phy_offset = slave.header.followed_durable = 1 << 40
    slave.follow()
    slave.put(timer=timer.phy_offset)
    slave.follow()
    assert slave.delivered(1) == [0]


def test_the_thread_ends(slave: Slave) -> None:
    slave.threads.stop.set()
    slave.follower.stop()
    for duty in slave.follower.duties:
        duty()
    slave.follower.close()
