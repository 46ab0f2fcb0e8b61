"""Figures: windows of an item, growth of topics, rates and latencies of the workers' counters."""

from __future__ import annotations

import attrs
import pytest
import trio

from rocketpy.broker.current_settings import CurrentSettings
from rocketpy.broker.managers.broker_stats import BEGINNINGS_MAX, BrokerStatsManager, WorkerCounters
from rocketpy.broker.managers.stats_item import DAY_SNAPSHOTS, StatsItem, StatsSnapshot
from rocketpy.config import BrokerConfig, BrokerSettings, RocketpyConfig
from rocketpy.remoting.work import result_of
from tests.support.slow_path import FakeClock


def settings(**changes: int) -> CurrentSettings:
    broker = BrokerConfig(broker_cluster_name="C")
    return CurrentSettings(attrs.evolve(BrokerSettings(), broker=broker, rocketpy=RocketpyConfig(**changes)))  # type: ignore[arg-type]


def test_an_item_that_was_never_sampled_shows_zeros() -> None:
    assert StatsItem().minute == StatsSnapshot(0, 0.0, 0.0)


def test_the_first_sample_counts_as_one_interval() -> None:
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
    stats = BrokerStatsManager(settings(stats_items_max=2), WorkerCounters, FakeClock())
    for topic in ("T", "U", "V"):
        stats.count_consumed("G", topic, 1)
    assert stats.item("GROUP_GET_NUMS", "V@G") is None
    for hour in range(DAY_SNAPSHOTS):
        assert stats.item("GROUP_GET_NUMS", "T@G"), hour
        stats.count_consumed("G", "U", 1)
        for _ in stats.sample_day():
            pass
    stats.count_consumed("G", "V", 1)
    assert [stats.item("GROUP_GET_NUMS", f"{topic}@G") is not None for topic in "TUV"] == [False, True, True]


def test_topics_are_counted_by_growth() -> None:
    stats = BrokerStatsManager(settings(), WorkerCounters, FakeClock())
    ends = {("T", 0): 5, ("T", 1): 7}

    def sample() -> None:
        trio.run(stats.sample_topics, [("T", 2)], lambda topic, queue: ends[topic, queue], lambda topic, queue: 0)

    sample()
    assert stats.item("TOPIC_PUT_NUMS", "T") is None, "what was there before is not news"
    ends["T", 1] = 10
    sample()
    item = stats.item("TOPIC_PUT_NUMS", "T")
    assert item is not None and item.value == 3
    ends["T", 0] = ends["T", 1] = 0  # deleted and created again
    sample()
    assert item.value == 3


def test_a_new_topic_is_counted_from_its_first_message() -> None:
    stats = BrokerStatsManager(settings(), WorkerCounters, FakeClock())
    begins = {"old": 0, "new": 0, "again": 3}

    def sample(*topics: str) -> None:
        pairs = [(topic, 1) for topic in topics]
        trio.run(stats.sample_topics, pairs, lambda topic, queue: 5, lambda topic, queue: begins[topic])

    sample("old")
    sample("old", "new", "again")
    items = {topic: stats.item("TOPIC_PUT_NUMS", topic) for topic in begins}
    assert {topic: item and item.value for topic, item in items.items()} == {"old": None, "new": 5, "again": 2}


def test_the_first_commit_of_a_group_is_counted_from_where_it_begins() -> None:
    stats = BrokerStatsManager(settings(), WorkerCounters, FakeClock())

    def value() -> int:
        item = stats.item("GROUP_GET_NUMS", "T@G")
        return 0 if item is None else item.value

    stats.count_commit("G", "T", 0, -1, 100)
    assert value() == 0, "nobody knows where it began"
    stats.group_begins("G", "T", 1, 40)
    stats.count_commit("G", "T", 1, -1, 100)
    assert value() == 60
    stats.count_commit("G", "T", 1, 100, 90)
    assert value() == 60, "a reset"
    stats.count_commit("G", "T", 1, 90, 93)
    assert value() == 63
    stats.group_begins("G", "T", 2, 7)
    for queue in range(BEGINNINGS_MAX):
        stats.group_begins("H", "T", queue, 0)
    stats.count_commit("G", "T", 2, -1, 9)
    assert value() == 63, "the oldest makes room"


def test_rates_of_the_windows_that_are_full() -> None:
    clock, total = FakeClock(), 0
    stats = BrokerStatsManager(settings(), lambda: WorkerCounters(messages_put=total), clock)
    assert stats.rates(lambda c: c.messages_put) == [0.0]
    for second in range(61):
        total = second * (10 if second <= 50 else 20)
        stats.sample_second()
        clock.advance(1000)
    rates = stats.rates(lambda c: c.messages_put)
    assert rates == [pytest.approx((1200 - 500) / 10), pytest.approx(20.0)]


def test_latency_is_the_upper_end_of_its_bucket() -> None:
    buckets = (0,) * 5 + (99,) + (0,) * 6 + (1,)
    stats = BrokerStatsManager(settings(), lambda: WorkerCounters(put_latency_buckets=buckets), FakeClock())
    assert stats.put_latency_ms(0.5) == 0.032
    assert stats.put_latency_ms(1.0) == 4.096
    assert BrokerStatsManager(settings(), WorkerCounters, FakeClock()).put_latency_ms(0.99) == 0.0


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
    stats = BrokerStatsManager(settings(), WorkerCounters, FakeClock())
    stats.count_consumed("G", "T", 5)
    stats.count_consumed("H", "T", 5)
    stats.count_send_back("G", "U")
    result_of(stats.forget_group("G"))
    assert stats.item("GROUP_GET_NUMS", "T@G") is None and stats.item("SNDBCK_PUT_NUMS", "U@G") is None
    assert stats.item("GROUP_GET_NUMS", "T@H") is not None
    result_of(stats.forget_topic("T"))
    assert stats.item("GROUP_GET_NUMS", "T@H") is None
    assert stats.item("NO_SUCH_ITEM", "x") is None
