"""Topics for admins, and the units of their queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.config import BrokerRole
from rocketpy.remoting.bodies.topic import TopicConfig
from tests.support.slow_path import NOW_MS, SlowPathRig, body_of

NEW = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "true",
}


def test_a_topic_is_created_saved_and_registered_before_the_answer(tmp_path: Path) -> None:
    """Holds: broker, creation of topics."""
    rig = SlowPathRig(tmp_path, namesrv_addr="127.0.0.1:9876")
    response = trio.run(lambda: rig.ask(17, NEW))
    assert response.code == 0
    created = rig.services.topics.select("T")
    assert created == TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=2), "order comes from elsewhere"
    assert '"T"' in (tmp_path / "config" / "topics.json").read_text()
    assert len(rig.name_servers.requests(103)) == 1


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"topic": ""}, "The specified topic is blank."),
        ({"topic": "TBW102"}, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "DefaultCluster"}, "The topic[DefaultCluster] is conflict with system topic."),
        ({"topic": "rmq_sys_x"}, "The topic[rmq_sys_x] is conflict with system topic."),
        ({"topicFilterType": "X"}, "the topic filter type X is none of SINGLE_TAG, MULTI_TAG"),
        ({"readQueueNums": "-1"}, "a topic has 0 to 65536 queues, not -1"),
        ({"writeQueueNums": "65537"}, "a topic has 0 to 65536 queues, not 65537"),
    ],
)
def test_what_cannot_be_created(tmp_path: Path, changes: dict[str, str], remark: str) -> None:
    """Holds: answer, topics (17, 21, 202, 215, 300)."""
    response = trio.run(lambda: SlowPathRig(tmp_path).ask(17, NEW | changes))
    assert (response.code, response.remark) == (1, remark)


@pytest.mark.parametrize("code", [17, 215, 200, 207])
def test_a_slave_changes_nothing(tmp_path: Path, code: int) -> None:
    """Holds: replication, writes at the master only; answer, refusals of a slave."""
    rig = SlowPathRig(tmp_path, broker_role=BrokerRole.SLAVE)
    response = trio.run(lambda: rig.ask(code, NEW | {"groupName": "G"}, {"groupName": "G"}))
    assert response.code == 1
    assert response.remark == (
        "Can't modify topic or subscription group from slave broker, please execute it from master broker."
    )


def test_a_deleted_topic_is_gone_from_the_fast_path_before_its_queues_are_dropped(tmp_path: Path) -> None:
    rig = SlowPathRig(tmp_path)

    async def main() -> None:
        await rig.ask(17, NEW)
        assert (await rig.ask(215, {"topic": "T"})).code == 0

    trio.run(main)
    names = [call for call in rig.fast_path.calls if call[0] in ("topic_removed", "delete_queues")]
    assert names == [("topic_removed", "T"), ("delete_queues", "T")]
    assert '"T"' not in (tmp_path / "config" / "topics.json").read_text()


def test_a_deletion_that_the_store_cannot_finish_is_answered_in_time(tmp_path: Path) -> None:
    """Its disk is full, or it is away: the topic is deleted, and the answer says what is left."""
    rig = SlowPathRig(tmp_path)
    rig.fast_path.is_store_away = True

    async def main() -> None:
        await rig.ask(17, NEW)
        response = await rig.ask(215, {"topic": "T"})
        assert response.code == 0
        assert (response.remark or "").startswith("deleted; consume queue files are not removed yet")
        assert (await rig.ask(316)).code == 0

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert '"T"' not in (tmp_path / "config" / "topics.json").read_text()


def test_lists(tmp_path: Path) -> None:
    """Holds: answer, topics (17, 21, 202, 215, 300)."""
    rig = SlowPathRig(tmp_path)

    async def ask(code: int, fields: dict[str, str] | None = None) -> Any:
        return body_of(await rig.ask(code, fields))

    async def main() -> None:
        await rig.ask(17, NEW)
        everything = await ask(21)
        assert everything["topicConfigTable"]["T"] == {
            "order": False,
            "perm": 6,
            "readQueueNums": 4,
            "topicFilterType": "SINGLE_TAG",
            "topicName": "T",
            "topicSysFlag": 0,
            "writeQueueNums": 2,
        }
        assert everything["dataVersion"]["counter"] == 1
        assert (await ask(351, {"topic": "T"}))["writeQueueNums"] == 2
        assert (await rig.ask(351, {"topic": "none"})).code == 17
        system = (await ask(305))["topicList"]
        assert {"TBW102", "DefaultCluster", "broker-a", "RMQ_SYS_TRACE_TOPIC"} <= set(system)
        rig.services.offsets.commit("OFFLINE", "T", 0, 1)
        await rig.heartbeat("a", group="ONLINE", topics={"T": "*"})
        assert await ask(300, {"topic": "T"}) == {"groupList": ["OFFLINE", "ONLINE"]}

    trio.run(main)


def test_stats_of_each_queue(tmp_path: Path) -> None:
    """Holds: answer, topics (17, 21, 202, 215, 300)."""
    rig = SlowPathRig(tmp_path)
    rig.store.fill("T", 1, 7, low=3)

    async def main() -> None:
        await rig.ask(17, NEW)
        response = await rig.ask(202, {"topic": "T"})
        assert response.body == (
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:'
            b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0},'
            b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:'
            b'{"lastUpdateTimestamp":%d,"maxOffset":7,"minOffset":3}}}' % (NOW_MS + 6)
        )
        assert (await rig.ask(202, {"topic": "T", "offsetsOnly": "false"})).body == response.body
        response = await rig.ask(202, {"topic": "T", "offsetsOnly": "true"})
        assert response.body == b'{"maxOffsets":[0,7],"minOffsets":[0,3]}'
        assert (await rig.ask(202, {"topic": "none"})).code == 17

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
