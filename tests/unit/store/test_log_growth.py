"""Threads of the store worker rest while the log does not grow, and are woken when it does."""

from __future__ import annotations

import threading

import pytest

from rocketpy.store.services.threads import GROWING_LOOKS, LogGrowth, StoreThreads


class Bell(threading.Event):
    """An event that notes for how long it was waited for, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return self.is_set()


@pytest.fixture
def growth() -> LogGrowth:
    return LogGrowth(StoreThreads())


def rested(growth: LogGrowth) -> LogGrowth:
    for _ in range(GROWING_LOOKS + 1):
        growth.look(100, 0)
    return growth


def test_a_thread_waits_longer_while_the_log_does_not_grow(growth: LogGrowth) -> None:
    bell = Bell()
    growth.pause(bell, 0.5, 10.0)
    rested(growth).pause(bell, 0.5, 10.0)
    growth.pause(bell, 0.5, 0.0)
    growth.look(101, 0)
    growth.pause(bell, 0.5, 10.0)
    assert bell.waits == [0.5, 10.0, 0.5, 0.5]


@pytest.mark.parametrize("positions", [(101, 0), (100, 1)])
def test_all_threads_are_woken_once_when_it_grows(growth: LogGrowth, positions: tuple[int, int]) -> None:
    bells = [growth.bell(), growth.bell()]
    rested(growth)
    assert not any(bell.is_set() for bell in bells)
    growth.look(*positions)
    assert all(bell.is_set() for bell in bells)
    assert not any(growth.pause(bell, 60.0, 60.0) for bell in bells), "it does not wait: the bell was rung"
    growth.look(positions[0] + 1, 7)
    assert not any(bell.is_set() for bell in bells), "they look themselves now"


def test_a_growth_seen_before_a_thread_waits_is_not_lost(growth: LogGrowth) -> None:
    """The thread decided to rest, and the main thread saw the growth before it did."""
    bell = growth.bell()
    rested(growth)
    growth.look(101, 0)
    rested(growth)
    assert bell.is_set(), "pause does not wait"
    growth.pause(bell, 60.0, 60.0)
    assert not bell.is_set()


def test_the_end_of_the_worker_ends_a_rest(growth: LogGrowth) -> None:
    bell = growth.bell()
    rested(growth)
    growth.threads.stop.set()
    growth.ring()
    assert bell.is_set(), "pause does not wait"
    assert growth.pause(bell, 60.0, 60.0)
