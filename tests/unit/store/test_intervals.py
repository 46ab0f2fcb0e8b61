"""When the store worker flushes, checks the disk and cleans; the test sets the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.store.services.intervals import (
    CLEAN_DELAY_S,
    DISK_CHECK_INTERVAL_S,
    DISK_CHECK_REST_S,
    UNITS_BEHIND_MAX,
    FlushIntervals,
    HousekeepingIntervals,
)
from tests.support.store_writer import small_config


def test_the_log_is_flushed_when_enough_is_dirty_or_too_long_ago(tmp_path: Path) -> None:
    """Holds: store, asynchronous flush by time or size."""
    config = small_config(
        tmp_path,
        flush_interval_commit_log=70,
        flush_commit_log_least_pages=3,
        flush_commit_log_thorough_interval=9_000,
        flush_commit_log_timed=False,
    )
    intervals = FlushIntervals.of_log(config, 100.0)
    assert (intervals.interval_s, intervals.is_timed) == (0.07, False)
    moments = [(0, 100.0), (12_287, 100.0), (12_288, 100.0), (0, 108.9), (0, 109.0)]
    due = [intervals.is_due(size, now_s) for size, now_s in moments]
    assert due == [False, False, True, False, True]
    intervals.flushed_s = 109.0
    assert not intervals.is_due(0, 117.9) and intervals.is_due(0, 118.0)
    assert FlushIntervals.of_log(small_config(tmp_path), 0.0).is_timed


def test_units_are_flushed_when_recovery_would_take_long_or_too_long_ago(tmp_path: Path) -> None:
    config = small_config(tmp_path, flush_interval_consume_queue=70, flush_consume_queue_thorough_interval=9_000)
    intervals = FlushIntervals.of_units(config, 100.0)
    assert intervals.interval_s == 0.07
    assert [intervals.is_due(size, 108.9) for size in (0, UNITS_BEHIND_MAX - 1, UNITS_BEHIND_MAX)] == [
        False,
        False,
        True,
    ]
    assert intervals.is_due(0, 109.0)


@pytest.mark.parametrize("interval_ms", [5_000, 90_000])
def test_cleaning_begins_a_while_after_the_start(tmp_path: Path, interval_ms: int) -> None:
    intervals = HousekeepingIntervals.of(small_config(tmp_path, clean_resource_interval=interval_ms), 100.0)
    times = [100.0, 100.0 + CLEAN_DELAY_S - 1, 100.0 + CLEAN_DELAY_S]
    assert [intervals.is_clean_due(now_s, is_asked=False) for now_s in times] == [False, False, True]
    last = times[-1] + interval_ms / 1000
    assert [intervals.is_clean_due(now_s, is_asked=False) for now_s in (last - 1, last, last)] == [False, True, False]


def test_cleaning_begins_at_once_when_asked_for(tmp_path: Path) -> None:
    intervals = HousekeepingIntervals.of(small_config(tmp_path), 100.0)
    assert intervals.is_clean_due(100.0, is_asked=True)
    assert intervals.is_clean_due(100.0, is_asked=True)
    assert not intervals.is_clean_due(100.0, is_asked=False)


def test_the_disks_are_looked_at_from_the_start_on(tmp_path: Path) -> None:
    intervals = HousekeepingIntervals.of(small_config(tmp_path), 100.0)
    times = [100.0, 100.0, 100.0 + DISK_CHECK_INTERVAL_S - 0.1, 100.0 + DISK_CHECK_INTERVAL_S]
    assert [intervals.is_check_due(now_s) for now_s in times] == [True, False, False, True]


def test_a_rest_ends_when_a_flush_is_due(tmp_path: Path) -> None:
    config = small_config(tmp_path, flush_commit_log_least_pages=3, flush_commit_log_thorough_interval=9_000)
    intervals = FlushIntervals.of_log(config, 100.0)
    assert [intervals.rest_s(0, now_s) for now_s in (100.0, 108.0, 110.0)] == [9.0, 1.0, 0.0]
    assert [intervals.rest_s(size, 100.0) for size in (12_287, 12_288)] == [9.0, 0.0]


def test_a_rest_ends_when_cleaning_is_due(tmp_path: Path) -> None:
    intervals = HousekeepingIntervals.of(small_config(tmp_path, clean_resource_interval=7_000), 100.0)
    begins = 100.0 + CLEAN_DELAY_S
    assert [intervals.rest_s(now_s) for now_s in (100.0, begins - 1, begins + 1)] == [DISK_CHECK_REST_S, 1.0, 0.0]
    assert intervals.is_clean_due(begins, is_asked=False)
    assert [intervals.rest_s(now_s) for now_s in (begins, begins + 5.5)] == [DISK_CHECK_REST_S, 1.5]
