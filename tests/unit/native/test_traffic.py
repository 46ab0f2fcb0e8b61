"""Sums of what was stored and got, by queue and group, that the send and pull workers report to the manager."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native._rocketpy", reason="the fast path is C")

from rocketpy.native.core import ffi, lib
from rocketpy.reactor.worker_messages import decode_traffic
from rocketpy.remoting.fast_path import Traffic
from tests.support.fast_path import Clock, FastPath
from tests.support.fast_path_requests import pull, ready, send_v2

SECOND_NS = 1_000_000_000
KEYS_MAX, DEPTH_MAX = 4096, 1 << 14  # csrc/workers/shared/traffic.h


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rig(tmp_path: Path, clock: Clock) -> Iterator[FastPath]:
    rig = ready(FastPath(tmp_path, {"clock_ns": clock.pointer}, clock_ns=clock.pointer))
    yield rig
    rig.close()


def reports(rig: FastPath) -> list[Traffic]:
    return [decode_traffic(data) for kind, data in rig.for_manager() if kind == lib.RP_MSG_TRAFFIC]


def send_to(rig: FastPath, topics: Sequence[str]) -> None:
    for number, topic in enumerate(topics):
        rig.add_topic(topic, 1)
        rig.frame(send_v2(topic, queue=0))
        if number % 16 == 0:
            rig.turn()
            rig.answers()
    rig.turn()


def test_a_second_is_one_report_for_each_topic_and_for_each_queue_and_group(rig: FastPath, clock: Clock) -> None:
    """Fault: Statistics came from offsets and commits, so broadcast reads counted 0.
    Fault: Statistics missed the first sends to a new topic and the first reads of a group."""
    rig.add_group("Other")
    rig.subscribe("Other", "T")
    for queue in (0, 1, 0):
        rig.frame(send_v2(queue=queue))
    rig.turn()
    for group in ("G", "G", "Other"):
        rig.frame(pull(group=group), received_ns=clock.now_ns - 2_000_000)
    rig.frame(pull(offset=2))  # finds nothing: no messages to count
    rig.turn()
    assert reports(rig) == [], "the second is not over"
    clock.now_ns += SECOND_NS
    rig.turn()
    size = rig.workers["send"].counters[lib.RP_COUNT_BYTES_PUT] // 3
    sums = {(report.queue_id, report.group): report for report in reports(rig)}
    assert sums == {
        (0, None): Traffic(topic="T", queue_id=0, messages=3, bytes=3 * size, requests=3),
        (0, "G"): Traffic(
            topic="T", queue_id=0, group="G", messages=4, bytes=4 * size, requests=2, wait_ms=4, behind_bytes=size
        ),
        (0, "Other"): Traffic(
            topic="T", queue_id=0, group="Other", messages=2, bytes=2 * size, requests=1, wait_ms=2, behind_bytes=size
        ),
    }
    clock.now_ns += SECOND_NS
    rig.turn()
    assert reports(rig) == [], "each sum is reported once"


def test_the_wait_of_a_suspended_pull_is_not_the_time_that_it_was_suspended(rig: FastPath, clock: Clock) -> None:
    rig.frame(pull(flags=6), received_ns=clock.now_ns)
    rig.turn()
    clock.now_ns += 3 * SECOND_NS
    rig.frame(send_v2())
    rig.turn()
    clock.now_ns += SECOND_NS
    rig.turn()
    assert [(report.messages, report.wait_ms) for report in reports(rig) if report.group] == [(1, 0)]


def test_the_longest_service_of_a_pull_is_kept(tmp_path: Path) -> None:
    now_ns = [10 * SECOND_NS]

    def clock_ns() -> int:
        now_ns[0] += 5_000_000
        return now_ns[0]

    pointer = ffi.callback("uint64_t(void)", clock_ns)
    rig = ready(FastPath(tmp_path, {"clock_ns": pointer}))
    rig.frame(pull())
    rig.turn()
    assert rig.workers["pull"].counters[lib.RP_COUNT_GET_TIME_MAX_US] >= 5_000
    rig.close()


def test_sums_wait_while_the_ring_of_the_manager_fills_and_none_is_lost(rig: FastPath, clock: Clock) -> None:
    topics = sorted(f"Topic{number}" for number in range(400))
    send_to(rig, topics)
    clock.now_ns += SECOND_NS
    found: list[str] = []
    turns = 0
    while len(found) < len(topics) and turns < 100:
        turns += 1
        rig.turn()
        assert lib.rp_ring_depth(rig.send_manager) <= DEPTH_MAX + 256, "requests come first"
        found += [report.topic for report in reports(rig)]
    assert turns > 1 and sorted(found) == topics


def test_topics_beyond_the_bound_are_served_and_not_counted(rig: FastPath, clock: Clock) -> None:
    topics = [f"Topic{number}" for number in range(KEYS_MAX + 8)]
    send_to(rig, topics)
    assert rig.workers["send"].counters[lib.RP_COUNT_MESSAGES_PUT] == len(topics)
    clock.now_ns += SECOND_NS
    found: list[Traffic] = []
    for _ in range(200):
        rig.turn()
        found += reports(rig)
    assert len(found) == KEYS_MAX


def test_sends_to_any_number_of_queues_are_counted_for_their_topic(rig: FastPath, clock: Clock) -> None:
    """Fault: With more than 4 096 queues in a second, statistics of topics missed the sends to the others."""
    rig.add_topic("Wide", KEYS_MAX + 8)
    rig.turn()
    for queue in range(KEYS_MAX + 8):
        rig.frame(send_v2("Wide", queue=queue))
        if queue % 64 == 0:
            rig.turn()
            rig.answers()
    rig.turn()
    clock.now_ns += SECOND_NS
    rig.turn()
    assert [(report.topic, report.messages) for report in reports(rig)] == [("Wide", KEYS_MAX + 8)]
