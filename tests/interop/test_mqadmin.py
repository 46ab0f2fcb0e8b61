"""The official mqadmin 4.9.7: what operators type every day works, and says what is true."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs
import pytest

from tests.interop.brokers import AnyBroker, NameMaker, TopicMaker, asking, decode, max_offsets, wait_committed
from tests.interop.mqadmin import MqAdmin, rows
from tests.interop.programs import Event, Launcher

QUEUES = 4
COUNT = 16
GET_BROKER_CLUSTER_INFO = 106
BROKER_STATUS = {
    "bootTimestamp",
    "brokerVersionDesc",
    "commitLogMaxOffset",
    "commitLogMinOffset",
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "earliestMessageTimeStamp",
    "getTransferedTps",
    "msgPutTotalTodayNow",
    "putTps",
    "putMessageTimesTotal",
    "remainTransientStoreBufferNumbs",
    "runtime",
    "sendThreadPoolQueueSize",
}


@attrs.frozen
class Worked:
    """A topic with messages, and a group that has consumed them and is still there."""

    topic: str
    group: str
    sent: list[Event]


@pytest.fixture(scope="module")
def worked(module_launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, names: NameMaker) -> Worked:
    topic, group = make_topic("admin", QUEUES), names("admin_group")
    consumer = module_launch.start("go", "push", topic=topic, group=group)
    consumer.wait_until(lambda: consumer.queues == list(range(QUEUES)), "all queues")
    sent = module_launch.run("java-4.9.8", "send", topic=topic, group=f"{topic}_producer", prefix=topic, count=COUNT)
    consumer.wait_messages(COUNT)
    wait_committed(broker, group, topic, QUEUES)
    return Worked(topic, group, sent.of_kind("sent"))


@pytest.fixture(scope="module")
def said(mqadmin: MqAdmin, broker: AnyBroker, worked: Worked, module_launch: Launcher) -> Mapping[str, str]:
    """What the commands that change nothing print, all of the same moment."""
    other = module_launch.start("python", "push", topic=worked.topic, group=f"{worked.group}_other")
    other.wait_ready()
    sent = worked.sent[3]
    commands = {
        "clusterList": ("clusterList",),
        "clusterList -m": ("clusterList", "-m"),
        "topicList": ("topicList",),
        "topicList -c": ("topicList", "-c"),
        "topicRoute": ("topicRoute", "-t", worked.topic),
        "topicStatus": ("topicStatus", "-t", worked.topic),
        "topicClusterList": ("topicClusterList", "-t", worked.topic),
        "consumerProgress -g": ("consumerProgress", "-g", worked.group),
        "consumerProgress": ("consumerProgress",),
        "consumerConnection": ("consumerConnection", "-g", worked.group),
        # Every client with a push consumer also is a producer of this group; it sends back what failed.
        "producerConnection": ("producerConnection", "-g", "CLIENT_INNER_PRODUCER", "-t", worked.topic),
        "brokerStatus": ("brokerStatus", "-b", broker.address),
        "getBrokerConfig": ("getBrokerConfig", "-b", broker.address),
        "queryMsgById": ("queryMsgById", "-i", str(sent["offsetMsgId"])),
        "queryMsgByUniqueKey": ("queryMsgByUniqueKey", "-t", worked.topic, "-i", str(sent["msgId"])),
        "queryMsgByKey": ("queryMsgByKey", "-t", worked.topic, "-k", str(sent["key"])),
        "queryMsgByOffset": (
            "queryMsgByOffset",
            "-t",
            worked.topic,
            "-b",
            broker_name(broker),
            "-i",
            str(sent["queueId"]),
            "-o",
            str(sent["queueOffset"]),
        ),
    }
    printed = mqadmin.each(broker, list(commands.values()))
    other.leave()
    return dict(zip(commands, printed, strict=True))


def broker_name(broker: AnyBroker) -> str:
    """As the broker registered it with the name server."""
    with asking(broker.namesrv_port) as namesrv:
        cluster = decode(namesrv.check(GET_BROKER_CLUSTER_INFO, {}).body.decode())
    (name,) = cluster["brokerAddrTable"]
    return str(name)


def config_values(output: str) -> dict[str, str]:
    return dict(re.findall(r"^(\S+)\s*=  (.*)$", output, re.MULTILINE))


def test_cluster_list(said: Mapping[str, str], broker: AnyBroker) -> None:
    """Holds: admin, mqadmin."""
    (row,) = rows(said["clusterList"])
    assert row[0] == "DefaultCluster"
    assert row[2:4] == ["0", broker.address]
    assert re.fullmatch(r"V4_9_\d+", row[4])
    assert all(re.fullmatch(r"\d+\.\d\d\(\d+,\d+ms\)", load) for load in row[5:7])
    assert len(row) == 10
    (totals,) = rows(said["clusterList -m"])
    assert totals[0] == "DefaultCluster" and len(totals) == 6
    assert int(totals[4]) >= COUNT, "messages put today"


def test_topic_list(said: Mapping[str, str], worked: Worked) -> None:
    topics = said["topicList"].split()
    assert {worked.topic, f"%RETRY%{worked.group}", "TBW102", "DefaultCluster"} <= set(topics)
    assert ["DefaultCluster", worked.topic, worked.group] in rows(said["topicList -c"])


def test_topic_route(said: Mapping[str, str], broker: AnyBroker, worked: Worked) -> None:
    route = decode(said["topicRoute"])
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}
    (queues,) = route["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (QUEUES, QUEUES, 6)
    assert said["topicClusterList"].split() == ["DefaultCluster"]


def test_topic_status(said: Mapping[str, str], broker: AnyBroker, worked: Worked) -> None:
    status = rows(said["topicStatus"])
    assert [int(row[1]) for row in status] == list(range(QUEUES))
    assert [int(row[3]) for row in status] == max_offsets(broker, worked.topic, QUEUES)
    assert all(row[2] == "0" and re.fullmatch(r"\d{4}-\d\d-\d\d", row[4]) for row in status)


def test_update_and_delete_topic(mqadmin: MqAdmin, broker: AnyBroker, names: NameMaker) -> None:
    """Holds: broker, creation of topics."""
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


def test_consumer_progress(said: Mapping[str, str], broker: AnyBroker, worked: Worked) -> None:
    output = said["consumerProgress -g"]
    of_topic = [row for row in rows(output) if row[0] == worked.topic]
    assert [int(row[2]) for row in of_topic] == list(range(QUEUES))
    assert [int(row[4]) for row in of_topic] == max_offsets(broker, worked.topic, QUEUES)
    assert all(row[3] == row[4] and row[5] == "0" for row in of_topic)
    assert "Diff Total: 0" in output
    (group,) = (row for row in rows(said["consumerProgress"]) if row[0] == worked.group)
    assert group[1] == "1" and group[3:5] == ["PUSH", "CLUSTERING"]


def test_consumer_connection(said: Mapping[str, str], worked: Worked) -> None:
    output = said["consumerConnection"]
    first = rows(output)[0]
    assert re.fullmatch(r"127\.0\.0\.1:\d+", first[1])
    assert first[2] == "GO"
    assert [worked.topic, "*"] in rows(output)
    assert [f"%RETRY%{worked.group}", "*"] in rows(output)
    assert "ConsumeType: CONSUME_PASSIVELY" in output
    assert "MessageModel: CLUSTERING" in output
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in output


def test_producer_connection(said: Mapping[str, str]) -> None:
    connected = rows(said["producerConnection"])
    assert connected
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", row[2]) for row in connected)


def test_broker_status(said: Mapping[str, str]) -> None:
    status = {row[0].rstrip(":") for row in rows(said["brokerStatus"])}
    assert status >= BROKER_STATUS


def test_broker_config(said: Mapping[str, str], mqadmin: MqAdmin, broker: AnyBroker) -> None:
    before = config_values(said["getBrokerConfig"])
    assert before["brokerClusterName"] == "DefaultCluster"
    assert before["listenPort"] == str(broker.port)
    assert before["mappedFileSizeCommitLog"] == str(64 << 20)
    assert before["flushDiskType"] == "ASYNC_FLUSH"
    changed = "true" if before["filterSupportRetry"] == "false" else "false"
    done = mqadmin(broker, "updateBrokerConfig", "-b", broker.address, "-k", "filterSupportRetry", "-v", changed)
    assert "update broker config success" in done
    after = config_values(mqadmin(broker, "getBrokerConfig", "-b", broker.address))
    assert after == before | {"filterSupportRetry": changed}


def test_subscription_group(mqadmin: MqAdmin, broker: AnyBroker, names: NameMaker) -> None:
    group = names("group_by_mqadmin")
    done = mqadmin(broker, "updateSubGroup", "-b", broker.address, "-g", group, "-r", "3", "-q", "2")
    assert f"create subscription group to {broker.address} success" in done
    shown = config_values(mqadmin(broker, "getConsumerConfig", "-g", group))
    assert (shown["retryMaxTimes"], shown["retryQueueNums"]) == ("3", "2")
    mqadmin(broker, "deleteSubGroup", "-b", broker.address, "-g", group)
    assert not config_values(mqadmin(broker, "getConsumerConfig", "-g", group))


@pytest.mark.parametrize("command", ["queryMsgById", "queryMsgByUniqueKey", "queryMsgByOffset"])
def test_message_detail(said: Mapping[str, str], worked: Worked, command: str) -> None:
    sent, detail = worked.sent[3], said[command]
    assert re.search(rf"Topic:\s+{worked.topic}\b", detail)
    assert re.search(rf"Keys:\s+\[{sent['key']}\]", detail)
    assert re.search(rf"Queue ID:\s+{sent['queueId']}\b", detail)
    assert re.search(rf"Queue Offset:\s+{sent['queueOffset']}\b", detail)
    assert re.search(r"Tags:\s+\[TagA\]", detail)
    if command != "queryMsgByOffset":
        assert f"consumerGroup={worked.group}, trackType=CONSUMED," in detail


def test_query_by_key(said: Mapping[str, str], worked: Worked) -> None:
    """Holds: query, messages by key and time."""
    sent = worked.sent[3]
    assert rows(said["queryMsgByKey"]) == [[sent["msgId"], str(sent["queueId"]), str(sent["queueOffset"])]]
