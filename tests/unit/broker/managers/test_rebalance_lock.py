"""Queue locks: free, the client's own, another client's, expired."""

from __future__ import annotations

from rocketpy.broker.managers.rebalance_lock import LOCK_LIFE_MS, RebalanceLockManager
from rocketpy.broker.memory.journal import Found, Journal, format_memory
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.work import result_of
from tests.support.slow_path import FakeClock

Q0, Q1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


def made(clock: FakeClock, memory: memoryview | None = None, unknown_until_ms: int = 0) -> RebalanceLockManager:
    journal = Journal.private("locks") if memory is None else Journal("locks", memory)
    return RebalanceLockManager(clock, journal, unknown_until_ms=unknown_until_ms)


def kept() -> memoryview:
    memory = memoryview(bytearray(1 << 16))
    format_memory(memory)
    return memory


def test_the_table_of_transitions() -> None:
    """Holds: answer, queue locks (41, 42)."""
    clock = FakeClock()
    locks = made(clock)
    assert locks.lock("G", [Q0, Q1], "a") == [Q0, Q1]
    assert locks.lock("G", [Q0, Q1], "b") == []
    assert locks.lock("H", [Q0], "b") == [Q0], "groups do not disturb each other"
    clock.advance(LOCK_LIFE_MS)
    assert locks.lock("G", [Q0], "a") == [Q0], "renewed"
    clock.advance(1)
    assert locks.lock("G", [Q0, Q1], "b") == [Q1], "expired, and taken over"
    assert (locks.owner("G", Q0), locks.owner("G", Q1)) == ("a", "b")


def test_only_the_owner_unlocks() -> None:
    """Holds: answer, queue locks (41, 42)."""
    locks = made(FakeClock())
    locks.lock("G", [Q0, Q1], "a")
    locks.unlock("G", [Q0], "b")
    assert locks.owner("G", Q0) == "a"
    locks.unlock("G", [Q0], "a")
    assert locks.owner("G", Q0) is None and locks.lock("G", [Q0], "b") == [Q0]
    locks.unlock("nobody", [Q0], "a")


def test_sweep_forgets_the_expired() -> None:
    clock = FakeClock()
    locks = made(clock)
    locks.lock("G", [Q0], "a")
    clock.advance(30_000)
    locks.lock("G", [Q1], "a")
    clock.advance(30_001)
    assert locks.owner("G", Q0) is None and len(locks) == 2
    result_of(locks.sweep())
    assert len(locks) == 1
    clock.advance(60_000)
    result_of(locks.sweep())
    assert len(locks) == 0


def test_a_restarted_manager_grants_to_nobody_else_what_is_held() -> None:
    clock, memory = FakeClock(), kept()
    locks = made(clock, memory)
    assert locks.lock("G", [Q0, Q1], "a") == [Q0, Q1]
    clock.advance(20_000)
    locks.lock("G", [Q0], "a")
    locks.unlock("G", [Q1], "a")
    del locks
    clock.advance(10_000)
    restarted = made(clock, memory)
    assert restarted.lock("G", [Q0, Q1], "b") == [Q1], "what was released is free"
    assert restarted.lock("G", [Q0], "a") == [Q0], "the owner goes on"
    clock.advance(30_001)
    assert made(clock, memory).lock("G", [Q0], "b") == [], "the renewal counts, not the first grant"
    clock.advance(30_000)
    assert made(clock, memory).lock("G", [Q0], "b") == [Q0]


def test_a_lock_from_another_clock_is_not_older_than_now() -> None:
    clock, memory = FakeClock(), kept()
    made(clock, memory).lock("G", [Q0], "a")
    earlier = FakeClock()
    earlier.advance(-30_000)
    locks = made(earlier, memory)
    earlier.advance(LOCK_LIFE_MS + 1)
    assert locks.lock("G", [Q0], "b") == [Q0], "and it lives no longer than any other"


def test_a_lost_journal_grants_nothing_until_the_last_lock_has_run_out() -> None:
    clock, memory = FakeClock(), kept()
    made(clock, memory).lock("G", [Q0], "a")
    memory[64 + 32] ^= 1
    locks = made(clock, memory)
    assert locks.lock("G", [Q0], "a") == [] == locks.lock("H", [Q1], "b")
    clock.advance(LOCK_LIFE_MS)
    assert locks.lock("G", [Q0], "b") == [Q0]
    assert Journal("locks", memory).found is Found.WHOLE


def test_until_the_locks_of_the_last_broker_have_run_out_nothing_is_granted() -> None:
    clock = FakeClock()
    locks = made(clock, unknown_until_ms=clock.monotonic_ms() + 500)
    assert locks.lock("G", [Q0], "a") == []
    clock.advance(500)
    assert locks.lock("G", [Q0], "a") == [Q0] and locks.lock("G", [Q0], "b") == []


def test_inherited_locks_are_counted() -> None:
    clock, memory = FakeClock(), kept()
    made(clock, memory).lock("G", [Q0, Q1], "a")
    restarted = made(clock, memory)
    assert len(restarted) == 2
    restarted.unlock("G", [Q0], "a")
    assert len(restarted) == 1
