"""exportMetadata, exportConfigs, exportMetrics: what is in the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy.admin import java_files
from rocketpy.codes import RequestCode
from rocketpy.remoting.bodies.broker import BrokerStatsData, BrokerStatsItem
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.route import KVTable
from rocketpy.remoting.bodies.topic import TopicConfig, TopicConfigSerializeWrapper, TopicList
from rocketpy.remoting.command import RemotingCommand
from tests.support.admin import Mqadmin, with_group
from tests.support.cluster import FakeBroker, FakeCluster

FIGURES = {
    "brokerVersionDesc": "V4_9_8",
    "putTps": "1.5 2 3",
    "getTransferedTps": "2.5 2 3",
    "msgPutTotalTodayMorning": "100",
    "msgPutTotalYesterdayMorning": "60",
    "commitLogDiskRatio": "0.25",
    "putMessageAverageSize": "128.5",
}


def with_settings(broker: FakeBroker) -> None:
    names = ("T", "own", "TBW102", "rmq_sys_x", "%RETRY%g", "%DLQ%g")
    topics = {name: TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4) for name in names}
    broker.answer(RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper(topic_config_table=topics))
    broker.answer(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList(topic_list=["own"]))
    groups = {name: SubscriptionGroupConfig(group_name=name) for name in ("g", "TOOLS_CONSUMER", "CID_RMQ_SYS_x")}
    broker.answer(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper(subscription_group_table=groups)
    )
    config = b"brokerName=broker-a\nfileReservedTime=72\nsecret=x\nclientCallbackExecutorThreads=2\n"
    broker.answers[RequestCode.GET_BROKER_CONFIG] = lambda request, channel: RemotingCommand.response(body=config)
    broker.answer(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(table=FIGURES))
    broker.answer(
        RequestCode.VIEW_BROKER_STATS_DATA,
        BrokerStatsData(stats_minute=BrokerStatsItem(sum=30, tps=0.5), stats_hour=BrokerStatsItem(sum=40)),
    )


def one(cluster: FakeCluster) -> None:
    with_settings(with_group(cluster))


def two(cluster: FakeCluster) -> None:
    one(cluster)
    with_settings(cluster.add_broker("broker-b", T=2))


def exported(mqadmin: Mqadmin, directory: Path, *words: str, script: Any = one) -> dict[str, Any]:
    (line,) = mqadmin(words[0], *words[1:], "-f", str(directory), script=script)
    path = line.removeprefix("export ").removesuffix(" success")
    content: dict[str, Any] = json.loads(Path(path).read_text())
    return content | {"name": Path(path).name}


def test_metadata_of_a_cluster_leaves_out_the_systems_own(mqadmin: Mqadmin, tmp_path: Path) -> None:
    found = exported(mqadmin, tmp_path, "exportMetadata", "-c", "DefaultCluster")
    assert found["name"] == "metadata.json" and next(iter(found)) == "exportTime"
    assert list(found["topicConfigTable"]) == ["T"] and list(found["subscriptionGroupTable"]) == ["g"]
    found = exported(mqadmin, tmp_path, "exportMetadata", "-c", "DefaultCluster", "-t", "-s")
    assert found["name"] == "topic.json" and "subscriptionGroupTable" not in found
    assert set(found["topicConfigTable"]) == {"T", "%RETRY%g", "%DLQ%g"}
    found = exported(mqadmin, tmp_path, "exportMetadata", "-c", "DefaultCluster", "-g")
    assert found["name"] == "subscriptionGroup.json" and "topicConfigTable" not in found


def test_metadata_of_a_cluster_sums_the_queues_of_its_masters_as_java_does(mqadmin: Mqadmin, tmp_path: Path) -> None:
    found = exported(mqadmin, tmp_path, "exportMetadata", "-c", "DefaultCluster", script=two)
    topic, group = found["topicConfigTable"]["T"], found["subscriptionGroupTable"]["g"]
    assert (topic["readQueueNums"], topic["writeQueueNums"], group["retryQueueNums"]) == (8, 8, 2)


def test_metadata_of_a_broker_has_its_version(mqadmin: Mqadmin, tmp_path: Path) -> None:
    found = exported(mqadmin, tmp_path, "exportMetadata", "-b", "10.0.0.1:10911", "-t")
    assert found["dataVersion"] == {"counter": 0, "timestamp": 0} and list(found["topicConfigTable"]) == ["T"]
    mqadmin("exportMetadata", "-b", "10.0.0.1:10911", "-f", str(tmp_path), script=one, status=2)
    mqadmin("exportMetadata", "-f", str(tmp_path), script=one, status=2)


def test_configs_hold_important_settings_only(mqadmin: Mqadmin, tmp_path: Path) -> None:
    found = exported(mqadmin, tmp_path, "exportConfigs", "-c", "DefaultCluster")
    assert found["brokerConfigs"] == {"broker-a": {"brokerName": "broker-a", "fileReservedTime": "72"}}
    assert found["clusterScale"] == {"namesrvSize": 1, "slaveBrokerSize": 0, "masterBrokerSize": 1}


def test_metrics(mqadmin: Mqadmin, tmp_path: Path) -> None:
    found = exported(mqadmin, tmp_path, "exportMetrics", "-c", "DefaultCluster")
    broker = found["evaluateReport"]["broker-a"]
    assert broker["runtimeVersion"] == {"rocketmqVersion": "V4_9_8", "clientInfo": ["PYTHON%V4_9_8"]}
    assert broker["runtimeEnv"] == {"cpuNum": "2"}
    quota = broker["runtimeQuota"]
    assert quota["tps"] == {"scheduleInTps": 0.5, "normalInTps": 1.5, "normalOutTps": 2.5, "transInTps": 0.5}
    assert quota["oneDayNum"] == {
        "transOneDayInNum": 40,
        "scheduleOneDayInNum": 40,
        "normalOneDayOutNum": 0,
        "normalOneDayInNum": 40,
    }
    assert (quota["topicSize"], quota["groupSize"], quota["messageAverageSize"]) == (1, 1, "128.5")
    assert found["totalData"]["totalTps"]["totalNormalInTps"] == 1.5


def test_javas_directory_is_not_used_when_it_is_another_users(
    mqadmin: Mqadmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in /tmp, where anybody may have made it, or a link to elsewhere."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setattr(java_files, "JAVA_DIRECTORY", tmp_path / "link")
    mqadmin("exportConfigs", "-c", "DefaultCluster", "-f", str(tmp_path / "link"), script=one, status=1)
    assert "belongs to another user" in mqadmin.error
    assert not list((tmp_path / "real").iterdir())
