"""Commands about topics against a scripted cluster: what is asked of whom, what is printed."""

import json

import pytest

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.broker import (
    BrokerStatsData,
    BrokerStatsItem,
)
from rocketpy.remoting.bodies.group import GroupList
from rocketpy.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from rocketpy.remoting.bodies.topic import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.admin import CreateTopicRequestHeader
from rocketpy.remoting.headers.namesrv import (
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
)
from tests.support.admin import QUEUE, Mqadmin, Script, one_broker, void
from tests.support.cluster import FakeBroker, FakeCluster, no


def topic_configs(cluster: FakeCluster) -> FakeBroker:
    """A broker whose settings can be read and written."""
    broker = cluster.add_broker(T=2)
    table = {"T": TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=3, perm=4, topic_sys_flag=1)}
    broker.answer(RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper(topic_config_table=table))
    broker.answer(RequestCode.UPDATE_AND_CREATE_TOPIC)
    return broker


def test_update_topic_keeps_what_is_not_given(mqadmin: Mqadmin) -> None:
    arguments = ("-c", "DefaultCluster", "-t", "T", "-r", "8")
    lines = mqadmin("updateTopic", *arguments, script=lambda cluster: void(topic_configs(cluster)))
    assert lines == [
        "create topic to 10.0.0.1:10911 success.",
        "TopicConfig [topicName=T, readQueueNums=8, writeQueueNums=3, perm=R--, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=1, order=false]",
    ]
    (request,) = mqadmin.cluster.brokers["broker-a"].got(RequestCode.UPDATE_AND_CREATE_TOPIC)
    header = CreateTopicRequestHeader.of(request)
    assert (header.read_queue_nums, header.write_queue_nums, header.perm, header.default_topic) == (8, 3, 4, "TBW102")


def test_update_topic_as_java_resets(mqadmin: Mqadmin) -> None:
    mqadmin("updateTopic", "-b", "10.0.0.1:10911", "-t", "T", "--replace", script=lambda c: void(topic_configs(c)))
    (request,) = mqadmin.cluster.brokers["broker-a"].got(RequestCode.UPDATE_AND_CREATE_TOPIC)
    header = CreateTopicRequestHeader.of(request)
    assert (header.read_queue_nums, header.write_queue_nums, header.perm, header.topic_sys_flag) == (8, 8, 6, 0)


def test_update_topic_with_order_merges_the_configuration(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        topic_configs(cluster)
        cluster.name_server.answers[RequestCode.GET_KV_CONFIG] = lambda request, channel: RemotingCommand.response(
            header=GetKVConfigResponseHeader(value="broker-b:4")
        )
        cluster.name_server.answer(RequestCode.PUT_KV_CONFIG)

    lines = mqadmin("updateTopic", "-b", "10.0.0.1:10911", "-t", "T", "-o", "true", script=script)
    told = "set broker orderConf. isOrder=true, orderConf=[broker-a:3;broker-b:4]"
    assert lines[0] == f"{told}create topic to 10.0.0.1:10911 success.", "without a line end between, as in Java"
    (request,) = mqadmin.cluster.name_server.got(RequestCode.PUT_KV_CONFIG)
    assert PutKVConfigRequestHeader.of(request).value == "broker-a:3;broker-b:4"


def test_update_topic_needs_exactly_one_place(mqadmin: Mqadmin) -> None:
    both = ("updateTopic", "-t", "T", "-b", "x:1", "-c", "y")
    mqadmin(*both, script=one_broker, status=2)
    mqadmin("updateTopic", "-t", "T", script=one_broker, status=2)
    assert "-c" in mqadmin.error


def test_update_topic_perm(mqadmin: Mqadmin) -> None:
    script: Script = lambda c: void(topic_configs(c))  # noqa: E731 - used four times here
    lines = mqadmin("updateTopicPerm", "-b", "10.0.0.1:10911", "-t", "T", "-p", "6", script=script)
    assert lines[0] == "update topic perm from 4 to 6 in 10.0.0.1:10911 success."
    assert lines[1].startswith("TopicConfig [topicName=T, readQueueNums=2, writeQueueNums=3, perm=RW-,")
    mqadmin("updateTopicPerm", "-b", "10.0.0.1:10911", "-t", "T", "-p", "4", script=script)
    assert not mqadmin.cluster.brokers["broker-a"].got(RequestCode.UPDATE_AND_CREATE_TOPIC)
    lines = mqadmin("updateTopicPerm", "-c", "DefaultCluster", "-t", "T", "-p", "4", script=script)
    assert lines == ["update topic perm from 4 to 4 in 10.0.0.1:10911 success."], "set again, as in Java"
    mqadmin("updateTopicPerm", "-b", "10.0.0.1:10911", "-t", "U", "-p", "4", script=script, status=4)


def test_delete_topic(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        cluster.add_broker(T=2).answer(RequestCode.DELETE_TOPIC_IN_BROKER)
        cluster.add_broker("broker-b").answer(RequestCode.DELETE_TOPIC_IN_BROKER)
        cluster.name_server.answer(RequestCode.DELETE_TOPIC_IN_NAMESRV)

    assert mqadmin("deleteTopic", "-t", "T", "-c", "DefaultCluster", script=script) == [
        "delete topic [T] from cluster [DefaultCluster] success.",
        "delete topic [T] from NameServer success.",
    ]
    assert len(mqadmin.cluster.name_server.got(RequestCode.DELETE_TOPIC_IN_NAMESRV)) == 1

    def half(cluster: FakeCluster) -> None:
        script(cluster)
        cluster.brokers["broker-b"].refuse(RequestCode.DELETE_TOPIC_IN_BROKER, ResponseCode.SYSTEM_ERROR)

    mqadmin("deleteTopic", "-t", "T", "-c", "DefaultCluster", script=half, status=3)
    assert "1 of 2 servers failed" in mqadmin.error
    mqadmin("deleteTopic", "-t", "T", "-c", "nope", script=script, status=4)
    assert "clusters are: DefaultCluster" in mqadmin.error


def test_topic_route(mqadmin: Mqadmin) -> None:
    lines = mqadmin("topicRoute", "-t", "T", "-l", script=one_broker)
    assert lines[0].split() == ["#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"]
    assert lines[1] == f"{'DefaultCluster':<45} {'broker-a':<32} {'{0=10.0.0.1:10911}':<50} 2          2           6"
    assert lines[2] == "-" * 158
    shown = mqadmin("topicRoute", "-t", "T", script=one_broker)
    assert shown[:4] == ["{", '\t"brokerDatas":[', "\t\t{", '\t\t\t"brokerAddrs":{0:"10.0.0.1:10911"'], (
        "as fastjson does"
    )
    assert '\t\t\t"perm":6,' in shown
    mqadmin("topicRoute", "-t", "unknown", script=one_broker, status=4)


def test_topic_status(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        table = {
            MessageQueue("T", "broker-a", 1): TopicOffset(),
            QUEUE: TopicOffset(min_offset=3, max_offset=1520, last_update_timestamp_ms=1709288551127),
        }
        cluster.add_broker(T=2).answer(RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable(offset_table=table))

    heading, first, second = mqadmin("topicStatus", "-t", "T", script=script)
    assert heading == (
        "#Broker Name                      #QID  #Min Offset           #Max Offset             #Last Updated"
    )
    assert first.split()[:4] == ["broker-a", "0", "3", "1520"] and first.endswith(",127")
    assert second.split() == ["broker-a", "1", "0", "0"]
    rows = [json.loads(line) for line in mqadmin("topicStatus", "-t", "T", "--output", "json", script=script)]
    assert rows[0]["max_offset"] == 1520 and rows[1]["last_updated"] == ""


def test_topic_list(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        cluster.name_server.answer(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(topic_list=["T", "%RETRY%g", "A", "gone"])
        )
        cluster.add_broker(T=2, A=1).answer(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(group_list=["g1", "g2"]))

    assert mqadmin("topicList", script=script) == ["%RETRY%g", "A", "T", "gone"]
    lines = mqadmin("topicList", "-c", script=script, status=3)
    assert [line.split() for line in lines[1:]] == [
        ["DefaultCluster", "A", "g1"],
        ["DefaultCluster", "A", "g2"],
        ["DefaultCluster", "T", "g1"],
        ["DefaultCluster", "T", "g2"],
        ["gone"],
    ]


def test_order_configuration(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        cluster.name_server.answer(RequestCode.PUT_KV_CONFIG)
        cluster.name_server.answer(RequestCode.DELETE_KV_CONFIG)
        cluster.name_server.answers[RequestCode.GET_KV_CONFIG] = lambda request, channel: no(
            ResponseCode.QUERY_NOT_FOUND
        )

    put = mqadmin("updateOrderConf", "-t", "T", "-m", "put", "-v", "broker-a:8", script=script)
    assert put == ["update orderConf success. topic=[T], orderConf=[broker-a:8]"]
    assert mqadmin("updateOrderConf", "-t", "T", "-m", "delete", script=script) == [
        "delete orderConf success. topic=[T]"
    ]
    mqadmin("updateOrderConf", "-t", "T", "-m", "get", script=script, status=4)
    mqadmin("updateOrderConf", "-t", "T", "-m", "put", script=script, status=2)


def test_allocate_mq(mqadmin: Mqadmin) -> None:
    (line,) = mqadmin("allocateMQ", "-t", "T", "-i", "10.0.0.1,10.0.0.2", script=one_broker)
    shares = json.loads(line)["result"]
    assert [queue["queueId"] for queue in shares["10.0.0.2"]] == [1]


def test_stats_all(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1, Idle=1, **{"%RETRY%g": 1})
        stats = BrokerStatsData(stats_minute=BrokerStatsItem(tps=1.5), stats_day=BrokerStatsItem(sum=90))
        broker.answers[RequestCode.VIEW_BROKER_STATS_DATA] = lambda request, channel: (
            RemotingCommand.response(body=stats.encode())
            if (request.ext_field("statsKey") or "").startswith("T")
            else no(ResponseCode.SYSTEM_ERROR)
        )
        groups = {"T": ["g"], "Idle": []}
        broker.answers[RequestCode.QUERY_TOPIC_CONSUME_BY_WHO] = lambda request, channel: RemotingCommand.response(
            body=GroupList(group_list=groups[request.ext_field("topic") or ""]).encode()
        )
        table = {QUEUE: OffsetWrapper(broker_offset=10, consumer_offset=4)}
        broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats(offset_table=table))
        cluster.name_server.answer(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(topic_list=["T", "Idle", "%RETRY%g"])
        )

    lines = mqadmin("statsAll", script=script)
    assert [line.split() for line in lines[1:]] == [
        ["Idle", "0", "0.00", "0", "NO_CONSUMER"],
        ["T", "g", "6", "1.50", "1.50", "90", "90"],
    ]
    assert len(mqadmin("statsAll", "-a", script=script)) == 2


@pytest.mark.parametrize(
    ("minute", "hour", "day", "shown"), [(6, 0, 0, "6"), (6, 60, 0, "60"), (6, 60, 600, "600"), (0, 0, 0, None)]
)
def test_stats_all_of_a_young_broker(mqadmin: Mqadmin, minute: int, hour: int, day: int, shown: str | None) -> None:
    """It has sampled no day yet, perhaps no hour: the longest window that has a figure counts.
    Fault: `mqadmin statsAll` showed 0 messages in 24 hours during a broker's first hour."""
    figures = BrokerStatsData(
        stats_minute=BrokerStatsItem(sum=minute),
        stats_hour=BrokerStatsItem(sum=hour),
        stats_day=BrokerStatsItem(sum=day),
    )

    def script(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.answer(RequestCode.VIEW_BROKER_STATS_DATA, figures)
        broker.answer(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(group_list=[]))
        cluster.name_server.answer(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(topic_list=["T"]))

    lines = mqadmin("statsAll", "-a", script=script)
    assert [line.split()[3] for line in lines[1:]] == ([shown] if shown else [])
