"""Every command against a scripted cluster: what is asked of whom, what is printed, the exit status."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketpy.admin.cli import main
from rocketpy.admin.commands import REGISTRY
from rocketpy.admin.output import second_text
from rocketpy.codes import LanguageCode, RequestCode, ResponseCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.connection import (
    Connection,
    ConsumerConnection,
    DifferingSubscription,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketpy.remoting.bodies.consume_stats import ConsumeStats, ConsumeStatsList, OffsetWrapper
from rocketpy.remoting.bodies.group import GroupList, SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.heartbeat import ConsumeType, SubscriptionData
from rocketpy.remoting.bodies.kv import KVTable
from rocketpy.remoting.bodies.offset import ResetOffsetBody
from rocketpy.remoting.bodies.running_info import ConsumeMessageDirectlyResult
from rocketpy.remoting.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
)
from rocketpy.remoting.bodies.topic import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import ResetOffsetRequestHeader
from rocketpy.remoting.headers.namesrv import (
    AddWritePermOfBrokerResponseHeader,
    GetKVConfigResponseHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocketpy.remoting.headers.offset import OffsetResponseHeader, SearchOffsetRequestHeader
from rocketpy.remoting.headers.topic import CreateTopicRequestHeader
from tests.support.admin import QUEUE, Mqadmin, Script, with_group, with_messages
from tests.support.cluster import NAME_SERVER, FakeBroker, FakeCluster, no

WITH_A_FILE = {"switchMaster", "haElect"}  # they reach etcd by the file of a broker


def one_broker(cluster: FakeCluster) -> None:
    cluster.add_broker(T=2)


def topic_configs(cluster: FakeCluster) -> FakeBroker:
    """A broker whose settings can be read and written."""
    broker = cluster.add_broker(T=2)
    table = {"T": TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=3, perm=4, topic_sys_flag=1)}
    broker.answer(RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper(topic_config_table=table))
    broker.answer(RequestCode.UPDATE_AND_CREATE_TOPIC)
    return broker


# --- the command line itself ------------------------------------------------------------------------------------------


def test_the_list_of_commands_imports_none_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in REGISTRY)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    printed = capsys.readouterr().out
    example = f"mqadmin {name} {'-f' if name in WITH_A_FILE else '-n'}"
    assert example in printed
    assert "--namesrvAddr" in printed
    assert main(["help", name.upper()]) == 0
    assert example in capsys.readouterr().out


def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bogus"]) == 2
    assert "bogus" in capsys.readouterr().err
    assert main(["topicRoute"]) == 2
    assert "'-t'" in capsys.readouterr().err


def test_errors_are_one_line(mqadmin: Mqadmin) -> None:
    def unreachable(cluster: FakeCluster) -> None:
        cluster.name_server.unreachable = True

    assert mqadmin("topicList", script=unreachable, status=1) == []
    assert mqadmin.error.count("\n") == 1 and NAME_SERVER in mqadmin.error


def test_spellings(mqadmin: Mqadmin) -> None:
    for spelling in (["-t", "T"], ["-tT"], ["--topic", "T"], ["--topic=T"]):
        assert mqadmin("TOPICCLUSTERLIST", *spelling, script=one_broker) == ["DefaultCluster"]


# --- topics -----------------------------------------------------------------------------------------------------------


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


def void(_: object) -> None:
    """For scripts that are lambdas."""


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
    script: Script = lambda c: void(topic_configs(c))  # noqa: E731 - used three times here
    lines = mqadmin("updateTopicPerm", "-b", "10.0.0.1:10911", "-t", "T", "-p", "6", script=script)
    assert lines[0] == "update topic perm from 4 to 6 in 10.0.0.1:10911 success."
    assert lines[1].startswith("TopicConfig [topicName=T, readQueueNums=2, writeQueueNums=3, perm=RW-,")
    mqadmin("updateTopicPerm", "-b", "10.0.0.1:10911", "-t", "T", "-p", "4", script=script)
    assert not mqadmin.cluster.brokers["broker-a"].got(RequestCode.UPDATE_AND_CREATE_TOPIC)
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
    mqadmin("deleteTopic", "-t", "T", "-c", "nope", script=script, status=1)
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
    """It has sampled no day yet, perhaps no hour: the longest window that has a figure counts."""
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


# --- messages ---------------------------------------------------------------------------------------------------------


def test_query_by_id_shows_the_message_and_its_tracks(mqadmin: Mqadmin, tmp_path: Path) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = with_messages(cluster)
        broker.topics["%RETRY%g"] = 1
        broker.answer(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(group_list=["g", "off"]))
        broker.answer(
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            ConsumerConnection(
                connection_set=[Connection(client_id="c")],
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                subscription_table={"T": SubscriptionData(topic="T", tags_set=["B"])},
            ),
        )
        table = {MessageQueue("T", "broker-a", 0): OffsetWrapper(broker_offset=1, consumer_offset=1)}
        broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats(offset_table=table))

    body = tmp_path / "body"
    message_id = "0A00000100002A9F0000000000000000"
    lines = mqadmin("queryMsgById", "-i", message_id, "--body-file", str(body), "--print-body", script=script)
    assert f"{'OffsetID:':<20} {message_id}" in lines
    assert f"{'Tags:':<20} [A]" in lines and f"{'Message Body:':<20} first" in lines
    assert f"{'Message Body Path:':<20} {body}" in lines and body.read_bytes() == b"first"
    track = "MessageTrack [consumerGroup=g, trackType=CONSUMED_BUT_FILTERED, exceptionDesc=null]"
    assert lines[-1].startswith(f"{track}MessageTrack [consumerGroup=off, "), "all tracks in one line, as in Java"
    assert "trackType=UNKNOWN" in lines[-1]
    mqadmin("queryMsgById", "-i", "nonsense", script=script, status=1)


def test_direct_consumption_and_resend(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = with_messages(cluster)
        broker.answer(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResult(spent_time_ms=7))

    message_id = "0A00000100002A9F0000000000000000"
    lines = mqadmin("queryMsgById", "-i", message_id, "-g", "g", "-d", "client", script=script)
    shown = "order=false, autoCommit=true, consumeResult=null, remark=null, spentTimeMills=7"
    assert lines == [f"ConsumeMessageDirectlyResult [{shown}]"]
    (request,) = mqadmin.cluster.brokers["broker-a"].got(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    assert request.ext_field("msgId") == message_id
    (line,) = mqadmin("queryMsgById", "-i", message_id, "-s", "true", script=script)
    assert "SEND_OK" in line and "msgId=AA" in line
    images = [image for queue in mqadmin.cluster.brokers["broker-a"].records.values() for image in queue]
    assert len(images) == 3 and sum(b"UNIQ_KEY\x01AA" in image for image in images) == 2


def test_query_by_key_compares_the_text(mqadmin: Mqadmin) -> None:
    script: Script = lambda c: void(with_messages(c))  # noqa: E731 - used twice here
    lines = mqadmin("queryMsgByKey", "-t", "T", "-k", "k1", script=script)
    assert lines[1:] == [f"{'AA':<50} {0:>4} {0:>40}"]
    mqadmin("queryMsgByKey", "-t", "T", "-k", "k", script=script, status=4)


def test_query_by_unique_key_and_by_offset(mqadmin: Mqadmin) -> None:
    script: Script = lambda c: void(with_messages(c))  # noqa: E731 - used four times here
    assert f"{'Queue ID:':<20} 1" in mqadmin("queryMsgByUniqueKey", "-t", "T", "-i", "BB", script=script)
    mqadmin("queryMsgByUniqueKey", "-t", "T", "-i", "CC", script=script, status=4)
    offset = ("queryMsgByOffset", "-t", "T", "-b", "broker-a", "-i", "1", "-o")
    assert "WARN: No Consumer" in mqadmin(*offset, "0", script=script)
    mqadmin(*offset, "9", script=script, status=4)


def test_print_messages(mqadmin: Mqadmin) -> None:
    script: Script = lambda c: void(with_messages(c))  # noqa: E731 - used often here
    lines = mqadmin("printMsg", "-t", "T", script=script)
    assert lines[0] == "minOffset=0, maxOffset=1, MessageQueue [topic=T, brokerName=broker-a, queueId=0]"
    assert lines[1].startswith("MSGID: AA ") and lines[1].endswith("BODY: first")
    assert lines[2] == "-" * 56
    assert len([line for line in mqadmin("printMsg", "-t", "T", "-s", "B", script=script) if "MSGID" in line]) == 1
    queue = ("printMsgByQueue", "-t", "T", "-a", "broker-a", "-i", "0")
    assert mqadmin(*queue, "-f", "true", script=script) == [f"Tag: {'A':<30} Count: 1"]
    assert "NOT PRINT BODY" in mqadmin(*queue, "-p", "true", script=script)[0]
    mqadmin("printMsg", "-t", "T", "-b", "yesterday", script=script, status=2)


def test_an_end_after_the_last_message_leaves_out_none(mqadmin: Mqadmin) -> None:
    """The offset that a broker finds for such a time is the one of the last message."""

    def script(cluster: FakeCluster) -> None:
        broker = with_messages(cluster)
        broker.store("T", 1, b"third", b"UNIQ_KEY\x01CC\x02TAGS\x01B")
        broker.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda request, channel: RemotingCommand.response(
            header=OffsetResponseHeader(
                offset=broker.next_offset("T", SearchOffsetRequestHeader.of(request).queue_id) - 1
            )
        )

    for end, count in (("2000000000000", 3), ("1000", 0)):
        lines = mqadmin("printMsg", "-t", "T", "-e", end, script=script)
        assert len([line for line in lines if line.startswith("MSGID")]) == count
        queue = ("-a", "broker-a", "-i", "1", "-e", end, "-p", "true")
        assert len(mqadmin("printMsgByQueue", "-t", "T", *queue, script=script)) == max(count - 1, 0)
        lines = mqadmin("consumeMessage", "-t", "T", "-e", end, script=script)
        assert len([line for line in lines if line.startswith("MSGID")]) == count


def test_consume_message(mqadmin: Mqadmin) -> None:
    script: Script = lambda c: void(with_messages(c))  # noqa: E731 - used often here
    lines = mqadmin("consumeMessage", "-t", "T", script=script)
    assert lines[0] == "Consume ok" and lines[1].startswith("MSGID: ")
    assert lines[2].endswith("print msg finished. status=NO_NEW_MSG, offset=1") and len(lines) == 6
    assert [line[:11] for line in mqadmin("consumeMessage", "-t", "T", "-c", "1", script=script)] == [
        "Consume ok",
        "MSGID: AA M",
    ]
    gone = mqadmin("consumeMessage", "-t", "T", "-b", "broker-a", "-i", "1", "-o", "9", script=script)
    assert gone == ["MessageQueue [topic=T, brokerName=broker-a, queueId=1] no matched msg, offset=9"]
    queue = ("-b", "broker-a", "-i", "1", "-o", "0")
    one = mqadmin("consumeMessage", "-t", "T", *queue, "--output", "json", script=script)
    assert json.loads(one[0])["body"] == "second"
    mqadmin("consumeMessage", "-t", "T", "-b", "broker-z", script=script, status=4)
    mqadmin("consumeMessage", "-t", "T", "-o", "1", script=script, status=2)
    assert not mqadmin.error.startswith("unexpected")


def test_query_cq(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        found = QueryConsumeQueueResponseBody(
            min_queue_index=0, max_queue_index=2, queue_data=[ConsumeQueueData(physic_offset=378, physic_size=189)]
        )
        cluster.add_broker(T=1).answer(RequestCode.QUERY_CONSUME_QUEUE, found)

    shown = "physicOffset=378, physicSize=189, tagsCode=0, extendDataJson='null', bitMap='null', eval=false, msg='null'"
    assert mqadmin("queryCq", "-t", "T", "-q", "0", "-i", "5", script=script) == [
        "Queue data: ",
        "max: 2, min: 0",
        "=" * 38,
        "idx: 5",
        f"ConsumeQueueData{{{shown}}}",
        "=" * 38,
    ]


def test_send_message(mqadmin: Mqadmin) -> None:
    lines = mqadmin("sendMessage", "-t", "T", "-p", "hé", "-k", "a b", "-c", "Tag", script=one_broker)
    assert lines[1].split()[:3:2] == ["broker-a", "SEND_OK"]
    broker = mqadmin.cluster.brokers["broker-a"]
    (image,) = [image for images in broker.records.values() for image in images]
    assert "hé".encode() in image and b"KEYS\x01a b" in image and b"TAGS\x01Tag" in image
    lines = mqadmin("sendMessage", "-t", "T", "-p", "x", "-b", "broker-a", "-i", "1", script=one_broker)
    assert lines[1].split()[1] == "1"
    mqadmin("sendMessage", "-t", "T", "-p", "x", "-i", "1", script=one_broker, status=2)

    def refused(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1).refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL)

    assert mqadmin("sendMessage", "-t", "T", "-p", "x", script=refused, status=1)[1].split() == [
        "Unknown",
        "Unknown",
        "Failed",
        "None",
    ]


def test_measurements(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1, **{"broker-a": 1})

        async def slow(request: RemotingCommand, channel: Any) -> RemotingCommand:
            await trio.sleep(0.01)
            return broker.send(request, channel)

        broker.answers[RequestCode.SEND_MESSAGE_V2] = slow

    lines = mqadmin("checkMsgSendRT", "-t", "T", "-a", "3", script=script)
    assert [line.split()[2:] for line in lines[1:4]] == [["true", "10"]] * 3
    assert lines[4] == "Avg RT: 10.00"
    for line in mqadmin("sendMsgStatus", "-b", "broker-a", "-c", "2", script=script):
        assert line.startswith("rt=10ms, SendResult=SendResult [sendStatus=SEND_OK, msgId=")
    lines = mqadmin("clusterRT", "-a", "2", "--rounds", "2", script=script)
    assert [line.split() for line in lines[1:]] == [["DefaultCluster", "broker-a", "10.00", "2", "0"]] * 2
    (line,) = mqadmin("clusterRT", "-a", "1", "-p", "true", "--rounds", "1", "-m", "room", script=script)
    assert line.endswith("|room|DefaultCluster|broker-a|10")
    mqadmin("clusterRT", "-c", "nope", "--rounds", "1", script=script, status=4)


# --- groups -----------------------------------------------------------------------------------------------------------


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


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_reset_of_an_online_group(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = with_group(cluster)
        broker.answer(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetBody(offset_table={QUEUE: 7}))

    lines = mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "now", script=script)
    assert lines[0].endswith("timestamp(long)[-1]") and lines[2].split() == ["broker-a", "0", "7"]
    (request,) = mqadmin.cluster.brokers["broker-a"].got(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    header = ResetOffsetRequestHeader.of(request)
    assert (header.group, header.timestamp_ms, header.is_force) == ("g", -1, True)
    mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "soon", script=script, status=2)


def test_reset_of_an_offline_group_writes_its_offsets(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = with_group(cluster)
        broker.refuse(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResponseCode.CONSUMER_NOT_ONLINE)
        broker.min_offsets["T", 0] = 1000
        for _ in range(600):
            broker.store("T", 0, b"x")

    lines = mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0", script=script)
    assert lines[2].split() == ["broker-a", "0", "1520", "1490", "1000", "1000"] and len(lines) == 3
    assert mqadmin.cluster.brokers["broker-a"].offsets == {("g", "T", 0): 1000}
    lines = mqadmin("skipAccumulatedMessage", "-g", "g", "-t", "T", script=script)
    assert lines[1].split()[-2:] == ["1600", "1600"]
    mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "now", "-f", "false", script=script)
    assert mqadmin.cluster.brokers["broker-a"].offsets == {}, "without force nothing moves forwards"


def test_clone_copies_all_topics_of_the_group(mqadmin: Mqadmin) -> None:
    none = MessageQueue("T", "broker-a", 1)

    def script(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=2, U=1, **{"%RETRY%g": 1})
        table = {
            QUEUE: OffsetWrapper(broker_offset=1520, consumer_offset=1490),
            none: OffsetWrapper(broker_offset=3, consumer_offset=-1),
            MessageQueue("U", "broker-a", 0): OffsetWrapper(broker_offset=5, consumer_offset=0),
        }
        broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats(offset_table=table))

    mqadmin("cloneGroupOffset", "-s", "g", "-d", "g2", "-t", "T", script=script)
    assert mqadmin.cluster.brokers["broker-a"].offsets == {("g2", "T", 0): 1490, ("g2", "U", 0): 0}
    mqadmin("cloneGroupOffset", "-s", "g", "-d", "g2", "-t", "Other", script=script, status=4)


def test_a_group_without_offsets_is_not_cloned(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1, **{"%RETRY%g": 1}).answer(RequestCode.GET_CONSUME_STATS, ConsumeStats())

    mqadmin("cloneGroupOffset", "-s", "g", "-d", "g2", "-t", "T", script=script, status=4)


# --- brokers and name servers -----------------------------------------------------------------------------------------

FIGURES = {
    "putTps": "1203.4 1.0 1.0",
    "getTransferedTps": "980.1 ",
    "brokerVersionDesc": "V4_9_8",
    "sendThreadPoolQueueSize": "3",
    "sendThreadPoolQueueHeadWaitTimeMills": "5",
    "commitLogDiskRatio": "0.21174",
    "pageCacheLockTimeMills": "2",
    "msgPutTotalYesterdayMorning": "1",
    "msgPutTotalTodayMorning": "11",
    "msgPutTotalTodayNow": "111",
    "earliestMessageTimeStamp": "-1",
}


def test_cluster_list(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        cluster.add_broker().answer(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(table=FIGURES))

    heading, row = mqadmin("clusterList", script=script)
    assert heading.split() == [
        "#Cluster",
        "Name",
        "#Broker",
        "Name",
        "#BID",
        "#Addr",
        "#Version",
        "#InTPS(LOAD)",
        "#OutTPS(LOAD)",
        "#PCWait(ms)",
        "#Hour",
        "#SPACE",
    ]
    assert row.split() == [
        "DefaultCluster",
        "broker-a",
        "0",
        "10.0.0.1:10911",
        "V4_9_8",
        "1203.40(3,5ms)",
        "980.10(0,0ms)",
        "2",
        "0.00",
        "0.2117",
    ]
    assert mqadmin("clusterList", "-m", script=script)[1].split()[2:] == ["10", "0", "100", "0"]

    def dead(cluster: FakeCluster) -> None:
        script(cluster)
        cluster.add_broker("broker-b").unreachable = True

    lines = mqadmin("clusterList", script=dead, status=3)
    assert lines[2].split()[3:6] == ["10.0.0.2:10911", "0.00(0,0ms)", "0.00(0,0ms)"]
    assert "broker-b" in mqadmin.error


def test_broker_status_and_configuration(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = cluster.add_broker()
        broker.answer(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(table=FIGURES))
        broker.answer(RequestCode.GET_BROKER_CONFIG, b"fileReservedTime=72\nbrokerName=broker-a\n")
        broker.answer(RequestCode.UPDATE_BROKER_CONFIG)

    lines = mqadmin("brokerStatus", "-b", "10.0.0.1:10911", script=script)
    assert lines[0] == f"{'brokerVersionDesc':<32}: V4_9_8" and len(lines) == len(FIGURES)
    assert mqadmin("brokerStatus", "-c", "DefaultCluster", script=script)[0].startswith(f"{'10.0.0.1:10911':<24} ")
    lines = mqadmin("getBrokerConfig", "-b", "10.0.0.1:10911", script=script)
    assert lines[:2] == ["============10.0.0.1:10911============", f"{'brokerName':<50}=  broker-a"]
    mqadmin("updateBrokerConfig", "-b", "10.0.0.1:10911", "-k", "fileReservedTime", "-v", "48", script=script)
    (request,) = mqadmin.cluster.brokers["broker-a"].got(RequestCode.UPDATE_BROKER_CONFIG)
    assert request.body == b"fileReservedTime=48\n"
    mqadmin("updateBrokerConfig", "-b", "10.0.0.1:10911", "-k", "nope", "-v", "1", script=script, status=4)
    assert not mqadmin.cluster.brokers["broker-a"].got(RequestCode.UPDATE_BROKER_CONFIG)


def test_timer_status(mqadmin: Mqadmin) -> None:
    due_ms = 1_700_000_000_000

    def script(cluster: FakeCluster) -> None:
        figures = {"timerPending": "12", "timerNextDueTime": str(due_ms), "timerOldestStoreTime": str(due_ms - 60_000)}
        answer = KVTable(table=figures | {"timerHeldBytes": "4096"})
        cluster.add_broker().answer(RequestCode.GET_BROKER_RUNTIME_INFO, answer)

    def idle(cluster: FakeCluster) -> None:
        cluster.add_broker().answer(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(table={}))

    heading, row = mqadmin("timerStatus", "-b", "10.0.0.1:10911", script=script)
    assert heading.startswith("#Broker Addr")
    assert row.split() == ["10.0.0.1:10911", "12", *second_text(due_ms).split(), *second_text(due_ms - 60_000).split(),
                           "4096"]  # fmt: skip
    assert mqadmin("timerStatus", "-c", "DefaultCluster", script=idle)[1].split() == [
        "10.0.0.1:10911",
        "0",
        "-",
        "-",
        "0",
    ]


def test_write_permission(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        cluster.add_broker()
        answers = cluster.name_server.answers
        answers[RequestCode.WIPE_WRITE_PERM_OF_BROKER] = lambda request, channel: RemotingCommand.response(
            header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=5)
        )
        answers[RequestCode.ADD_WRITE_PERM_OF_BROKER] = lambda request, channel: RemotingCommand.response(
            header=AddWritePermOfBrokerResponseHeader(add_topic_count=6)
        )

    (line,) = mqadmin("wipeWritePerm", "-b", "broker-a", script=script)
    assert line == "wipe write perm of broker[broker-a] in name server[ns:9876] OK, 5"
    assert mqadmin("addWritePerm", "-b", "broker-a", script=script)[0].endswith("OK, 6")
    mqadmin("wipeWritePerm", "-b", "broker-z", script=script, status=4)


@pytest.mark.parametrize(
    ("name", "code"),
    [("cleanExpiredCQ", 306), ("cleanUnusedTopic", 316), ("deleteExpiredCommitLog", 329)],
)
def test_cleaning(mqadmin: Mqadmin, name: str, code: int) -> None:
    def script(cluster: FakeCluster) -> None:
        for broker in ("broker-a", "broker-b"):
            cluster.add_broker(broker).answer(RequestCode(code))

    assert mqadmin(name, script=script) == ["success"]
    assert len(mqadmin.cluster.brokers["broker-b"].got(RequestCode(code))) == 1
    assert mqadmin(name, "-b", "10.0.0.1:10911", script=script) == ["success"]

    def half(cluster: FakeCluster) -> None:
        script(cluster)
        cluster.brokers["broker-a"].refuse(RequestCode(code), ResponseCode.SYSTEM_ERROR)

    assert mqadmin(name, "-c", "DefaultCluster", script=half, status=3) == ["false"]


def test_name_server_configuration(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        server = cluster.name_server
        server.answer(RequestCode.GET_NAMESRV_CONFIG, b"orderMessageEnable=false\n")
        for code in (RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG):
            server.answer(code)

    lines = mqadmin("getNamesrvConfig", script=script)
    assert lines == ["============ns:9876============", f"{'orderMessageEnable':<50}=  false"]
    mqadmin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true", script=script)
    (request,) = mqadmin.cluster.name_server.got(RequestCode.UPDATE_NAMESRV_CONFIG)
    assert request.body == b"orderMessageEnable=true\n"
    mqadmin("updateNamesrvConfig", "-k", "nope", "-v", "1", script=script, status=4)
    mqadmin("updateKvConfig", "-s", "NS", "-k", "K", "-v", "V", script=script)
    header = PutKVConfigRequestHeader.of(mqadmin.cluster.name_server.got(RequestCode.PUT_KV_CONFIG)[0])
    assert (header.namespace, header.key, header.value) == ("NS", "K", "V")
    assert mqadmin("deleteKvConfig", "-s", "NS", "-k", "K", script=script) == [
        "delete kv config from namespace success."
    ]
