"""How far groups have come."""

from __future__ import annotations

from pathlib import Path

import trio

from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.slow_path import NOW_MS, SlowPathRig, body_of

Q0 = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
Q1 = '{"brokerName":"broker-a","queueId":1,"topic":"T"}'


def rig_with_progress(root: Path) -> SlowPathRig:
    rig = SlowPathRig(root)
    rig.services.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=1))
    rig.services.topics.update(TopicConfig(topic_name="U", read_queue_nums=1, write_queue_nums=1))
    rig.store.fill("T", 0, 10)
    for topic in ("T", "U", "deleted"):
        rig.services.offsets.commit("G", topic, 0, 4)
    rig.services.groups.find_or_create("G")
    return rig


def test_progress_of_a_group(tmp_path: Path) -> None:
    """Holds: answer, progress of groups (208, 303, 317)."""
    rig = rig_with_progress(tmp_path)

    async def main() -> None:
        unknown = await rig.ask(208, {"consumerGroup": "none"})
        assert unknown.body == b'{"consumeTps":0.0,"offsetTable":{}}'
        table = body_of(await rig.ask(208, {"consumerGroup": "G", "topic": "T"}))["offsetTable"]
        assert table == {
            Q0: {"brokerOffset": 10, "consumerOffset": 4, "lastTimestamp": NOW_MS + 3},
            Q1: {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0},
        }
        everything = body_of(await rig.ask(208, {"consumerGroup": "G"}))["offsetTable"]
        assert len(everything) == 3, "topics without configuration are left out"
        await rig.heartbeat("a", group="G", topics={"T": "*"})
        online = body_of(await rig.ask(208, {"consumerGroup": "G"}))["offsetTable"]
        assert set(online) == {Q0, Q1}, "a group that is online consumes what it subscribes to"

    trio.run(main)


def test_progress_of_all_groups(tmp_path: Path) -> None:
    """Holds: answer, progress of groups (208, 303, 317)."""
    rig = rig_with_progress(tmp_path)

    async def main() -> None:
        body = body_of(await rig.ask(317, {"isOrder": "false"}))
        assert body["brokerAddr"] == "127.0.0.1:10911"
        (entry,) = body["consumeStatsList"]
        assert [list(stats["offsetTable"]) for stats in entry["G"]] == [
            [Q0, Q1],
            ['{"brokerName":"broker-a","queueId":0,"topic":"U"}'],
        ]
        assert body["totalDiff"] == (10 - 4) + (0 - 4)
        assert body_of(await rig.ask(317, {"isOrder": "true"}))["consumeStatsList"] == []

    trio.run(main)


def test_time_span(tmp_path: Path) -> None:
    """Holds: answer, progress of groups (208, 303, 317)."""
    rig = rig_with_progress(tmp_path)
    rig.clock.advance(1000)

    async def main() -> None:
        span, _ = body_of(await rig.ask(303, {"topic": "T", "group": "G"}))["consumeTimeSpanSet"]
        assert (span["minTimeStamp"], span["maxTimeStamp"]) == (NOW_MS, NOW_MS + 9)
        assert span["consumeTimeStamp"] == NOW_MS + 3
        assert span["delayTime"] == 996
        assert span["messageQueue"] == {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
        assert (await rig.ask(303, {"topic": "none", "group": "G"})).code == 17

    trio.run(main)


def test_queues_that_are_only_read_count(tmp_path: Path) -> None:
    """As after `updateTopic -r 2 -w 1`: what the second queue has must still be read.
    Fault: Backlog and age of a group (317, 303) left out queues beyond writeQueueNums, which are still read."""
    rig = rig_with_progress(tmp_path)
    rig.store.fill("T", 1, 5)
    rig.services.offsets.commit("G", "T", 0, 10)
    rig.clock.advance(1000)

    async def main() -> None:
        body = body_of(await rig.ask(317, {"isOrder": "false"}))
        table = body["consumeStatsList"][0]["G"][0]["offsetTable"]
        assert (table[Q1]["brokerOffset"], table[Q1]["consumerOffset"]) == (5, 0)
        spans = body_of(await rig.ask(303, {"topic": "T", "group": "G"}))["consumeTimeSpanSet"]
        assert [span["delayTime"] for span in spans] == [0, 1000]

    trio.run(main)
