"""A log whose end is not in its master's is cut while the store is opened, and what is cut is kept."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.native.core import lib
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.files import DiskFiles, DiskUsage, StorePaths, file_name
from rocketpy.store.recovery import store_lock
from rocketpy.store.recovery.diverged import Kept, NoRoomAside, check_room, keep_aside, kept_aside
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.recovery.log_files import LogFiles
from rocketpy.store.recovery.positions import RecoveryKind
from rocketpy.store.timers import TimerMarks
from tests.support.reopened_store import Filled, another_boot, check, fill

COUNT = 150


def filled(config: MessageStoreConfig, *, dispatch_until: int | None = None) -> Filled:
    opened = open_store(config)
    puts = fill(opened, COUNT, dispatch_until=dispatch_until)
    close_store(opened, clean=False)
    return puts


def kept_until(puts: Filled, at: int) -> Filled:
    return {queue: [put for put in those if put.phy_offset + len(put.image) <= at] for queue, those in puts.items()}


def boundaries(puts: Filled) -> list[int]:
    return sorted(put.phy_offset + len(put.image) for those in puts.values() for put in those)


def log_of(opened: OpenedStore, begin: int, end: int) -> bytes:
    size = opened.config.mapped_file_size_commit_log
    files = [path.read_bytes() for path in sorted(opened.paths.commitlog.glob("[0-9]*"))]
    return b"".join(files)[begin:end] if len(files) * size >= end else b""


def test_a_cut_is_known_on_the_disk_before_the_log_loses_anything(
    config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure in between, the next start must not trust the position of the old end."""
    at = boundaries(filled(config))[75]
    steps: list[tuple[str, int]] = []
    sync, cut = ControlBlock.sync, LogFiles.cut

    def noted_sync(control: ControlBlock) -> None:
        steps.append(("sync", int(control.header.units_lost)))
        sync(control)

    def noted_cut(log: LogFiles, end: int) -> None:
        steps.append(("cut", end))
        cut(log, end)

    monkeypatch.setattr(ControlBlock, "sync", noted_sync)
    monkeypatch.setattr(LogFiles, "cut", noted_cut)
    close_store(open_store(config, cut_at=at), clean=False)
    assert steps[: steps.index(("cut", at))][-1:] == [("sync", 1)]


def test_what_is_cut_is_kept_on_the_disk(config: MessageStoreConfig) -> None:
    """Its bytes, its size and its name."""
    steps: list[str] = []

    class Noted(DiskFiles):
        def write(self, path: Path, offset: int, data: bytes, *, sync: bool = False) -> None:
            steps.append("write and sync" if sync else "write")
            super().write(path, offset, data, sync=sync)

        def sync_directory(self, path: Path) -> None:
            steps.append(f"sync {path.name}")
            super().sync_directory(path)

    ends = boundaries(filled(config))
    paths = StorePaths.of(config.store_path_root_dir)
    keep_aside(Noted(), paths, config.mapped_file_size_commit_log, ends[70], ends[-1])
    assert steps[-3:] == ["write", "write and sync", "sync diverged"]


@pytest.mark.parametrize("dispatch_until", [40, None])
@pytest.mark.parametrize("keep", [0, 1, 39, 75, COUNT - 1])
def test_what_is_behind_is_gone_and_all_before_is_there(
    config: MessageStoreConfig, dispatch_until: int | None, keep: int
) -> None:
    puts = filled(config, dispatch_until=dispatch_until)
    ends = [0, *boundaries(puts)]
    at, end = ends[keep], ends[-1]
    before = open_store(config)
    tail = log_of(before, at, end)
    close_store(before, clean=False)
    opened = open_store(config, cut_at=at)
    assert opened.report.kind is RecoveryKind.CUT
    assert opened.control.published_phy_offset == at >= opened.control.durable_phy_offset
    assert not any(log_of(opened, at, end))
    (kept,) = (opened.paths.root / "diverged").iterdir()
    assert kept.name == f"{at:020d}-{end:020d}" and kept.read_bytes() == tail
    check(opened, kept_until(puts, at))
    close_store(opened, clean=False)
    again = open_store(config)
    assert again.report.kind is RecoveryKind.TRUSTED and not again.is_cut_refused
    close_store(again, clean=True)


def test_a_cut_survives_a_power_failure_right_behind_it(config: MessageStoreConfig) -> None:
    puts = filled(config)
    at = boundaries(puts)[70]
    opened = open_store(config, cut_at=at)
    close_store(opened, clean=False)
    another_boot(opened.paths)
    opened = open_store(config)
    assert opened.control.published_phy_offset == at
    check(opened, kept_until(puts, at))
    close_store(opened, clean=True)


@pytest.mark.parametrize("off", ["inside a record", "the end", "beyond"])
def test_a_position_that_cannot_be_the_end_changes_nothing(config: MessageStoreConfig, off: str) -> None:
    puts = filled(config)
    ends = boundaries(puts)
    at = {"inside a record": ends[70] + 5, "the end": ends[-1], "beyond": ends[-1] + 1}[off]
    opened = open_store(config, cut_at=at)
    assert opened.report.kind is RecoveryKind.TRUSTED
    check(opened, puts)
    close_store(opened, clean=True)


@pytest.mark.parametrize("files_before", [0, 1])
def test_a_log_whose_first_files_were_deleted_is_not_cut_at_its_begin(
    config: MessageStoreConfig, files_before: int
) -> None:
    """Nothing would be left; a position where no file is cannot be compared with the master's."""
    filled(config)
    paths, size = StorePaths.of(config.store_path_root_dir), config.mapped_file_size_commit_log
    for number in (0, 1):
        (paths.commitlog / file_name(number * size)).unlink()
    opened = open_store(config, cut_at=(2 - files_before) * size)
    assert opened.control.min_phy_offset == 2 * size
    assert opened.report.kind is RecoveryKind.TRUSTED and opened.is_cut_refused
    close_store(opened, clean=False)


def test_a_log_that_is_not_trusted_is_not_cut(config: MessageStoreConfig) -> None:
    puts = filled(config)
    opened = open_store(config)
    close_store(opened, clean=False)
    another_boot(opened.paths)
    opened = open_store(config, cut_at=boundaries(puts)[70])
    assert opened.report.kind is RecoveryKind.FLUSHED
    check(opened, puts)
    close_store(opened, clean=True)


def test_without_room_for_what_is_cut_nothing_is(config: MessageStoreConfig, caplog: pytest.LogCaptureFixture) -> None:
    class Full(DiskFiles):
        def usage(self, path: Path) -> DiskUsage | None:
            return DiskUsage(1 << 30, 100, 100)

    puts = filled(config)
    opened = open_store(config, Full(), cut_at=boundaries(puts)[70])
    assert opened.report.kind is RecoveryKind.TRUSTED and opened.is_cut_refused
    assert "make room on that disk; the log is not cut before" in caplog.text
    check(opened, puts)
    close_store(opened, clean=True)


def test_what_is_kept_of_all_cuts_is_bounded(config: MessageStoreConfig, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of it is removed to make room: it may have been acknowledged."""
    puts = filled(config)
    ends = boundaries(puts)
    first, second = ends[140], ends[100]
    bounded = attrs.evolve(config, ha_diverged_size_max=ends[-1] - second - 1)
    opened = open_store(bounded, cut_at=first)
    assert opened.report.kind is RecoveryKind.CUT and not opened.is_cut_refused
    root, files = opened.paths.root, opened.files
    close_store(opened, clean=False)
    assert kept_aside(files, root) == Kept(1, ends[-1] - first)
    opened = open_store(bounded, cut_at=second)
    assert opened.report.kind is RecoveryKind.TRUSTED and opened.is_cut_refused
    assert f"which has {ends[-1] - first} of at most" in caplog.text and "haDivergedSizeMax" in caplog.text
    check(opened, kept_until(puts, first))
    close_store(opened, clean=False)
    opened = open_store(config, cut_at=second)
    assert opened.report.kind is RecoveryKind.CUT
    assert kept_aside(files, root).files == 2
    close_store(opened, clean=True)


def test_a_cut_that_is_done_again_needs_no_more_room(config: MessageStoreConfig) -> None:
    puts = filled(config)
    at, end = boundaries(puts)[70], boundaries(puts)[-1]
    root, files = Path(config.store_path_root_dir), DiskFiles()
    check_room(files, root, at, end, end - at)
    keep_aside(files, StorePaths.of(root), config.mapped_file_size_commit_log, at, end)
    check_room(files, root, at, end, end - at)
    with pytest.raises(NoRoomAside):
        check_room(files, root, at, end, end - at - 1)
    assert kept_aside(files, root / "elsewhere") == Kept()


@pytest.mark.parametrize("how", ["a cut", "a failed sync", "an ordinary start"])
def test_marks_of_timers_count_no_more_than_after_a_power_failure(config: MessageStoreConfig, how: str) -> None:
    """Fault: After a cut of the log, new timers got numbers still marked as delivered and never came."""
    puts = filled(config)
    at, end = boundaries(puts)[70], boundaries(puts)[-1]
    opened = open_store(config)
    opened.control.header.units_lost = how == "a failed sync"
    marks = TimerMarks.open(opened.paths, opened.files, opened.control)
    header = lib.rp_timer_marks_header(marks.pointer)
    header.must_scan = 0  # the timer thread has looked
    header.scanned_phy_offset = header.followed_durable = header.marked_phy_offset = end
    header.filed, header.journal_end = 9, 3
    lib.rp_timer_marks_close(marks.pointer)
    close_store(opened, clean=False)
    for _ in range(2):  # the first one dies before it opens the marks
        opened = open_store(config, cut_at=at if how == "a cut" else None)
        close_store(opened, clean=False)
    opened = open_store(config)
    marks = TimerMarks.open(opened.paths, opened.files, opened.control)
    marks.follow_master()
    header = lib.rp_timer_marks_header(marks.pointer)
    is_kept, end = how == "an ordinary start", int(opened.control.published_phy_offset)
    assert header.boot_phy_offset == (0 if is_kept else end + 1) and header.filed == (9 if is_kept else 0)
    assert header.journal_begin == header.journal_end == (3 if is_kept else 0)
    assert header.scanned_phy_offset == header.followed_durable == header.marked_phy_offset == end
    lib.rp_timer_marks_close(marks.pointer)
    close_store(opened, clean=False)


class Dying(DiskFiles):
    """Dies before the change of number `left`."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _step(self) -> None:
        if self.left == 0:
            raise StoreError("dead")
        self.left -= 1

    def write(self, *arguments: Any, **options: Any) -> None:
        self._step()
        super().write(*arguments, **options)

    def wipe(self, path: Path, offset: int) -> None:
        self._step()
        super().wipe(path, offset)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)


def test_a_cut_that_is_interrupted_anywhere_loses_nothing_before_it(
    config: MessageStoreConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts = filled(config)
    root = Path(config.store_path_root_dir)
    at, whole = boundaries(puts)[70], tmp_path / "whole"
    monkeypatch.setattr(store_lock, "birth_ns", lambda descriptor: 0)
    shutil.copytree(root, whole)  # with the times of the files, so that it counts as ours
    ends = []
    for steps in itertools.count():
        shutil.rmtree(root)
        shutil.copytree(whole, root)
        try:
            close_store(open_store(config, Dying(steps), cut_at=at), clean=False)
        except StoreError as exc:
            assert str(exc) == "dead"
        else:
            break
        opened = open_store(config)
        ends.append(int(opened.control.published_phy_offset))
        assert ends[-1] >= at
        check(opened, kept_until(puts, ends[-1]))
        close_store(opened, clean=False)
    assert set(ends) >= {at, boundaries(puts)[-1]} and len(ends) > 5
