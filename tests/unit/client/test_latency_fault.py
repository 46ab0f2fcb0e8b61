"""Slow and failed brokers are left alone, as long as there is any other."""

from rocketpy.client.sending.latency_fault import LatencyFaults, not_available_ms
from rocketpy.client.sending.queue_selection import RoundRobin
from rocketpy.message.message_queue import MessageQueue
from tests.support.cases import cases

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(2)]
WRITE_NUMS = {"a": 2, "b": 2}


@cases(
    "latency, expected",
    [
        (0, 0),
        (49, 0),
        (50, 0),
        (100, 0),
        (549, 0),
        (550, 30_000),
        (1000, 60_000),
        (2500, 120_000),
        (3000, 180_000),
        (30_000, 600_000),
    ],
)
def test_table(latency: int, expected: int) -> None:
    """Holds: client, latency fault tolerance."""
    assert not_available_ms(latency) == expected


def test_a_slow_broker_is_avoided_and_comes_back() -> None:
    faults = LatencyFaults()
    faults.report("a", 600, now_ms=0)
    turn = RoundRobin(0)
    assert {faults.select(QUEUES, WRITE_NUMS, turn, 29_999).broker_name for _ in range(8)} == {"b"}
    assert {faults.select(QUEUES, WRITE_NUMS, turn, 30_000).broker_name for _ in range(8)} == {"a", "b"}


def test_isolation_counts_as_thirty_seconds() -> None:
    faults = LatencyFaults()
    faults.report("a", 1, now_ms=0, isolate=True)
    assert not faults.is_available("a", 599_999)
    assert faults.is_available("a", 600_000)


def test_when_all_are_avoided_the_better_half_takes_turns() -> None:
    faults = LatencyFaults()
    for latency, broker in ((600, "a"), (700, "b")):
        faults.report(broker, latency, now_ms=0)
    assert {faults.pick_at_least_one(1) for _ in range(4)} == {"a"}
    assert faults.select(QUEUES, WRITE_NUMS, RoundRobin(0), 1).broker_name == "a"


def test_a_broker_that_left_the_route_is_forgotten() -> None:
    faults = LatencyFaults()
    for broker in ("a", "b", "gone"):
        faults.report(broker, 500_000, now_ms=0)
    faults.items["gone"] = faults.items["gone"].__class__("gone", 1, 600_000)
    faults.select(QUEUES, WRITE_NUMS, RoundRobin(0), 1)
    assert "gone" not in faults.items
