"""Schedules of the store worker's threads: flush of the log and of units, allocation, disk checks, cleaning. Decisions
only, from numbers and a given clock."""

from __future__ import annotations

import attrs

from rocketpy.config import MessageStoreConfig
from rocketpy.config.message_store_config import PAGE_SIZE

UNITS_BEHIND_MAX = 1 << 30  # bytes of log whose units are not on the disk: bounds recovery after a power failure
DISK_CHECK_INTERVAL_S = 1.0  # time until sends are refused or accepted again; the reference checks every 10 s
DISK_CHECK_REST_S = 5.0  # while the log does not grow and sends are accepted
CLEAN_DELAY_S = 60.0  # after start


@attrs.define
class FlushIntervals:
    """Flush when `least_bytes` are dirty, or `thorough_s` after the last flush. Checked every `interval_s`, or, without
    `is_timed`, as soon as `least_bytes` are dirty."""

    interval_s: float
    least_bytes: int
    thorough_s: float
    is_timed: bool
    flushed_s: float

    @classmethod
    def of_log(cls, config: MessageStoreConfig, now_s: float) -> FlushIntervals:
        return cls(
            interval_s=config.flush_interval_commit_log / 1000,
            least_bytes=config.flush_commit_log_least_pages * PAGE_SIZE,
            thorough_s=config.flush_commit_log_thorough_interval / 1000,
            is_timed=config.flush_commit_log_timed,
            flushed_s=now_s,
        )

    @classmethod
    def of_units(cls, config: MessageStoreConfig, now_s: float) -> FlushIntervals:
        """`least_bytes` counts bytes of the log, whose units are to be flushed."""
        return cls(
            interval_s=config.flush_interval_consume_queue / 1000,
            least_bytes=UNITS_BEHIND_MAX,
            thorough_s=config.flush_consume_queue_thorough_interval / 1000,
            is_timed=True,
            flushed_s=now_s,
        )

    def rest_s(self, waiting_bytes: int, now_s: float) -> float:
        """Return the time until a flush is due if nothing is added to what waits."""
        return 0.0 if waiting_bytes >= self.least_bytes else max(0.0, self.flushed_s + self.thorough_s - now_s)

    def is_due(self, waiting_bytes: int, now_s: float) -> bool:
        return waiting_bytes >= self.least_bytes or now_s - self.flushed_s >= self.thorough_s


@attrs.define
class HousekeepingIntervals:
    """Each `..._due` that returns True begins its next interval."""

    clean_interval_s: float
    began_s: float
    checked_s: float = float("-inf")
    cleaned_s: float = float("-inf")

    @classmethod
    def of(cls, config: MessageStoreConfig, now_s: float) -> HousekeepingIntervals:
        return cls(clean_interval_s=config.clean_resource_interval / 1000, began_s=now_s)

    def is_check_due(self, now_s: float) -> bool:
        if now_s - self.checked_s < DISK_CHECK_INTERVAL_S:
            return False
        self.checked_s = now_s
        return True

    def rest_s(self, now_s: float) -> float:
        """Return the time until the next look if the log does not grow and its disk has room: nothing is to be deleted
        between two rounds, and no send is to be refused."""
        due_s = max(self.began_s + CLEAN_DELAY_S, self.cleaned_s + self.clean_interval_s)
        return max(0.0, min(DISK_CHECK_REST_S, due_s - now_s))

    def is_clean_due(self, now_s: float, *, is_asked: bool) -> bool:
        """`is_asked`: a deletion was requested (code 329)."""
        is_time = now_s - self.began_s >= CLEAN_DELAY_S and now_s - self.cleaned_s >= self.clean_interval_s
        if not (is_time or is_asked):
            return False
        self.cleaned_s = now_s
        return True
