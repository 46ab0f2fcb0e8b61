"""Queue locks: free, mine, another's, expired."""

from __future__ import annotations

from rocketpy.broker.managers.rebalance_lock import LOCK_LIFE_MS, RebalanceLockManager
from rocketpy.message.message_queue import MessageQueue
from tests.support.slow_lane import FakeClock

Q0, Q1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


def test_the_table_of_transitions() -> None:
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    assert locks.lock("G", [Q0, Q1], "a") == [Q0, Q1]
    assert locks.lock("G", [Q0, Q1], "b") == []
    assert locks.lock("H", [Q0], "b") == [Q0], "groups do not disturb each other"
    clock.advance(LOCK_LIFE_MS)
    assert locks.lock("G", [Q0], "a") == [Q0], "renewed"
    clock.advance(1)
    assert locks.lock("G", [Q0, Q1], "b") == [Q1], "expired, and taken over"
    assert (locks.owner("G", Q0), locks.owner("G", Q1)) == ("a", "b")


def test_only_the_owner_unlocks() -> None:
    locks = RebalanceLockManager(FakeClock())
    locks.lock("G", [Q0, Q1], "a")
    locks.unlock("G", [Q0], "b")
    assert locks.owner("G", Q0) == "a"
    locks.unlock("G", [Q0], "a")
    assert locks.owner("G", Q0) is None and locks.lock("G", [Q0], "b") == [Q0]
    locks.unlock("nobody", [Q0], "a")


def test_sweep_forgets_the_expired() -> None:
    clock = FakeClock()
    locks = RebalanceLockManager(clock)
    locks.lock("G", [Q0], "a")
    clock.advance(30_000)
    locks.lock("G", [Q1], "a")
    clock.advance(30_001)
    assert locks.owner("G", Q0) is None and len(locks) == 2
    locks.sweep()
    assert len(locks) == 1
    clock.advance(60_000)
    locks.sweep()
    assert len(locks) == 0
