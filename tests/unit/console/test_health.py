"""What a broker tells of itself: growth of counters, workers, and its clock."""

from __future__ import annotations

import pytest

from rocketpy.console import health as module
from rocketpy.console.health import BrokerHealth, Gains
from tests.support.cases import cases

HOUR_MS = 3_600_000
BOOT_MS = 1_700_000_000_000


def test_a_counter_begins_with_its_first_value_and_anew_with_a_smaller_one() -> None:
    gains = Gains()
    for now_ms, value in ((0, 100), (20_000, 103), (40_000, 103), (60_000, 2)):
        gains.add(now_ms, value)
    assert (gains.last, gains.within(60_000, HOUR_MS)) == (2, 5)
    assert gains.within(60_000, 10_000) == 2
    assert gains.within(2 * HOUR_MS, HOUR_MS) == 0


def test_steps_of_a_clock_that_was_set_back_do_not_count_for_hours() -> None:
    """Fault: After the clock of the console was set back by hours, old restarts of a worker raised an alarm for as
    long."""
    gains = Gains()
    gains.add(10 * HOUR_MS, 1)
    gains.add(10 * HOUR_MS + 1, 3)
    assert gains.within(10 * HOUR_MS + 1, HOUR_MS) == 2
    gains.add(5 * HOUR_MS, 3)
    assert gains.within(5 * HOUR_MS, HOUR_MS) == 0


def test_a_counter_that_is_not_told_stays() -> None:
    gains = Gains()
    gains.add(0, 5)
    gains.add(10, None)
    assert (gains.last, gains.within(10, HOUR_MS)) == (5, 0)


def test_steps_are_bounded_and_close_ones_are_one() -> None:
    gains = Gains()
    for number in range(3 * module.GAINS_MAX):
        gains.add(1000 * number, number)
    assert gains.within(3_000 * module.GAINS_MAX, HOUR_MS) == 3 * module.GAINS_MAX - 1, "ten to a step: none is lost"
    for number in range(1, 3 * module.GAINS_MAX):
        gains.add(1e9 + module.STEP_MS * number, 10**6 + number)
    assert gains.within(1e9 + module.STEP_MS * number, 1e12) == module.GAINS_MAX


def test_workers_are_those_of_the_last_answer_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORKERS_MAX", 2)
    health = BrokerHealth()
    health.take(0, 1, {"worker_send": "ready, silent 12 ms, restarts 1", "worker_odd": "what is this?"})
    health.take(
        20_000, 1, {"worker_send": "starting, silent 3 ms, restarts 4", "worker_a": "ready, silent 0 ms, restarts 0"}
    )
    send = health.workers["send"]
    assert (send.state, send.silent_ms, send.restarts.last, send.restarts.within(20_000, HOUR_MS)) == (
        "starting",
        3,
        4,
        3,
    )
    assert list(health.workers) == ["a", "send"]
    health.take(30_000, 1, {f"worker_{n}": "ready, silent 0 ms, restarts 0" for n in range(5)})
    assert list(health.workers) == ["0", "1"]


def test_a_broker_of_the_reference_tells_failing_sends_alone() -> None:
    health = BrokerHealth()
    for now_ms, failed in ((0, "0"), (20_000, "7")):
        health.take(now_ms, 1, {"putMessageFailedTimes": failed})
    assert health.failed_sends.within(20_000, HOUR_MS) == 7
    assert (health.workers, health.refused_connections.last, health.certificate_ends_ms) == ({}, None, None)


@cases("digits", [400, 5_000])
def test_numbers_that_no_broker_has_are_not_taken(digits: int) -> None:
    """Fault: One answer with a number of 400 digits ended the console, or its polls of all brokers."""
    health, number = BrokerHealth(), "9" * digits
    health.take(0, 1, {"worker_send": f"ready, silent {number} ms, restarts {number}"})
    assert health.workers == {}
    health.take(0, 1, {"bootTimestamp": str(BOOT_MS), "runtime": f"[ -{number} days, 0 hours, 0 minutes, 0 seconds ]"})
    assert health.clock_ahead_ms == 0


@cases(
    "uptime, now_ms, took_ms, ahead_ms",
    [
        ("[ 0 days, 0 hours, 1 minutes, 0 seconds ]", BOOT_MS + 60_000, 5, 0),
        ("[ 0 days, 0 hours, 1 minutes, 0 seconds ]", BOOT_MS + 60_999, 5, 0),  # whole seconds are told
        ("[ 0 days, 0 hours, 1 minutes, 0 seconds ]", BOOT_MS + 63_000, 2_000, 0),  # the answer was slow
        ("[ 0 days, 0 hours, 1 minutes, 0 seconds ]", BOOT_MS + 70_000, 2_000, -7_000),
        ("[ 0 days, 0 hours, 1 minutes, 0 seconds ]", BOOT_MS + 50_000, 5, 10_000),
        ("[ 2 days, 1 hours, 0 minutes, 1 seconds ]", BOOT_MS, 5, 49 * HOUR_MS + 1_000),
        ("[ -1 days, 23 hours, 0 minutes, 0 seconds ]", BOOT_MS + 1_000, 5, -HOUR_MS + 5),
        ("for a while", BOOT_MS, 5, 0),
    ],
)
def test_the_clock_of_a_broker(uptime: str, now_ms: int, took_ms: int, ahead_ms: int) -> None:
    health = BrokerHealth()
    health.take(now_ms, took_ms, {"bootTimestamp": str(BOOT_MS), "runtime": uptime})
    assert health.clock_ahead_ms == ahead_ms
