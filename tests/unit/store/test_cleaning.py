"""What is deleted when, and that offsets go on from where they were."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import ffi, lib
from rocketpy.store.control_block import RunningFlag
from rocketpy.store.files import DiskFiles, DiskUsage, file_name
from rocketpy.store.formats.index_file import index_files
from rocketpy.store.reading.get_message import GetMessageStatus
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore
from rocketpy.store.services.cleaning import NOTHING_NEEDED, Cleaner, LogNeeds
from rocketpy.store.services.queue_cleaning import QueueCleaning
from rocketpy.store.services.queue_trim import QueueTrim
from rocketpy.store.timers import TimerMarks
from tests.support.store_writer import StoreWriter, threads_without_time

pytestmark = pytest.mark.usefixtures("utc")
HOUR = 3_600_000
NOON = 1_700_046_000_000 - 1_700_046_000_000 % 86_400_000 + 12 * HOUR  # 12:00 UTC; hours of tests are UTC


class FakeDisk(DiskFiles):
    """A real disk whose fullness is as told; queues may lie on another one."""

    def __init__(self) -> None:
        self.used = 0.5
        self.queues_used: float = -1.0  # negative: as the log's
        self.size = 1000 << 30

    def usage(self, path: Path) -> DiskUsage:
        is_queues = path.name == "consumequeue" and self.queues_used >= 0
        free = round(self.size * (1 - (self.queues_used if is_queues else self.used)))
        return DiskUsage(self.size, free, free)


@attrs.define
class Rig:
    cleaner: Cleaner
    disk: FakeDisk
    pauses: list[float]
    now_ms: int = NOON


def complete(opened: OpenedStore) -> None:
    """As if everything had reached the disk."""
    header = opened.control.header
    header.durable_phy_offset = header.units_durable_phy_offset = header.published_phy_offset


@pytest.fixture
def rig(config: MessageStoreConfig, opened: OpenedStore, writer: StoreWriter) -> Iterator[Rig]:
    """Six log files, the first of them 100, 90, ... hours old; two queues; several index files."""
    pauses: list[float] = []
    disk = FakeDisk()
    made: list[Rig] = []
    cleaner = Cleaner(config, opened.control, disk, lambda: made[0].now_ms, threads_without_time(pauses.append))
    made.append(Rig(cleaner, disk, pauses))
    for i in range(600):
        writer.put("T", i % 2, b"x" * 50, b"KEYS\x01a b c d%d" % i)
    complete(opened)
    for number, path in enumerate(sorted(opened.paths.commitlog.iterdir())):
        age = (100 - 10 * number) * HOUR * 1_000_000
        os.utime(path, ns=(NOON * 1_000_000 - age, NOON * 1_000_000 - age))
    yield made[0]
    cleaner.close()


def starts(opened: OpenedStore) -> list[int]:
    return sorted(int(path.name) // 16_384 for path in opened.paths.commitlog.iterdir())


def test_nothing_out_of_hours(rig: Rig, opened: OpenedStore) -> None:
    assert rig.cleaner.clean() == 0 and opened.control.min_phy_offset == 0


def test_expired_files_go_in_the_hour(rig: Rig, opened: OpenedStore, store: MessageStore) -> None:
    """Holds: store, expired files are deleted."""
    rig.now_ms = NOON + 16 * HOUR  # 04:00: files of 100 + 16, 90 + 16 ... hours; 72 are kept
    before = starts(opened)
    deleted = rig.cleaner.clean()
    assert deleted == 5 and starts(opened) == before[5:]
    assert rig.pauses[:4] == [0.1] * 4
    assert opened.control.min_phy_offset == before[5] * 16_384
    for queue_id in (0, 1):
        first = store.min_offset("T", queue_id)
        result = store.get_message("T", queue_id, 0, 1)
        assert (result.status, result.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, first)
        assert store.get_message("T", queue_id, first, 1).status is GetMessageStatus.FOUND
        assert store.max_offset("T", queue_id) == 300
        names = sorted(path.name for path in (opened.paths.consumequeue / "T" / str(queue_id)).iterdir())
        assert names[0] == file_name(first // 50 * 1000) and names[-1] == file_name(5000)
    files = index_files(store.files, opened.paths.index)
    assert 1 <= len(files) < 600 * 4 // 399


def test_the_last_file_stays_though_the_log_ends_with_it(rig: Rig, opened: OpenedStore) -> None:
    """Its name says where the log goes on: without any file the next start would begin at 0.
    Fault: Retention removed the last file of a log that ended with it, and the next start began at 0."""
    rig.now_ms = NOON + 50 * 24 * HOUR + 16 * HOUR
    header, before = opened.control.header, starts(opened)
    header.published_phy_offset = header.dispatched_phy_offset = (before[-1] + 1) * 16_384
    complete(opened)
    rig.cleaner.clean()
    assert starts(opened) == before[-1:]


def test_files_of_pending_timers_stay(
    rig: Rig, config: MessageStoreConfig, opened: OpenedStore, store: MessageStore
) -> None:
    """However old they are, and however full the disk is."""
    timers = TimerMarks.open(opened.paths, opened.files, opened.control)
    header = lib.rp_timer_marks_header(timers.pointer)
    before = starts(opened)
    rig.disk.used = 0.91
    cleaner = Cleaner(
        config, opened.control, rig.disk, lambda: rig.now_ms, threads_without_time(), LogNeeds(timers=timers)
    )
    header.held_phy_offset = 2 * 16_384 + 100 + 1
    assert cleaner.clean() == 2 and starts(opened) == before[2:]
    assert cleaner.clean() == 0 and header.renew_requests == 2
    assert header.renew_to == before[-1] * 16_384, "the timers of the next files are asked for"
    header.held_phy_offset = opened.control.published_phy_offset + 1
    assert cleaner.clean() == before[-1] - 2 and header.renew_requests == 2
    cleaner.close()
    lib.rp_timer_marks_close(timers.pointer)


def test_files_that_a_slave_needs_stay_until_the_disk_is_nearly_full(
    rig: Rig, config: MessageStoreConfig, opened: OpenedStore
) -> None:
    needed: list[int | None] = [3 * 16_384 - 1]
    cleaner = cleaner_of(rig, config, opened, LogNeeds(lambda: needed[0]))
    before = starts(opened)
    rig.disk.used = 0.86  # files of any age go
    assert cleaner.clean() == 2 and starts(opened) == before[2:]
    assert cleaner.clean() == 0
    needed[0] = 3 * 16_384
    assert cleaner.clean() == 1 and starts(opened) == before[3:]
    rig.disk.used = 0.95  # messages are refused: the master goes before its slaves
    assert cleaner.clean() > 0


def test_a_stalled_slave_does_not_keep_a_full_master_refusing_messages(
    rig: Rig, config: MessageStoreConfig, opened: OpenedStore
) -> None:
    """Fault: A lagging slave kept a master with a nearly full disk refusing messages."""
    cleaner = cleaner_of(rig, config, opened, LogNeeds(lambda: 1))
    rig.disk.used = 0.91
    cleaner.check_disk()
    assert opened.control.header.running_flags & RunningFlag.DISK_FULL
    rig.disk.used = 0.89  # between the levels: a round has deleted ten files, or another program has left the disk
    cleaner.clean()
    assert len(starts(opened)) == 1, "files are deleted until messages are accepted again"
    rig.disk.used = 0.85
    cleaner.check_disk()
    assert not opened.control.header.running_flags


def test_without_a_slave_nothing_stays_for_one(rig: Rig, config: MessageStoreConfig, opened: OpenedStore) -> None:
    rig.disk.used = 0.86
    assert cleaner_of(rig, config, opened, LogNeeds(lambda: None)).clean() > 2


@pytest.mark.parametrize(
    ("used", "hour_of_cleaning", "deleted", "is_full"),
    [
        (0.70, False, 0, False),
        (0.76, False, 3, False),  # space: expired files only
        (0.86, False, "all", False),  # forcibly: whatever their age
        (0.91, False, "all", True),
    ],
)
def test_disk_levels(
    rig: Rig, opened: OpenedStore, used: float, hour_of_cleaning: bool, deleted: int | str, is_full: bool
) -> None:
    """Holds: store, expired files are deleted."""
    rig.disk.used = used
    before = starts(opened)
    expected = len(before) - 1 if deleted == "all" else deleted
    assert rig.cleaner.clean() == expected
    assert bool(opened.control.header.running_flags & RunningFlag.DISK_FULL) is is_full
    rig.disk.used = 0.5
    rig.cleaner.check_disk()
    assert opened.control.header.running_flags == 0


def test_by_hand(rig: Rig, store: MessageStore) -> None:
    assert not rig.cleaner.is_asked
    store.request_delete_expired()
    assert rig.cleaner.is_asked
    assert rig.cleaner.clean() == 3  # of 100, 90 and 80 hours; 70 is not yet past its time
    assert not rig.cleaner.is_asked
    rig.now_ms += 11 * HOUR  # 23:00: no hour of cleaning, but the request is good for a while
    assert rig.cleaner.clean() == 1
    for _ in range(20):
        rig.cleaner.clean()
    rig.now_ms += 10 * HOUR
    assert rig.cleaner.clean() == 0


@pytest.mark.parametrize("field", ["dispatched_phy_offset", "durable_phy_offset", "units_durable_phy_offset"])
def test_what_is_not_dispatched_and_flushed_stays(rig: Rig, opened: OpenedStore, field: str) -> None:
    """Fault: Cleaning removed log files with unflushed queue units, so idle queues could restart at lower offsets."""
    setattr(opened.control.header, field, 16_384 + 5)
    rig.disk.used = 0.95
    assert rig.cleaner.clean() == 1


def test_ten_files_at_a_time(rig: Rig, writer: StoreWriter, opened: OpenedStore) -> None:
    for _ in range(20):
        writer.put("T", 0, b"x" * 12_000)
    complete(opened)
    rig.disk.used = 0.95
    assert rig.cleaner.clean() == 10


def test_an_idle_queue_keeps_its_last_file_and_its_offset(
    rig: Rig, writer: StoreWriter, opened: OpenedStore, store: MessageStore
) -> None:
    for _ in range(20):
        writer.put("Busy", 0, b"x" * 12_000)
    complete(opened)
    rig.disk.used = 0.95
    while rig.cleaner.clean():
        pass
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (300, 300)
    names = [path.name for path in (opened.paths.consumequeue / "T" / "0").iterdir()]
    assert names == [file_name(5000)]
    assert writer.put("T", 0).queue_offset == 300
    assert store.get_message("T", 0, 300, 1).status is GetMessageStatus.FOUND


@pytest.mark.parametrize(
    ("delete_when", "hour", "deleted"),
    [("04", 4, 5), ("04", 5, 0), ("12;16", 16, 4), ("12; 16 ;23", 12, 3), ("05", 4, 0)],
)
def test_hours_of_cleaning(
    rig: Rig, config: MessageStoreConfig, opened: OpenedStore, delete_when: str, hour: int, deleted: int
) -> None:
    rig.now_ms = NOON + (hour - 12) % 24 * HOUR
    assert cleaner_of(rig, attrs.evolve(config, delete_when=delete_when), opened).clean() == deleted


@pytest.mark.parametrize(("hours", "deleted"), [(72, 3), (85, 2), (101, 0), (0, "all")])
def test_the_age_is_that_of_the_last_write(
    rig: Rig, config: MessageStoreConfig, opened: OpenedStore, hours: int, deleted: int | str
) -> None:
    changed = attrs.evolve(config, delete_when="12", file_reserved_time=hours)
    expected = len(starts(opened)) - 1 if deleted == "all" else deleted
    assert cleaner_of(rig, changed, opened).clean() == expected


@pytest.mark.parametrize(
    ("changes", "used", "deleted", "is_full"),
    [
        ({"disk_max_used_space_ratio": 60}, 0.61, 3, False),
        ({"disk_max_used_space_ratio": 60}, 0.60, 0, False),
        ({"disk_max_used_space_ratio": 5}, 0.10, 0, False),  # held between 10 and 95
        ({"disk_max_used_space_ratio": 5}, 0.12, 3, False),
        ({"disk_space_clean_forcibly_ratio": 60}, 0.61, "all", False),
        ({"disk_space_clean_forcibly_ratio": 40, "disk_space_warning_level_ratio": 60}, 0.61, "all", True),
        ({"clean_file_forcibly_enable": False}, 0.86, 3, False),
        ({"clean_file_forcibly_enable": False}, 0.91, 3, True),
        ({"disk_free_min_bytes": 501 << 30}, 0.5, "all", True),
        ({"disk_free_min_bytes": 500 << 30}, 0.5, 0, False),
        ({"disk_free_min_bytes": 0}, 1.0, "all", True),  # by the ratio
    ],
)
def test_levels_are_configured(
    rig: Rig,
    config: MessageStoreConfig,
    opened: OpenedStore,
    changes: dict[str, object],
    used: float,
    deleted: int | str,
    is_full: bool,
) -> None:
    rig.disk.used = used
    expected = len(starts(opened)) - 1 if deleted == "all" else deleted
    assert cleaner_of(rig, attrs.evolve(config, **changes), opened).clean() == expected
    assert bool(opened.control.header.running_flags & RunningFlag.DISK_FULL) is is_full


def test_refusal_ends_by_itself_below_the_forcible_level(rig: Rig, opened: OpenedStore) -> None:
    def is_full_at(used: float) -> bool:
        rig.disk.used = used
        rig.cleaner.check_disk()
        return bool(opened.control.header.running_flags & RunningFlag.DISK_FULL)

    seen = [is_full_at(used) for used in (0.84, 0.89, 0.91, 0.89, 0.84, 0.89)]
    assert seen == [False, False, True, True, False, False]


@pytest.mark.parametrize(("used", "queues_used"), [(0.5, 0.95), (0.8, 0.95), (0.95, 0.5)])
def test_the_disk_of_the_queues_counts_as_well(rig: Rig, opened: OpenedStore, used: float, queues_used: float) -> None:
    """Fault: The disk of the queues was not checked while the log's disk was above diskMaxUsedSpaceRatio."""
    rig.disk.used, rig.disk.queues_used = used, queues_used
    rig.cleaner.check_disk()
    assert opened.control.header.running_flags == RunningFlag.DISK_FULL


def test_no_room_for_the_next_log_file_is_a_reason_to_clean(rig: Rig, opened: OpenedStore) -> None:
    assert rig.cleaner.clean() == 0
    count = len(starts(opened))
    assert rig.cleaner.clean(lacks_room=True) == count - 1


@pytest.mark.parametrize("key", ["delete_commit_log_files_interval", "delete_consume_queue_files_interval"])
def test_pauses_between_deletions(rig: Rig, config: MessageStoreConfig, opened: OpenedStore, key: str) -> None:
    rig.disk.used = 0.95
    cleaner_of(rig, attrs.evolve(config, **{key: 77_000}), opened).clean()
    assert set(rig.pauses) == {77.0, 0.1}


def test_who_reads_a_file_keeps_it(rig: Rig, opened: OpenedStore, store: MessageStore) -> None:
    unit = store.consume_queue_units("T", 0, 0, 1)[0]
    before = store.look_message_by_offset(unit.phy_offset)
    assert before is not None
    view = lib.rp_log_view_open(os.fsencode(opened.paths.commitlog), 16_384, 4)
    held = lib.rp_log_view_acquire(view, unit.phy_offset, unit.size)
    rig.disk.used = 0.95
    assert rig.cleaner.clean() > 0
    lib.rp_log_view_trim(view, opened.control.min_phy_offset)
    assert bytes(ffi.buffer(held, unit.size)) == before
    assert store.look_message_by_offset(unit.phy_offset) is None  # nobody finds it any more
    lib.rp_log_view_release(view, unit.phy_offset)
    lib.rp_log_view_trim(view, opened.control.min_phy_offset)
    assert lib.rp_log_view_acquire(view, unit.phy_offset, unit.size) == ffi.NULL
    lib.rp_log_view_close(view)


def test_a_queue_begun_anew_meanwhile_is_left_alone(
    rig: Rig, config: MessageStoreConfig, opened: OpenedStore, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dispatch may drop and begin a queue between our look at it and our deletion."""
    entry = opened.control.queue("T", 0)
    assert entry is not None
    found = QueueTrim._first_kept

    def and_then_it_begins_anew(trim: QueueTrim, queue: object, log_min: int) -> int:
        first = found(trim, queue, log_min)
        if queue == entry:
            writer.dispatch.drop_queue(entry)
            entry.min_offset = entry.max_offset = 7
        return first

    monkeypatch.setattr(QueueTrim, "_first_kept", and_then_it_begins_anew)
    rig.disk.used = 0.95
    assert rig.cleaner.clean() > 0
    assert (entry.min_offset, entry.max_offset) == (7, 7)


def test_queues_of_which_nothing_is_left_lose_their_files_and_keep_their_offsets(
    rig: Rig, writer: StoreWriter, opened: OpenedStore, store: MessageStore
) -> None:
    writer.put("SCHEDULE_TOPIC_XXXX", 1)
    opened.control.add_queue(b"Never", 0)
    for _ in range(20):
        writer.put("Busy", 0, b"x" * 12_000)
    complete(opened)
    rig.disk.used = 0.95
    while rig.cleaner.clean():
        pass
    trim = QueueTrim(opened.config, opened.control, opened.files)
    cleaning = QueueCleaning(opened.control, writer.dispatch, trim, threads_without_time())
    for _ in cleaning.expire():
        pass
    trim.close()
    queues = sorted(str(path.relative_to(opened.paths.consumequeue)) for path in opened.paths.consumequeue.glob("*/*"))
    assert queues == ["Busy/0", "SCHEDULE_TOPIC_XXXX/1"]
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (300, 300)
    assert store.get_message("T", 0, 300, 1).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    assert store.get_message("T", 0, 299, 1).status is GetMessageStatus.OFFSET_TOO_SMALL
    put = writer.put("T", 0)
    assert put.queue_offset == 300
    assert store.get_message("T", 0, 300, 1).records == [put.image]
    names = [path.name for path in (opened.paths.consumequeue / "T" / "0").iterdir()]
    assert names == [file_name(6000)]


def cleaner_of(rig: Rig, config: MessageStoreConfig, opened: OpenedStore, needs: LogNeeds = NOTHING_NEEDED) -> Cleaner:
    """Another one over the same store."""
    rig.cleaner.close()
    rig.cleaner = Cleaner(
        config, opened.control, rig.disk, lambda: rig.now_ms, threads_without_time(rig.pauses.append), needs
    )
    return rig.cleaner
