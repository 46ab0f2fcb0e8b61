"""What is deleted when, and that offsets go on from where they were."""

from __future__ import annotations

import os
from collections.abc import Iterator

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.store.clean import Cleaner
from rocketpy.store.files import DiskFiles, DiskUsage, file_name
from rocketpy.store.get_message import GetMessageStatus
from rocketpy.store.index_file import index_files
from rocketpy.store.lifecycle import OpenedStore
from rocketpy.store.message_store import MessageStore
from rocketpy.store.running_flags import RunningFlag, RunningFlags
from tests.support.store_writer import StoreWriter

HOUR = 3_600_000
NOON = 1_700_046_000_000 - 1_700_046_000_000 % 86_400_000 + 12 * HOUR  # 12:00 UTC; hours of tests are UTC


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class FakeDisk(DiskFiles):
    """A real disk whose fullness is as told."""

    def __init__(self) -> None:
        self.used = 0.5

    def usage(self, path: object) -> DiskUsage:
        return DiskUsage(1000, round(1000 * (1 - self.used)), round(1000 * (1 - self.used)))


@attrs.define
class Rig:
    cleaner: Cleaner
    disk: FakeDisk
    pauses: list[float]
    now_ms: int = NOON


@pytest.fixture
def rig(config: MessageStoreConfig, opened: OpenedStore, writer: StoreWriter) -> Iterator[Rig]:
    """Six log files, the first of them 100, 90, ... hours old; two queues; several index files."""
    pauses: list[float] = []
    disk = FakeDisk()
    made: list[Rig] = []
    cleaner = Cleaner(
        config, opened.control, RunningFlags(opened.control), disk, lambda: made[0].now_ms, pauses.append
    )
    made.append(Rig(cleaner, disk, pauses))
    for i in range(600):
        writer.put("T", i % 2, b"x" * 50, b"KEYS\x01a b c d%d" % i)
    opened.control.header.durable_phy_offset = opened.control.published_phy_offset
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
    rig.disk.used = used
    before = starts(opened)
    expected = len(before) - 1 if deleted == "all" else deleted
    assert rig.cleaner.clean() == expected
    assert bool(opened.control.header.running_flags & RunningFlag.DISK_FULL) is is_full
    rig.disk.used = 0.5
    rig.cleaner.check_disk()
    assert opened.control.header.running_flags == 0


def test_by_hand(rig: Rig, store: MessageStore) -> None:
    store.request_delete_expired()
    assert rig.cleaner.clean() == 3  # of 100, 90 and 80 hours; 70 is not yet past its time
    assert rig.cleaner.clean() == 0


@pytest.mark.parametrize("field", ["dispatched_phy_offset", "durable_phy_offset"])
def test_what_is_not_dispatched_and_flushed_stays(rig: Rig, opened: OpenedStore, field: str) -> None:
    setattr(opened.control.header, field, 16_384 + 5)
    rig.disk.used = 0.95
    assert rig.cleaner.clean() == 1


def test_ten_files_at_a_time(rig: Rig, writer: StoreWriter, opened: OpenedStore) -> None:
    for _ in range(20):
        writer.put("T", 0, b"x" * 12_000)
    opened.control.header.durable_phy_offset = opened.control.published_phy_offset
    rig.disk.used = 0.95
    assert rig.cleaner.clean() == 10


def test_an_idle_queue_keeps_its_last_file_and_its_offset(
    rig: Rig, writer: StoreWriter, opened: OpenedStore, store: MessageStore
) -> None:
    for _ in range(20):
        writer.put("Busy", 0, b"x" * 12_000)
    opened.control.header.durable_phy_offset = opened.control.published_phy_offset
    rig.disk.used = 0.95
    while rig.cleaner.clean():
        pass
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (300, 300)
    names = [path.name for path in (opened.paths.consumequeue / "T" / "0").iterdir()]
    assert names == [file_name(5000)]
    assert writer.put("T", 0).queue_offset == 300
    assert store.get_message("T", 0, 300, 1).status is GetMessageStatus.FOUND


