"""Commands about groups and connections against a scripted cluster: what is asked of whom, what is printed."""

from pathlib import Path

import pytest

from rocketpy.codes import LanguageCode, RequestCode, ResponseCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.client import (
    Connection,
    ConsumerConnection,
    DifferingSubscription,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.offset import ConsumeStats, ConsumeStatsList, OffsetWrapper
from rocketpy.remoting.bodies.topic import (
    TopicList,
)
from tests.support.admin import QUEUE, Mqadmin, with_group
from tests.support.cluster import FakeCluster


def group_script(cluster: FakeCluster) -> None:
    with_group(cluster)


def test_consumer_progress(mqadmin: Mqadmin) -> None:
    lines = mqadmin("consumerProgress", "-g", "g", script=group_script)
    assert [line.split()[:6] for line in lines[1:3]] == [
        ["%RETRY%g", "broker-a", "0", "2", "2", "0"],
        ["T", "broker-a", "0", "1520", "1490", "30"],
    ]
    assert lines[1].endswith("N/A")
    assert lines[-2:] == ["Consume TPS: 41.20", "Diff Total: 30"]
    lines = mqadmin("consumerProgress", "-g", "g", "-s", "true", script=group_script)
    assert lines[2].split()[5:7] == ["10.0.0.21", "30"] and lines[1].split()[5] == "N/A"
    mqadmin("consumerProgress", "-g", "unknown", script=group_script, status=4)


def test_consumer_progress_of_a_group_without_offsets(mqadmin: Mqadmin) -> None:
    """One that broadcasts; the list of all groups shows its members."""

    def script(cluster: FakeCluster) -> None:
        with_group(cluster).answer(RequestCode.GET_CONSUME_STATS, ConsumeStats())
        cluster.name_server.answer(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(topic_list=["T", "%RETRY%g"])
        )

    assert mqadmin("consumerProgress", "-g", "g", script=script, status=4) == []
    assert "CODE: 206" in mqadmin.error and "return offset table is empty" in mqadmin.error
    assert mqadmin("consumerProgress", script=script)[1].split()[:2] == ["g", "1"]


def test_consumer_progress_of_all(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        with_group(cluster)
        cluster.name_server.answer(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(topic_list=["T", "%RETRY%g", "%RETRY%off"])
        )

    lines = mqadmin("consumerProgress", script=script)
    assert lines[1].split() == ["g", "1", "V4_9_8", "PUSH", "CLUSTERING", "41", "30"]
    assert lines[2].split() == ["off", "0", "OFFLINE", "0", "0"]


def test_members_that_subscribe_differently_are_named_beside_the_known_text(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = with_group(cluster)
        differing = [DifferingSubscription(client_id="c1", members=2, text="CLUSTERING, T 'a'")]
        members = [Connection(client_id="c1", client_addr="a:1", language=LanguageCode.JAVA, version=407)]
        connection = ConsumerConnection(connection_set=members, differing_subscriptions=differing)
        broker.answer(RequestCode.GET_CONSUMER_CONNECTION_LIST, connection)

    lines = mqadmin("consumerConnection", "-g", "g", script=script)
    assert not [line for line in lines if "WARN" in line], "scripts read the known text"
    assert "WARN: 2 members subscribe like c1: CLUSTERING, T 'a'" in mqadmin.error


def test_connections(mqadmin: Mqadmin) -> None:
    lines = mqadmin("consumerConnection", "-g", "g", script=group_script)
    assert lines[1] == f"{'10.0.0.21@4711#8':<36} {'10.0.0.21:51234':<22} {'PYTHON':<10} V4_9_8"
    assert lines[3:6] == ["Below is subscription:", "#Topic               #SubExpression", f"{'T':<20} A || B"]
    assert lines[-3:] == [
        "ConsumeType: CONSUME_PASSIVELY",
        "MessageModel: CLUSTERING",
        "ConsumeFromWhere: CONSUME_FROM_LAST_OFFSET",
    ]

    def offline(cluster: FakeCluster) -> None:
        with_group(cluster).refuse(RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE)

    mqadmin("consumerConnection", "-g", "g", script=offline, status=4)

    def producers(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        member = Connection(client_addr="a:1", client_id="c", language=LanguageCode.JAVA, version=407)
        broker.answer(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerConnection(connection_set=[member]))
        info = ProducerInfo(client_id="c", remote_ip="/a:1", language=LanguageCode.GO, version=317)
        broker.answer(RequestCode.GET_ALL_PRODUCER_INFO, ProducerTableInfo(data={"pg": [info]}))

    (line,) = mqadmin("producerConnection", "-g", "pg", "-t", "T", script=producers)
    assert line == f"0001  {'c':<32} {'a:1':<22} {'JAVA':<8} V4_9_7"
    (line,) = mqadmin("producer", "-b", "10.0.0.1:10911", script=producers)
    assert line.startswith("producer group (pg) instance : clientId=c,remoteIP=/a:1")


def test_consumer_status(mqadmin: Mqadmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = mqadmin("consumerStatus", "-g", "g", script=group_script)
    assert lines[1].split()[:3] == ["1", "10.0.0.21@4711#8", "V4_9_8"]
    (file,) = tmp_path.rglob("10.0.0.21@*")
    assert "#Consumer MQ Detail#" in file.read_text()
    assert "Same subscription in the same group of consumer" in lines
    assert "maybe blocked" in lines[-1]
    lines = mqadmin("consumerStatus", "-g", "g", "-i", "10.0.0.21@4711#8", script=group_script)
    assert lines[0] == "#Consumer Properties#"


def test_update_sub_group_keeps_what_is_not_given(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = cluster.add_broker()
        table = {"g": SubscriptionGroupConfig(group_name="g", retry_max_times=3, consume_enable=False)}
        broker.answer(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper(subscription_group_table=table)
        )
        broker.answer(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)

    def sent() -> SubscriptionGroupConfig:
        (request,) = mqadmin.cluster.brokers["broker-a"].got(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        return SubscriptionGroupConfig.decode(request.body)

    lines = mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", "g", "-q", "4", "-a", "false", script=script)
    assert lines[0] == "create subscription group to 10.0.0.1:10911 success."
    assert (sent().retry_queue_nums, sent().retry_max_times, sent().consume_enable) == (4, 3, False)
    assert not sent().notify_consumer_ids_changed_enable
    mqadmin("updateSubGroup", "-b", "10.0.0.1:10911", "-g", "g", "--replace", script=script)
    assert (sent().retry_max_times, sent().consume_broadcast_enable, sent().consume_enable) == (16, False, True)
    lines = mqadmin("getConsumerConfig", "-g", "g", script=script)
    assert f"{'retryMaxTimes':<40}=  3" in lines and f"{'consumeEnable':<40}=  false" in lines
    mqadmin("getConsumerConfig", "-g", "other", script=script, status=4)


def test_update_sub_group_creates_a_group_with_the_defaults_of_java(mqadmin: Mqadmin) -> None:
    """Fault: `mqadmin updateSubGroup` let a new group broadcast and start at the oldest message, unlike Java's."""

    def script(cluster: FakeCluster) -> None:
        broker = cluster.add_broker()
        broker.answer(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper())
        broker.answer(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)

    def sent() -> SubscriptionGroupConfig:
        (request,) = mqadmin.cluster.brokers["broker-a"].got(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        return SubscriptionGroupConfig.decode(request.body)

    mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", "g", script=script)
    assert (sent().consume_enable, sent().consume_from_min_enable, sent().consume_broadcast_enable) == (
        True,
        False,
        False,
    )
    mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", "g", "-d", "true", script=script)
    assert (sent().consume_from_min_enable, sent().consume_broadcast_enable) == (False, True)


def test_delete_sub_group(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = cluster.add_broker()
        broker.answer(RequestCode.DELETE_SUBSCRIPTIONGROUP)
        broker.answer(RequestCode.DELETE_TOPIC_IN_BROKER)
        cluster.name_server.answer(RequestCode.DELETE_TOPIC_IN_NAMESRV)

    lines = mqadmin("deleteSubGroup", "-c", "DefaultCluster", "-g", "g", "-r", "true", script=script)
    assert len(lines) == 5
    broker = mqadmin.cluster.brokers["broker-a"]
    assert broker.got(RequestCode.DELETE_SUBSCRIPTIONGROUP)[0].ext_field("removeOffset") == "true"
    deleted = [request.ext_field("topic") for request in broker.got(RequestCode.DELETE_TOPIC_IN_BROKER)]
    assert deleted == ["%RETRY%g", "%DLQ%g"]
    assert len(mqadmin("deleteSubGroup", "-b", "10.0.0.1:10911", "-g", "g", script=script)) == 1


def test_broker_consume_stats(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        table = {
            QUEUE: OffsetWrapper(broker_offset=9, consumer_offset=2),
            MessageQueue("T", "broker-a", 1): OffsetWrapper(broker_offset=9, consumer_offset=9),
        }
        found = ConsumeStatsList(consume_stats_list=[{"g": [ConsumeStats(offset_table=table)]}], total_diff=7)
        cluster.add_broker().answer(RequestCode.GET_BROKER_CONSUME_STATS, found)

    lines = mqadmin("brokerConsumeStats", "-b", "10.0.0.1:10911", "-l", "1", script=script)
    assert lines[1].split() == ["T", "g", "broker-a", "0", "9", "2", "7", "N/A"]
    assert lines[-1] == "Diff Total: 7" and len(lines) == 4
