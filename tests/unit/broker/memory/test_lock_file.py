"""Queue locks over the broker's own end: known, run out, or waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketpy.broker.managers.rebalance_lock import RebalanceLockManager
from rocketpy.broker.memory.journal import Journal
from rocketpy.broker.memory.lock_file import BYTES, LOCK_LIFE_MS, NAME, WRITE_BACK_MS, LockFile
from rocketpy.broker.memory.manager_memory import ManagerMemory
from rocketpy.config import RocketpyConfig
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import GROUP_LENGTH_MAX, RETRY_LENGTH_MAX, TEXT_LENGTH_MAX
from tests.support.slow_path import FakeClock

BOOT, OTHER_BOOT = b"one kernel......", b"another kernel.."
Q0 = MessageQueue("T", "broker-a", 0)


def opened(root: Path, clock: FakeClock, *, is_ours: bool = True, boot_id: bytes = BOOT) -> LockFile:
    return LockFile.open(root, is_ours=is_ours, clock=clock, boot_id=boot_id)


def locks(file: LockFile, clock: FakeClock) -> RebalanceLockManager:
    return RebalanceLockManager(clock, Journal("locks", file.memory), unknown_until_ms=file.unknown_until_ms)


def touch(path: Path, clock: FakeClock, ago_ms: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.touch()
    ns = (clock.now_ms() - ago_ms) * 1_000_000
    os.utime(path, ns=(ns, ns))


def ran_before(root: Path, clock: FakeClock, ago_ms: int) -> None:
    """A broker was here, and last wrote so long ago."""
    first = locks(opened(root, clock), clock)
    assert first.lock("G", [Q0], "a") == [Q0]
    for path in (root / "checkpoint", root / "config" / "consumerOffset.json", root / NAME):
        touch(path, clock, ago_ms)


def test_a_first_start_waits_for_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    file = opened(tmp_path, clock, is_ours=False)
    assert file.unknown_until_ms == 0
    assert locks(file, clock).lock("G", [Q0], "a") == [Q0]


def test_after_a_restart_the_owner_goes_on_at_once_and_others_wait(tmp_path: Path) -> None:
    clock = FakeClock()
    ran_before(tmp_path, clock, 0)
    clock.advance(5_000)
    again = locks(opened(tmp_path, clock), clock)
    assert again.lock("G", [Q0], "b") == []
    assert again.lock("G", [Q0], "a") == [Q0]
    assert again.lock("H", [Q0], "b") == [Q0], "what nobody held is free"


@pytest.mark.parametrize(("is_ours", "boot_id"), [(False, BOOT), (True, OTHER_BOOT)])
def test_what_is_not_known_is_waited_for(tmp_path: Path, is_ours: bool, boot_id: bytes) -> None:
    """Another program had the store, or another kernel wrote the file."""
    clock = FakeClock()
    ran_before(tmp_path, clock, 50_000)
    again = locks(opened(tmp_path, clock, is_ours=is_ours, boot_id=boot_id), clock)
    assert again.lock("G", [Q0], "a") == []
    clock.advance(LOCK_LIFE_MS + WRITE_BACK_MS - 50_000)
    assert again.lock("G", [Q0], "b") == [Q0]


def test_a_damaged_file_is_waited_for(tmp_path: Path) -> None:
    clock = FakeClock()
    ran_before(tmp_path, clock, 0)
    with (tmp_path / NAME).open("r+b") as file:
        file.seek(64 + 32)
        byte = file.read(1)[0]
        file.seek(64 + 32)
        file.write(bytes([byte ^ 0xFF]))  # whatever it was: its value differs from run to run
    assert opened(tmp_path, clock).unknown_until_ms == clock.monotonic_ms() + LOCK_LIFE_MS


def test_after_a_long_pause_nothing_is_waited_for(tmp_path: Path) -> None:
    clock = FakeClock()
    ran_before(tmp_path, clock, LOCK_LIFE_MS + WRITE_BACK_MS)
    assert opened(tmp_path, clock, boot_id=OTHER_BOOT).unknown_until_ms == 0


def test_a_clock_that_was_set_back_makes_nobody_wait_longer(tmp_path: Path) -> None:
    clock = FakeClock()
    ran_before(tmp_path, clock, -86_400_000)
    assert opened(tmp_path, clock, is_ours=False).unknown_until_ms == clock.monotonic_ms() + LOCK_LIFE_MS


def test_a_file_of_another_size_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"x" * 100)
    opened(tmp_path, FakeClock())
    assert (tmp_path / NAME).stat().st_size == BYTES


def test_a_file_that_cannot_be_made_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / NAME).mkdir()
    clock = FakeClock()
    file = opened(tmp_path, clock)
    assert str(tmp_path / NAME) in caplog.text
    clock.advance(LOCK_LIFE_MS)
    for client, granted in (("a", [Q0]), ("b", [])):
        assert locks(file, clock).lock("G", [Q0], client) == granted, "each time by another manager"


def test_the_file_has_room_for_the_default_number_of_locks_with_the_longest_names(tmp_path: Path) -> None:
    clock = FakeClock()
    table = locks(opened(tmp_path, clock), clock)
    group, topic = "g" * GROUP_LENGTH_MAX, "t" * RETRY_LENGTH_MAX
    broker, client = "b" * TEXT_LENGTH_MAX, "c" * TEXT_LENGTH_MAX
    locks_max = RocketpyConfig().queue_locks_max
    for start in range(50_000, 50_000 + locks_max, 1000):
        queues = [MessageQueue(topic, broker, queue_id) for queue_id in range(start, start + 1000)]
        assert table.lock(group, queues, client) == queues
    assert len(table) == locks_max
    assert len(locks(opened(tmp_path, clock), clock)) == locks_max


def test_too_many_locks_for_the_file_are_reported_with_the_setting_that_bounds_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = RebalanceLockManager(FakeClock(), ManagerMemory.private().locks_journal())
    table.lock("G", [MessageQueue("T" * 100, "broker-a", queue_id) for queue_id in range(1000)], "a")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("shared memory is too small for queue locks of ") and line.endswith("; lower queueLocksMax")
