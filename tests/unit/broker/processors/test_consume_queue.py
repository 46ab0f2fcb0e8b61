"""The units of a queue, and a group's subscription beside them."""

from __future__ import annotations

from pathlib import Path

import trio

from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.slow_path import SlowPathRig, body_of


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
