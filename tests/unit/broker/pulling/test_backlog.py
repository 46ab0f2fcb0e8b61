"""How far groups are behind, and when that is told."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rocketpy.broker.pulling import backlog
from rocketpy.broker.pulling.backlog import Backlog, BacklogMonitor
from rocketpy.processes.workers import traffic_rows
from rocketpy.processes.workers.traffic_rows import consumption_rows, online_consumers, queue_rows, topic_row
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.fast_path import Traffic
from rocketpy.remoting.work import result_of
from rocketpy.transport.steps import Steps
from tests.support.fake_store import Unit
from tests.support.slow_path import NOW_MS, SlowPathRig


@attrs.define
class Rig:
    rig: SlowPathRig

    @classmethod
    def of(cls, path: Path, **bounds: int) -> Rig:
        return cls(SlowPathRig(path, rocketpy=bounds))

    def monitor(self) -> BacklogMonitor:
        services = self.rig.services
        settings, clock, store = services.settings, services.clock, services.store
        return BacklogMonitor(settings, services.topics, services.groups, services.offsets, store, clock)

    def queue(self, topic: str, queue_id: int, ages_s: list[int], first_phy_offset: int = 0) -> None:
        """A queue of messages that are so old."""
        self.rig.services.topics.update(TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4))
        now_ms = self.rig.clock.now_ms()
        self.rig.store.queues[topic, queue_id] = [
            (Unit(first_phy_offset + number, 50), now_ms - age_s * 1000) for number, age_s in enumerate(ages_s)
        ]

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.rig.services.groups.update(SubscriptionGroupConfig(group_name=group))
        self.rig.services.offsets.commit(group, topic, queue_id, offset)


@pytest.fixture
def behind(tmp_path: Path) -> Rig:
    """A group that has not consumed 3 of 5 messages; the oldest, 70 s old, lies in queue 1."""
    rig = Rig.of(tmp_path, backlog_alarm_messages=2, backlog_alarm_age_millis=0)
    rig.queue("T", 0, [50, 40, 30], first_phy_offset=500)
    rig.queue("T", 1, [80, 70], first_phy_offset=100)
    rig.queue("T", 2, [90])
    rig.commit("G", "T", 0, 1)
    rig.commit("G", "T", 1, 1)
    rig.commit("G", "T", 2, 1)
    return rig


def test_messages_and_the_age_of_the_oldest(behind: Rig) -> None:
    """Holds: broker, backlog."""
    monitor = behind.monitor()
    trio.run(monitor.look)
    [row] = monitor.rows
    assert row == Backlog("G", "T", consumed=3, messages=3, oldest_ms=NOW_MS - 70_000)
    assert row.age_ms(NOW_MS) == 70_000 and Backlog("G", "T", 0, 0).age_ms(NOW_MS) == 0


def test_what_was_deleted_is_not_behind(tmp_path: Path) -> None:
    rig = Rig.of(tmp_path)
    rig.queue("T", 0, [50, 40, 30])
    rig.rig.store.low["T", 0] = 2
    rig.commit("G", "T", 0, 0)
    rig.commit("G", "gone", 0, 0)
    rig.rig.store.fill("gone", 0, 9)
    rig.commit("CID_RMQ_SYS_TRANS", "T", 0, 0)
    monitor = rig.monitor()
    trio.run(monitor.look)
    assert {(row.group, row.topic): row.messages for row in monitor.rows} == {("G", "T"): 1, ("G", "gone"): 0}


def test_a_group_that_stands_still_costs_no_read_of_the_log(behind: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor, reads = behind.monitor(), []
    read = behind.rig.store.message_store_timestamp

    def counted(topic: str, queue_id: int, offset: int) -> int:
        reads.append((topic, queue_id, offset))
        return read(topic, queue_id, offset)

    monkeypatch.setattr(behind.rig.store, "message_store_timestamp", counted)
    trio.run(monitor.look)
    trio.run(monitor.look)
    assert reads == [("T", 1, 1)]
    behind.commit("G", "T", 1, 2)
    trio.run(monitor.look)
    assert reads == [("T", 1, 1), ("T", 0, 1)]


def test_a_round_that_is_young_enough_is_not_repeated(behind: Rig) -> None:
    monitor = behind.monitor()
    trio.run(monitor.look)
    behind.commit("G", "T", 0, 3)
    behind.rig.clock.mono_ms += 4000
    trio.run(monitor.look, 5.0)
    assert monitor.rows[0].messages == 3
    behind.rig.clock.mono_ms += 2000
    trio.run(monitor.look, 5.0)
    assert monitor.rows[0].messages == 1


@pytest.mark.parametrize(
    ("bounds", "alarms"),
    [
        ({"backlog_alarm_messages": 2}, 1),
        ({"backlog_alarm_messages": 3}, 0),
        ({"backlog_alarm_messages": 0}, 0),
        ({"backlog_alarm_messages": 0, "backlog_alarm_age_millis": 69_999}, 1),
        ({"backlog_alarm_messages": 0, "backlog_alarm_age_millis": 70_000}, 0),
    ],
)
def test_bounds(behind: Rig, bounds: dict[str, int], alarms: int) -> None:
    """Holds: admin, statistics, metrics and alarms."""
    settings = behind.rig.services.settings
    settings.value = attrs.evolve(settings.value, rocketpy=attrs.evolve(settings.rocketpy, **bounds))
    monitor = behind.monitor()
    trio.run(monitor.look)
    assert monitor.alarms == alarms


def test_the_log_tells_the_worst_group_now_and_then_and_the_end(behind: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Holds: broker, backlog."""
    caplog.set_level(logging.INFO)
    behind.queue("U", 0, [10] * 30)
    behind.commit("H", "U", 0, 0)
    monitor = behind.monitor()
    for passed_s in (0.0, 15.0, backlog.LOG_INTERVAL_S - 15.0):
        behind.rig.clock.mono_ms += int(passed_s * 1000)
        trio.run(monitor.look)
    lines = [record.getMessage() for record in caplog.records if record.name == backlog.__name__]
    assert len(lines) == 2 and lines[0] == lines[1]
    assert "group H is behind in topic U: 30 messages" in lines[0] and "the oldest is 10 s old; 1 other" in lines[0]
    caplog.clear()
    behind.commit("G", "T", 0, 3)
    behind.commit("H", "U", 0, 30)
    trio.run(monitor.look)
    trio.run(monitor.look)
    assert [record.getMessage()[:25] for record in caplog.records if record.name == backlog.__name__] == [
        "no group is behind any mo"
    ]


def shown(behind: Rig, monitor: BacklogMonitor, *, is_small: bool = True) -> dict[str, int | None]:
    """The lag of each group that metrics show."""
    rows = trio.run(partial(consumption_rows, is_small=is_small), behind.rig.services, monitor, Steps())
    return {row.group: row.lag_messages for row in rows}


def test_rows_of_those_furthest_behind_are_kept_and_alarms_are_raised_for_all(
    behind: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: With more pairs of group and topic than are kept, metrics showed the lag of no group."""
    monkeypatch.setattr(backlog, "ROWS_MAX", 2)
    for group, consumed in (("A", 0), ("B", 3), ("Y", 0), ("Z", 2)):
        behind.commit(group, "T", 0, consumed)
    monitor = behind.monitor()
    trio.run(monitor.look)
    assert len(monitor.rows) == 2 and not monitor.is_complete and monitor.alarms == 3
    assert shown(behind, monitor) == {"A": 3, "G": 3}


def test_of_too_many_topics_the_groups_furthest_behind_are_shown(behind: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: Metrics of a broker with more than 2 000 topics had no lag of any group, and its alert never fired."""
    monkeypatch.setattr(traffic_rows, "BEHIND_MAX", 2)
    for group, consumed in (("A", 3), ("B", 2), ("C", 1), ("H", 0)):
        behind.commit(group, "T", 0, consumed)
    monitor = behind.monitor()
    trio.run(monitor.look)
    assert shown(behind, monitor, is_small=False) == {"G": 3, "H": 3}
    assert shown(behind, monitor) == {"A": 0, "B": 1, "C": 2, "G": 3, "H": 3}


def test_figures_by_name_for_metrics(behind: Rig) -> None:
    services = behind.rig.services
    for group in ("G", "reads only"):
        traffic: dict[str, Any] = {"topic": "T", "queue_id": 0, "messages": 60, "bytes": 600, "requests": 2}
        behind.rig.broker.count_traffic(Traffic(group=group, **traffic))
    behind.rig.broker.count_traffic(Traffic(**traffic))
    services.stats.count_send_back("G", "T")
    result_of(services.stats.sample_minute())
    monitor = behind.monitor()

    async def main() -> None:
        await monitor.look()
        rows = {row.group: row for row in await consumption_rows(services, monitor, Steps())}
        known, other = rows["G"], rows["reads only"]
        assert (known.lag_messages, known.lag_ms, known.consumer_offset_sum) == (3, 70_000, 3)
        assert (known.get_tps, known.get_bytes_tps, known.send_back_last_minute) == (6.0, 60.0, 1)
        assert (other.lag_messages, other.lag_ms, other.get_tps) == (None, None, 6.0)
        topic = services.topics.select("T")
        assert topic is not None
        row = topic_row(services, topic, (0, 6))
        assert (row.max_offset_sum, row.put_tps, row.put_bytes_tps) == (6, 6.0, 60.0)
        assert await online_consumers(services, "here:1", Steps()) == []

    trio.run(main)


def test_a_scrape_that_names_topics_again_and_again_lets_requests_through(tmp_path: Path) -> None:
    """Fault: One scrape that named a deleted topic 7000 times stopped the manager for 74 s.

    It looked up all groups of a topic for each name, and nothing else ran meanwhile. And Prometheus refuses samples
    that come twice.
    """
    rig = Rig.of(tmp_path)
    rig.queue("T", 0, [10])
    groups = 500
    for topic in ("T", "deleted"):
        for number in range(groups):
            rig.rig.services.offsets.commit(f"G{number}", topic, 0, 0)
    looked, looked_in_step, longest = 0, 0, 0
    query_all = rig.rig.services.offsets.query_all

    def look(group: str, topic: str) -> Any:
        nonlocal looked, looked_in_step
        looked, looked_in_step = looked + 1, looked_in_step + 1
        return query_all(group, topic)

    async def others() -> None:
        nonlocal looked_in_step, longest
        while True:
            longest, looked_in_step = max(longest, looked_in_step), 0
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        rig.rig.services.offsets.query_all = look  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            rows = await queue_rows(rig.rig.services, ["deleted", "T"] * 20, Steps(200))
            nursery.cancel_scope.cancel()
        assert [(row.topic, row.queue_id) for row in rows] == [("T", number) for number in range(4)]
        assert len(rows[0].consumed) == groups

    trio.run(main)
    assert looked == groups and longest <= 200
