"""What is wrong with a broker that answers, in words and numbers."""

from __future__ import annotations

from rocketpy.console.alarm_file import BrokerLimits
from rocketpy.console.cluster import BrokerState
from rocketpy.console.conditions import DAY_MS, OF_HEALTH, conditions_of_health

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 20_000
QUIET = {
    "worker_send": "ready, silent 12 ms, restarts 1",
    "putMessageFailedTimes": "5",
    "connectionsRefused": "5",
    "unreadConnectionsClosed": "5",
    "certificateNotAfter": str(NOW_MS + 15 * DAY_MS),
    "bootTimestamp": str(NOW_MS),
    "runtime": "[ 0 days, 0 hours, 0 minutes, 20 seconds ]",
}


def found(limits: BrokerLimits, **changes: str) -> dict[str, tuple[str, float]]:
    """Return what is found after an answer with QUIET and one with these changes, by kind."""
    broker = BrokerState("C", "a b", 0, "x:1")
    for now_ms, figures in ((NOW_MS, QUIET), (LATER_MS, QUIET | changes)):
        broker.answered(now_ms, 1, figures, None)
    conditions = list(conditions_of_health(broker, limits, LATER_MS))
    assert all(each.subject == "a b x:1" and each.page == "/broker?name=a%20b" for each in conditions)
    assert {each.kind for each in conditions} <= OF_HEALTH
    return {each.kind: (each.text.removeprefix("broker a b x:1: "), each.value) for each in conditions}


def test_nothing_is_wrong_with_a_broker_whose_counters_stand() -> None:
    assert found(BrokerLimits()) == {}


def test_each_fault_has_its_words() -> None:
    changes = {
        "worker_send": "ready, silent 6400 ms, restarts 3",
        "putMessageFailedTimes": "8",
        "connectionsRefused": "6",
        "unreadConnectionsClosed": "7",
        "certificateNotAfter": str(LATER_MS + DAY_MS // 2),
        "runtime": "[ 0 days, 1 hours, 0 minutes, 20 seconds ]",
    }
    assert found(BrokerLimits(), **changes) == {
        "worker": (
            "worker send has not moved for 6 s; worker send was replaced 2 times within 10 min",
            2,
        ),
        "failed_sends": ("3 sends answered with an error within 10 min, limit 0", 3),
        "refused_connections": ("1 connections refused within 10 min, limit 0", 1),
        "unread_connections": ("2 connections closed whose clients left answers unread within 10 min, limit 0", 2),
        "certificate": ("its certificate expires in 0.5 days, limit 14 days", 0.5),
        "clock": ("its clock is 3600 s ahead of that of the console, limit 5 s", 3600),
    }


def test_a_certificate_that_has_expired_and_a_clock_that_is_behind() -> None:
    changes = {"certificateNotAfter": str(LATER_MS - DAY_MS), "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"}
    texts = found(BrokerLimits(), **changes)
    assert texts["certificate"][0] == "its certificate expired 1.0 days ago, limit 14 days"
    assert texts["clock"][0] == "its clock is 19 s behind that of the console, limit 5 s"


def test_each_limit_counts() -> None:
    limits = BrokerLimits(
        worker_silent_seconds=7,
        worker_restarts=2,
        failed_sends=3,
        refused_connections=1,
        unread_connections=2,
        certificate_days=0.25,
        clock_seconds=4000,
    )
    changes = {
        "worker_send": "ready, silent 6400 ms, restarts 3",
        "putMessageFailedTimes": "8",
        "connectionsRefused": "6",
        "unreadConnectionsClosed": "7",
        "certificateNotAfter": str(LATER_MS + DAY_MS // 2),
        "runtime": "[ 0 days, 1 hours, 0 minutes, 20 seconds ]",
    }
    assert found(limits, **changes) == {}


def test_events_before_the_window_are_over() -> None:
    assert "failed_sends" in found(BrokerLimits(window_minutes=0.1), putMessageFailedTimes="8")
    broker = BrokerState("C", "a", 0, "x:1")
    for now_ms, failed in ((NOW_MS, "5"), (LATER_MS, "8"), (LATER_MS + 60_000, "8")):
        broker.answered(now_ms, 1, {"putMessageFailedTimes": failed}, None)
    assert list(conditions_of_health(broker, BrokerLimits(window_minutes=0.1), LATER_MS + 60_000)) == []
