"""Commands about brokers and name servers against a scripted cluster: what is asked of whom, what is printed."""

import pytest

from rocketpy.admin.output import second_text
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.bodies.route import KVTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.namesrv import (
    AddWritePermOfBrokerResponseHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from tests.support.admin import Mqadmin
from tests.support.cluster import FakeCluster

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

    assert mqadmin(name, "-c", "nope", script=script, status=4) == ["false"]
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
