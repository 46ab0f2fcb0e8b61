"""The official mqadmin 4.9.7: what operators type every day works, and says what is true."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import attrs
import pytest

from tests.interop.brokers import AnyBroker, TopicMaker, max_offsets, wait_committed
from tests.interop.mqadmin import MqAdmin, rows
from tests.interop.programs import Launcher, Program

QUEUES = 4
COUNT = 16


@attrs.frozen
class Worked:
    """A topic with messages, and a group that has consumed them and is still there."""

    topic: str
    group: str
    consumer: Program
    sent: list[dict[str, object]]


@pytest.fixture(scope="module")
def worked(
    module_launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, names: Callable[[str], str]
) -> Worked:
    topic, group = make_topic("admin", QUEUES), names("admin_group")
    consumer = module_launch.start("go", "push", topic=topic, group=group)
    consumer.wait_until(lambda: consumer.queues == list(range(QUEUES)), "all queues")
    sent = module_launch.run("java-4.9.8", "send", topic=topic, group=f"{topic}_producer", prefix=topic, count=COUNT)
    consumer.wait_messages(COUNT)
    wait_committed(broker, group, topic, QUEUES)
    return Worked(topic, group, consumer, sent.of_kind("sent"))


def test_cluster_list(mqadmin: MqAdmin, broker: AnyBroker) -> None:
    (row,) = rows(mqadmin(broker, "clusterList"))
    assert row[0] == "DefaultCluster"
    assert row[2:5] == ["0", broker.address, row[4]]
    assert re.fullmatch(r"V4_9_\d+", row[4])
    assert re.fullmatch(r"\d+\.\d\d\(\d+,\d+ms\)", row[5]), row
    (more,) = rows(mqadmin(broker, "clusterList", "-m"))
    assert more[0] == "DefaultCluster" and len(more) == 6


def test_topic_list(mqadmin: MqAdmin, broker: AnyBroker, worked: Worked) -> None:
    topics = mqadmin(broker, "topicList").split()
    assert {worked.topic, f"%RETRY%{worked.group}", "TBW102", "DefaultCluster"} <= set(topics)
    listed = {tuple(row) for row in rows(mqadmin(broker, "topicList", "-c"))}
    assert ("DefaultCluster", worked.topic, worked.group) in listed


def test_topic_route(mqadmin: MqAdmin, broker: AnyBroker, worked: Worked) -> None:
    route = json.loads(re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', mqadmin(broker, "topicRoute", "-t", worked.topic)))
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}
    (queues,) = route["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (QUEUES, QUEUES, 6)


def test_topic_status(mqadmin: MqAdmin, broker: AnyBroker, worked: Worked) -> None:
    status = rows(mqadmin(broker, "topicStatus", "-t", worked.topic))
    assert [int(row[1]) for row in status] == list(range(QUEUES))
    assert [int(row[3]) for row in status] == max_offsets(broker, worked.topic, QUEUES)
    assert all(row[2] == "0" and re.fullmatch(r"\d{4}-\d\d-\d\d", row[4]) for row in status)


def test_update_and_delete_topic(
    mqadmin: MqAdmin, broker: AnyBroker, names: Callable[[str], str]
) -> None:
    topic = names("made_by_mqadmin")
    made = mqadmin(broker, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "6", "-w", "6")
    assert f"create topic to {broker.address} success" in made
    assert len(rows(mqadmin(broker, "topicStatus", "-t", topic))) == 6
    mqadmin(broker, "updateTopic", "-b", broker.address, "-t", topic, "-r", "8", "-w", "8")
    assert len(rows(mqadmin(broker, "topicStatus", "-t", topic))) == 8
    deleted = mqadmin(broker, "deleteTopic", "-c", "DefaultCluster", "-t", topic)
    assert f"delete topic [{topic}] from cluster [DefaultCluster] success" in deleted
    assert f"delete topic [{topic}] from NameServer success" in deleted
    assert topic not in mqadmin(broker, "topicList").split()


def test_consumer_progress(mqadmin: MqAdmin, broker: AnyBroker, worked: Worked) -> None:
    output = mqadmin(broker, "consumerProgress", "-g", worked.group)
    of_topic = [row for row in rows(output) if row[0] == worked.topic]
    assert [int(row[2]) for row in of_topic] == list(range(QUEUES))
    assert [int(row[4]) for row in of_topic] == max_offsets(broker, worked.topic, QUEUES)
    assert all(row[3] == row[4] and row[5] == "0" for row in of_topic)
    assert "Diff Total: 0" in output
    (group,) = [row for row in rows(mqadmin(broker, "consumerProgress")) if row[0] == worked.group]
    assert group[1] == "1" and group[3:5] == ["PUSH", "CLUSTERING"]


def test_connections(mqadmin: MqAdmin, broker: AnyBroker, worked: Worked, launch: Launcher) -> None:
    output = mqadmin(broker, "consumerConnection", "-g", worked.group)
    assert f"{worked.topic}" in output and f"%RETRY%{worked.group}" in output
    assert "ConsumeType: CONSUME_PASSIVELY" in output
    assert "MessageModel: CLUSTERING" in output
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in output
    assert rows(output)[0][2] == "GO"


def test_broker_status_and_config(mqadmin: MqAdmin, broker: AnyBroker, worked: Worked) -> None:
    status = dict(row[:2] for row in rows(mqadmin(broker, "brokerStatus", "-b", broker.address)))
    wanted = {"putTps", "getTransferedTps", "bootTimestamp", "commitLogMaxOffset", "commitLogMinOffset",
              "msgPutTotalTodayNow", "brokerVersionDesc", "sendThreadPoolQueueSize", "putMessageTimesTotal",
              "earliestMessageTimeStamp", "consumeQueueDiskRatio", "remainTransientStoreBufferNumbs"}  # fmt: skip
    assert wanted <= {name.rstrip(":") for name in status}
    config = mqadmin(broker, "getBrokerConfig", "-b", broker.address)
    values = dict(re.findall(r"^(\S+)\s*=  (.*)$", config, re.MULTILINE))
    assert values["brokerClusterName"] == "DefaultCluster"
    assert values["listenPort"] == str(broker.port)
    assert values["mappedFileSizeCommitLog"] == str(64 << 20)
    assert values["flushDiskType"] == "ASYNC_FLUSH"


def test_update_broker_config(mqadmin: MqAdmin, broker: AnyBroker) -> None:
    key = "maxTransferCountOnMessageInMemory"
    done = mqadmin(broker, "updateBrokerConfig", "-b", broker.address, "-k", key, "-v", "48")
    assert "update broker config success" in done
    config = mqadmin(broker, "getBrokerConfig", "-b", broker.address)
    assert re.search(rf"^{key}\s*=  48$", config, re.MULTILINE)


def test_update_subscription_group(mqadmin: MqAdmin, broker: AnyBroker, names: Callable[[str], str]) -> None:
    group = names("group_by_mqadmin")
    done = mqadmin(broker, "updateSubGroup", "-b", broker.address, "-g", group, "-r", "3", "-q", "2")
    assert f"create subscription group to {broker.address} success" in done
    shown = mqadmin(broker, "getConsumerConfig", "-g", group)
    assert re.search(r"retryMaxTimes\s+=  3\b", shown) and re.search(r"retryQueueNums\s+=  2\b", shown)
    mqadmin(broker, "deleteSubGroup", "-b", broker.address, "-g", group)
    assert "retryMaxTimes" not in mqadmin(broker, "getConsumerConfig", "-g", group)


def test_query_by_id(mqadmin: MqAdmin, broker: AnyBroker, worked: Worked) -> None:
    sent = worked.sent[3]
    for given in (sent["offsetMsgId"], sent["msgId"]):
        detail = mqadmin(broker, "queryMsgById" if given == sent["offsetMsgId"] else "queryMsgByUniqueKey",
                         "-i", str(given), *(() if given == sent["offsetMsgId"] else ("-t", worked.topic)))  # fmt: skip
        assert re.search(rf"Topic:\s+{worked.topic}\b", detail)
        assert re.search(rf"Keys:\s+\[{sent['key']}\]", detail)
        assert re.search(rf"Queue ID:\s+{sent['queueId']}\b", detail)
        assert re.search(rf"Queue Offset:\s+{sent['queueOffset']}\b", detail)
        assert re.search(r"Tags:\s+\[TagA\]", detail)
        assert f"consumerGroup={worked.group}, trackType=CONSUMED," in detail


def test_query_by_key(mqadmin: MqAdmin, broker: AnyBroker, worked: Worked) -> None:
    sent = worked.sent[5]
    found = rows(mqadmin(broker, "queryMsgByKey", "-t", worked.topic, "-k", str(sent["key"])))
    assert found == [[sent["msgId"], str(sent["queueId"]), str(sent["queueOffset"])]]
