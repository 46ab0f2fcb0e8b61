"""Clients are told to reset their offsets (222), or asked for them (223)."""

from __future__ import annotations

from pathlib import Path

import trio

from rocketpy.codes import LanguageCode
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.command import RemotingCommand
from tests.support.slow_path import NOW_MS, FakeChannel, SlowPathRig, body_of

RESET = {"topic": "T", "group": "G", "timestamp": str(NOW_MS + 5), "isForce": "false"}
JAVA_FORM = (
    b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:%d,'
    b'{"brokerName":"broker-a","queueId":1,"topic":"T"}:%d}}'
)


def rig_with_group(root: Path) -> SlowPathRig:
    rig = SlowPathRig(root)
    rig.services.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    rig.store.fill("T", 0, 20)
    rig.store.fill("T", 1, 20)
    return rig


def test_refusals_in_order(tmp_path: Path) -> None:
    """Holds: answer, offset resets (222, 223)."""
    rig = rig_with_group(tmp_path)

    async def main() -> None:
        no_topic = await rig.ask(222, RESET | {"topic": "none"})
        assert no_topic.code == 1
        assert no_topic.remark == "[reset-offset] reset offset failed, no topic in this broker. topic=none"
        rig.services.offsets.commit("G", "T", 0, 10)
        no_group = await rig.ask(222, RESET)
        assert (no_group.code, no_group.remark) == (1, "THe consumer group <G> not exist")
        rig.services.offsets.commit("G", "T", 1, 3)
        offline = await rig.ask(222, RESET)
        assert offline.code == 206
        assert offline.remark == (
            f"Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: {NOW_MS + 5}"
        )
        await rig.ask(34, None, {"clientID": "a", "consumerDataSet": [{"groupName": "G"}]}, version=27)
        old = await rig.ask(222, RESET)
        assert old.code == 1 and (old.remark or "").startswith("the client does not support this feature. version=")

    trio.run(main)


def test_a_reset_is_pushed_and_leaves_our_table_alone(tmp_path: Path) -> None:
    """Holds: client, replay from a time."""
    rig = rig_with_group(tmp_path)

    async def main() -> None:
        rig.services.offsets.commit("G", "T", 0, 10)
        rig.services.offsets.commit("G", "T", 1, 3)
        await rig.heartbeat("a", group="G", topics={"T": "*"})
        answer = await rig.ask(222, RESET)
        assert answer.body == JAVA_FORM % (5, 3), "never forward without force"
        pushed = rig.channel.last
        assert (pushed.code, pushed.is_oneway, pushed.body) == (220, True, answer.body)
        assert pushed.ext_fields == RESET
        forced = await rig.ask(222, RESET | {"isForce": "true"})
        assert forced.body == JAVA_FORM % (5, 5)
        end = await rig.ask(222, RESET | {"timestamp": "-1", "isForce": "true"}, language=LanguageCode.CPP)
        assert end.body == JAVA_FORM % (20, 20)
        assert rig.channel.last.body == (
            b'{"offsetTable":[{"brokerName":"broker-a","offset":20,"queueId":0,"topic":"T"},'
            b'{"brokerName":"broker-a","offset":20,"queueId":1,"topic":"T"}]}'
        )
        assert rig.services.offsets.query_all("G", "T") == {0: 10, 1: 3}

    trio.run(main)


def test_status_of_those_that_answer(tmp_path: Path) -> None:
    rig = rig_with_group(tmp_path)
    good, silent, odd = FakeChannel(2), FakeChannel(3), FakeChannel(4)
    good.answer = RemotingCommand.response(
        body=b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":1,"topic":"T"}:7}}'
    )
    odd.answer = RemotingCommand.response(body=b'{"messageQueueTable":[1]}')

    async def main() -> None:
        nobody = await rig.ask(223, {"topic": "T", "group": "G"})
        assert (nobody.code, nobody.remark) == (1, "No Any Consumer online in the consumer group: [G]")
        for client_id, channel in (("good", good), ("silent", silent), ("odd", odd)):
            await rig.heartbeat(client_id, group="G", topics={"T": "*"}, channel=channel)
        table = body_of(await rig.ask(223, {"topic": "T", "group": "G"}))["consumerTable"]
        assert table == {"good": {'{"brokerName":"broker-a","queueId":1,"topic":"T"}': 7}}
        assert good.invoked[-1].ext_fields == {"topic": "T", "group": "G"}
        one = body_of(await rig.ask(223, {"topic": "T", "group": "G", "clientAddr": "silent"}))["consumerTable"]
        assert one == {}

    trio.run(main)
