"""Figures: windows of an item, items by name, rates and latencies of the workers' counters."""

from __future__ import annotations

import attrs
import pytest

from rocketpy.broker.current_settings import CurrentSettings
from rocketpy.broker.managers.broker_stats import KNOWN_ITEMS, SAMPLE_S, BrokerStatsManager, WorkerCounters
from rocketpy.broker.managers.stats_item import DAY_SNAPSHOTS, StatsItem, StatsSnapshot
from rocketpy.config import BrokerConfig, BrokerSettings, RocketpyConfig
from rocketpy.message.names import SCHEDULE_TOPIC
from rocketpy.remoting.fast_path import Traffic
from rocketpy.remoting.work import result_of
from tests.support.slow_path import FakeClock

DELAYED_KEYS = ("2", "2@SCHEDULE_CONSUMER", "SCHEDULE_CONSUMER")


def settings(**changes: int) -> CurrentSettings:
    broker = BrokerConfig(broker_cluster_name="C")
    return CurrentSettings(attrs.evolve(BrokerSettings(), broker=broker, rocketpy=RocketpyConfig(**changes)))  # type: ignore[arg-type]


def test_an_item_that_was_never_sampled_shows_zeros() -> None:
    """Holds: trap, rates of the first ten seconds and of unsampled items."""
    assert StatsItem().minute == StatsSnapshot(0, 0.0, 0.0)


def test_the_first_sample_counts_as_one_interval() -> None:
    """Holds: trap, rates of the first ten seconds and of unsampled items."""
    item = StatsItem()
    item.add(50, 5)
    item.sample_minute(1_000_000)
    assert item.minute == StatsSnapshot(50, 5.0, 10.0)


def test_a_window_forgets() -> None:
    item = StatsItem()
    for tick in range(20):
        item.add(10, 1)
        item.sample_minute(tick * 10_000)
        item.sample_hour(tick * 600_000)
    assert item.minute == StatsSnapshot(60, 1.0, 10.0)
    assert item.hour.sum == 60 and item.day.sum == 0


def test_any_number_that_clients_commit_can_be_sampled() -> None:
    item = StatsItem()
    for _ in range(3):
        item.add((1 << 63) - 1)
        item.sample_minute(1)
    assert item.value == (1 << 63) - 1


def test_an_item_makes_room_when_nothing_was_counted_for_a_day() -> None:
    """Fault: Statistics by name could take 2 GB: 600 000 items of up to 3.6 KB."""
    stats = BrokerStatsManager(settings(stats_items_max=2), WorkerCounters, FakeClock())
    for topic in ("T", "U", "V"):
        stats.count_send_back("G", topic)
    assert stats.item("SNDBCK_PUT_NUMS", "V@G") is None
    for hour in range(DAY_SNAPSHOTS):
        assert stats.item("SNDBCK_PUT_NUMS", "T@G"), hour
        stats.count_send_back("G", "U")
        for _ in stats.sample_day():
            pass
    stats.count_send_back("G", "V")
    assert [stats.item("SNDBCK_PUT_NUMS", f"{topic}@G") is not None for topic in "TUV"] == [False, True, True]


def values(stats: BrokerStatsManager) -> dict[tuple[str, str], tuple[int, int]]:
    """(item, key) -> (value, times) of all items."""
    return {
        (name, key): (item.value, item.times)
        for name in KNOWN_ITEMS
        for key in KEYS
        if (item := stats.item(name, key)) is not None
    }


KEYS = ("T", "T@G", "2@T@G", "SCHEDULE_TOPIC_XXXX", *(f"SCHEDULE_TOPIC_XXXX@{rest}" for rest in DELAYED_KEYS))


def test_sends_are_counted_by_topic_with_their_bytes() -> None:
    """Fault: Statistics missed the first sends to a new topic and the first reads of a group."""
    stats = BrokerStatsManager(settings(), WorkerCounters, FakeClock())
    for queue_id in (0, 1):
        stats.count_traffic(Traffic(topic="T", queue_id=queue_id, messages=10, bytes=2_000, requests=3))
    assert values(stats) == {("TOPIC_PUT_NUMS", "T"): (20, 6), ("TOPIC_PUT_SIZE", "T"): (4_000, 6)}


def test_pulls_are_counted_by_topic_and_group_and_their_latency_by_queue() -> None:
    """Holds: admin, statistics, metrics and alarms."""
    stats = BrokerStatsManager(settings(), WorkerCounters, FakeClock())
    stats.count_traffic(Traffic(topic="T", queue_id=2, group="G", messages=64, bytes=9_000, requests=2, wait_ms=7))
    assert values(stats) == {
        ("GROUP_GET_NUMS", "T@G"): (64, 2),
        ("GROUP_GET_SIZE", "T@G"): (9_000, 2),
        ("GROUP_GET_LATENCY", "2@T@G"): (7, 2),
    }
    assert stats.group_get_tps("G", "T") == 0.0
    result_of(stats.sample_minute())
    assert stats.group_get_tps("G", "T") == 6.4


def test_how_far_behind_a_group_reads_is_that_of_its_last_pulls() -> None:
    stats = BrokerStatsManager(settings(stats_items_max=2), WorkerCounters, FakeClock())

    def got(topic: str, queue_id: int, behind_bytes: int) -> None:
        stats.count_traffic(
            Traffic(
                topic=topic, queue_id=queue_id, group="G", messages=1, bytes=9, requests=1, behind_bytes=behind_bytes
            )
        )

    assert stats.fall_size("G", "T") is None
    got("T", 0, 900)
    got("T", 1, 500)
    assert stats.fall_size("G", "T") == 900
    got("T", 0, 100)
    assert stats.fall_size("G", "T") == 500
    got("U", 0, 100)
    assert stats.fall_size("G", "U") is None, "bounded as the items are"
    result_of(stats.forget_group("G"))
    assert stats.fall_size("G", "T") is None


def test_without_details_there_are_no_items_by_queue() -> None:
    current = settings()
    broker = attrs.evolve(current.broker, enable_detail_stat=False)
    stats = BrokerStatsManager(CurrentSettings(attrs.evolve(current.value, broker=broker)), WorkerCounters, FakeClock())
    stats.count_traffic(Traffic(topic="T", queue_id=2, group="G", messages=1, bytes=9, requests=1, wait_ms=7))
    stats.count_traffic(Traffic(topic=SCHEDULE_TOPIC, queue_id=2, messages=1, bytes=9, requests=1))
    stats.count_deliveries(3, 1, 9)
    assert ("GROUP_GET_LATENCY", "T@G") in values(stats)
    assert not [name for name, _ in values(stats) if name.startswith("QUEUE_")]
    result_of(stats.forget_group("G"))
    assert not [key for _, key in values(stats) if key == "T@G"]


def test_delayed_messages_are_counted_by_level() -> None:
    stats = BrokerStatsManager(settings(), WorkerCounters, FakeClock())
    stats.count_traffic(Traffic(topic=SCHEDULE_TOPIC, queue_id=2, messages=1, bytes=200, requests=1))
    stats.count_deliveries(3, 1, 200)
    got = f"{SCHEDULE_TOPIC}@2@SCHEDULE_CONSUMER", f"{SCHEDULE_TOPIC}@SCHEDULE_CONSUMER"
    assert values(stats) == {
        ("TOPIC_PUT_NUMS", SCHEDULE_TOPIC): (1, 1),
        ("TOPIC_PUT_SIZE", SCHEDULE_TOPIC): (200, 1),
        ("QUEUE_PUT_NUMS", f"{SCHEDULE_TOPIC}@2"): (1, 1),
        ("QUEUE_PUT_SIZE", f"{SCHEDULE_TOPIC}@2"): (200, 1),
        ("QUEUE_GET_NUMS", got[0]): (1, 1),
        ("QUEUE_GET_SIZE", got[0]): (200, 1),
        ("GROUP_GET_NUMS", got[1]): (1, 1),
        ("GROUP_GET_SIZE", got[1]): (200, 1),
    }


def test_rates_of_the_windows_that_are_full() -> None:
    clock, total = FakeClock(), 0
    stats = BrokerStatsManager(settings(), lambda: WorkerCounters(messages_put=total), clock)
    assert stats.rates(lambda c: c.messages_put) == [0.0]
    for second in range(0, 61, SAMPLE_S):
        total = second * (10 if second <= 50 else 20)
        stats.sample_counters()
        clock.advance(SAMPLE_S * 1000)
    rates = stats.rates(lambda c: c.messages_put)
    assert rates == [pytest.approx((1200 - 500) / 10), pytest.approx(20.0)]


def test_latency_is_the_upper_end_of_its_bucket() -> None:
    buckets = (0,) * 5 + (99,) + (0,) * 6 + (1,)
    stats = BrokerStatsManager(settings(), lambda: WorkerCounters(put_latency_buckets=buckets), FakeClock())
    assert stats.put_latency_ms(0.5) == 0.032
    assert stats.put_latency_ms(1.0) == 4.096
    assert BrokerStatsManager(settings(), WorkerCounters, FakeClock()).put_latency_ms(0.99) == 0.0


def test_latencies_of_a_window_are_those_of_its_puts() -> None:
    buckets, clock = [0, 0, 0], FakeClock()
    stats = BrokerStatsManager(settings(), lambda: WorkerCounters(put_latency_buckets=tuple(buckets)), clock)
    buckets[2] = 100
    assert stats.put_buckets(60) == (0, 0, 100), "since the start, when that is less"
    for _ in range(0, 61, SAMPLE_S):
        stats.sample_counters()
        clock.advance(SAMPLE_S * 1000)
    buckets[0] = 7
    assert stats.put_buckets(60) == (7, 0, 0) and stats.put_buckets() == (7, 0, 100)
    assert stats.put_latency_ms(0.99, 60) == 0.001 and stats.put_latency_ms(0.99) == 0.004


def test_midnight_and_totals() -> None:
    counters = WorkerCounters(messages_put=10, messages_get=4)
    stats = BrokerStatsManager(settings(), lambda: counters, FakeClock())
    stats.new_day()
    counters = WorkerCounters(messages_put=30, messages_get=9)
    stats.new_day()
    assert (stats.put_total_yesterday_morning, stats.put_total_today_morning) == (10, 30)
    assert (stats.get_total_yesterday_morning, stats.get_total_today_morning) == (4, 9)
    result_of(stats.sample_minute())
    item = stats.item("BROKER_PUT_NUMS", "C")
    assert item is not None and item.value == 30


def test_forgetting() -> None:
    stats = BrokerStatsManager(settings(stats_items_max=10), WorkerCounters, FakeClock())
    for group in "GH":
        stats.count_traffic(Traffic(topic="T", queue_id=2, group=group, messages=5, bytes=50, requests=1))
    stats.count_traffic(Traffic(topic="T", queue_id=2, messages=5, bytes=50, requests=1))
    stats.count_send_back("G", "U")
    result_of(stats.forget_group("G"))
    assert {key for _, key in values(stats)} == {"T"} and stats.item("SNDBCK_PUT_NUMS", "U@G") is None
    assert stats.item("GROUP_GET_LATENCY", "2@T@H") is not None
    result_of(stats.forget_topic("T"))
    assert not values(stats) and stats.item("GROUP_GET_NUMS", "T@H") is None
    assert stats.item("NO_SUCH_ITEM", "x") is None
    for group in range(11):
        stats.count_send_back(str(group), "U")
    assert stats.item("SNDBCK_PUT_NUMS", "U@9") is not None, "what was forgotten has made room"
    assert stats.item("SNDBCK_PUT_NUMS", "U@10") is None
