"""Answers to scrapes: made in a copy of the manager or in the manager itself, they have the same text."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
import trio

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.metrics.collector import BrokerCollector, QueueCollector
from rocketpy.metrics.scrape import ScrapeFailed
from rocketpy.processes.workers import scrapes
from rocketpy.processes.workers.forked_copy import ForkedCopy
from rocketpy.processes.workers.scrapes import Scrapes
from rocketpy.processes.workers.snapshot import SnapshotTaker
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.replication.slave_table import SlaveTable
from tests.support.fake_store import FakeStore, Statistics
from tests.support.slow_path import NOW_MS, SlowPathRig

TOPICS, QUEUES = 30, 4


@attrs.frozen
class AllStatistics(Statistics):
    durable_phy_offset: int = 4096
    dispatched_phy_offset: int = 4096
    replicated_phy_offset: int = 0


class ScrapedStore(FakeStore):
    """With what only scrapes read."""

    def statistics(self) -> AllStatistics:
        return AllStatistics()

    def open_again(self) -> None:
        """It has no files."""

    def ends_of_topics(self, topics: Mapping[str, int]) -> Generator[None, None, dict[str, tuple[int, int]]]:
        ends = {}
        for topic, count in topics.items():
            bounds = [self.bounds(topic, queue_id) for queue_id in range(count)]
            ends[topic] = sum(low for low, _ in bounds), sum(high for _, high in bounds)
            yield
        return ends


@attrs.define
class Rig:
    """A manager without processes around it, whose groups are behind in all topics."""

    slow_path: SlowPathRig
    take: SnapshotTaker
    in_copy: list[bool] = attrs.field(factory=list)

    @classmethod
    def of(cls, root: Path) -> Rig:
        rig = SlowPathRig(root, store=ScrapedStore(lambda: NOW_MS), rocketpy={"backlog_alarm_messages": 1})
        for number in range(TOPICS):
            topic, group = f"T{number}", f"G{number % 7}"
            rig.services.topics.update(TopicConfig(topic_name=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES))
            rig.services.groups.update(SubscriptionGroupConfig(group_name=group))
            for queue_id in range(QUEUES):
                rig.store.fill(topic, queue_id, 10 + number)
                rig.services.offsets.commit(group, topic, queue_id, number)
        topology: Any = SimpleNamespace(blocks={}, rings={})
        return cls(rig, SnapshotTaker(topology, rig.settings, rig.broker, rig.store, SlaveTable()))

    def make(self, *works: Callable[[Scrapes], bytes]) -> list[bytes]:
        """Do the works one after the other in a thread, beside the loop that owns the tables."""
        ours = os.getpid()

        def noted(work: Callable[[Scrapes], bytes], made: Scrapes) -> bytes:
            return bytes([os.getpid() != ours]) + work(made)

        async def main() -> list[bytes]:
            made = Scrapes(self.take, trio.lowlevel.current_trio_token())
            return [await trio.to_thread.run_sync(made.make, partial(noted, work, made)) for work in works]

        found = trio.run(main)
        self.in_copy = [bool(answer[0]) for answer in found]
        return [answer[1:] for answer in found]


def whole(made: Scrapes) -> bytes:
    return BrokerCollector(made.snapshot).text(is_openmetrics=True)


def queues(made: Scrapes) -> bytes:
    return QueueCollector(partial(made.queues, ["T3", "T4", "unknown"])).text(is_openmetrics=False)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig.of(tmp_path)


def fixed(text: bytes) -> list[bytes]:
    """The lines but those of figures of the moment: times, and memory of processes."""
    moving = (b"_seconds", b"_bytes", b"runtime", b"_clock")
    return [line for line in text.splitlines() if not any(name in line.partition(b"{")[0] for name in moving)]


@pytest.mark.parametrize("work", [whole, queues])
def test_the_text_is_the_same_in_a_copy_and_here(
    rig: Rig, work: Callable[[Scrapes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    [here] = rig.make(work)
    assert rig.in_copy == [False]
    monkeypatch.setattr(scrapes, "SMALL_ENTRIES", 0)
    [copied] = rig.make(work)
    assert rig.in_copy == [True]
    assert fixed(copied) == fixed(here) and len(here.splitlines()) > 20


def test_a_copy_looks_for_groups_that_are_behind_and_says_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The manager's own look, once a minute, writes the line: its limit of lines would not know of those of copies."""
    monkeypatch.setattr(scrapes, "SMALL_ENTRIES", 0)
    caplog.set_level(logging.INFO)
    answers = rig.make(whole, whole)
    assert all(b"rocketpy_consumer_backlog_alarms 30.0\n" in answer for answer in answers)
    assert not caplog.records and rig.slow_path.broker.backlog.rows == []


def test_a_look_that_is_under_way_does_not_hold_up_a_copy(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task with the lock is not in the copy, so it would never release it."""
    monkeypatch.setattr(scrapes, "SMALL_ENTRIES", 0)

    async def main() -> bytes:
        made = Scrapes(rig.take, trio.lowlevel.current_trio_token())
        async with rig.slow_path.broker.backlog._lock:
            return await trio.to_thread.run_sync(made.make, partial(whole, made))

    assert b"rocketpy_consumer_backlog_alarms 30.0\n" in trio.run(main)


def test_without_a_process_for_a_copy_the_answer_is_made_here(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> ForkedCopy:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(scrapes, "SMALL_ENTRIES", 0)
    monkeypatch.setattr(ForkedCopy, "begin", refuse)
    [answer] = rig.make(whole)
    assert rig.in_copy == [False] and answer.endswith(b"# EOF\n")


def test_a_copy_that_fails_is_counted_and_the_next_one_answers(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrapes, "SMALL_ENTRIES", 0)
    with pytest.raises(ScrapeFailed, match=r"^its process ended with status 3$"):
        rig.make(lambda made: cast("Any", os)._exit(3))
    assert rig.slow_path.broker.faults.counts == {"scrape": 1}
    [answer] = rig.make(whole)
    assert b'rocketpy_broker_faults_total{place="scrape"} 1.0\n' in answer


def test_a_large_broker_is_one_with_many_entries(rig: Rig) -> None:
    before = rig.take.entries
    rig.slow_path.services.offsets.commit("G", "T0", 7, 0)
    trio.run(partial(rig.slow_path.heartbeat, "c1", group="G", topics={"T0": "*"}, producer="P"))
    assert before >= TOPICS + 7 + TOPICS * QUEUES
    assert rig.take.entries >= before + 3, "an offset, a consumer and a producer"
