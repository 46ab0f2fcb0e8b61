"""Stored messages by key, by offset, and the units of a queue."""

from __future__ import annotations

from pathlib import Path

import trio

from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.slow_path import SlowPathRig, body_of

KEY = {"topic": "T", "key": "k", "maxNum": "64", "beginTimestamp": "1", "endTimestamp": "2"}


def test_query_by_key(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        nothing = await rig.ask(12, KEY)
        assert (nothing.code, nothing.remark) == (22, "can not find message, maybe time range not correct")
        assert nothing.ext_fields == {"indexLastUpdateTimestamp": "1", "indexLastUpdatePhyoffset": "2"}
        rig.store.found = [b"one", b"two"]
        found = await rig.ask(12, KEY | {"_UNIQUE_KEY_QUERY": "true"})
        assert (found.code, found.body) == (0, b"onetwo")
        assert rig.store.queried == [("T", "k", 64, 1, 2), ("T", "k", 32, 1, 2)]

    trio.run(main)


def test_messages_of_a_query_by_unique_key(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path, default_query_max_num=5)

    async def main() -> None:
        await rig.ask(12, KEY | {"_UNIQUE_KEY_QUERY": "true"})
        await rig.ask(12, KEY | {"_UNIQUE_KEY_QUERY": "false"})
        assert [count for _, _, count, _, _ in rig.store.queried] == [5, 64]

    trio.run(main)


def test_view_by_offset(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.store.records[77] = b"record"

    async def main() -> None:
        assert (await rig.ask(33, {"offset": "77"})).body == b"record"
        missing = await rig.ask(33, {"offset": "78"})
        assert (missing.code, missing.remark) == (1, "can not find message by the offset, 78")

    trio.run(main)


def test_units_of_a_queue(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)
    rig.services.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
    rig.store.fill("T", 0, 3, tags_code=5)
    ask = {"topic": "T", "queueId": "0", "index": "1", "count": "5", "consumerGroup": "G"}

    async def main() -> None:
        body = body_of(await rig.ask(321, ask))
        assert (body["minQueueIndex"], body["maxQueueIndex"]) == (0, 3)
        assert body["filterData"] == "G@T is not online!"
        assert body["queueData"][0] == {"eval": False, "physicOffset": 1001, "physicSize": 50, "tagsCode": 5}
        assert len(body["queueData"]) == 2
        await rig.heartbeat("a", group="G", topics={"T": "TagA"})
        body = body_of(await rig.ask(321, ask))
        assert body["filterData"] == "null" and body["subscriptionData"]["subString"] == "TagA"
        beyond = await rig.ask(321, ask | {"index": "9"})
        assert beyond.code == 0 and beyond.body is None
        assert beyond.remark == "Invalid queue index: 9, min: 0, max: 3"
        for fields in ({"queueId": "1"}, {"queueId": "-1"}, {"topic": "none"}):
            assert (await rig.ask(321, ask | fields)).code == 1

    trio.run(main)
