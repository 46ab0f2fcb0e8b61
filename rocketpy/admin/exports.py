"""The exports of topics and groups, of important settings, and of a cluster's figures.

Source: RocketMQ 4.9 `ExportMetadataCommand`, `ExportConfigsCommand`, `ExportMetricsCommand`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from rocketpy.atomic_file import write_atomically
from rocketpy.codes import RequestCode, version_name
from rocketpy.errors import BrokerError, RocketError
from rocketpy.message.names import (
    CLIENT_INNER_PRODUCER_GROUP,
    DEFAULT_CONSUMER_GROUP,
    DEFAULT_PRODUCER_GROUP,
    PREDEFINED_GROUPS,
    SCHEDULE_TOPIC,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TRANS_HALF_TOPIC,
    is_dlq_topic,
    is_retry_topic,
)
from rocketpy.message.numbers import long_or
from rocketpy.remoting.bodies.broker import BrokerStatsData
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.topic import TopicConfig, TopicConfigSerializeWrapper, TopicList

from .admin import Admin
from .java_files import check_owner
from .java_text import language_name, pretty_json
from .statistics import TOPIC_PUT_NUMS, day_sum, first_number

SYSTEM_GROUPS = frozenset(
    {*PREDEFINED_GROUPS, DEFAULT_PRODUCER_GROUP, DEFAULT_CONSUMER_GROUP, CLIENT_INNER_PRODUCER_GROUP}
)
CONFIG_KEYS = (
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
)
Json = dict[str, object]


def write_export(directory: Path, name: str, content: object) -> Path:
    """Write a file into `directory`. Raises ClientError: Java's directory in /tmp belongs to another user."""
    check_owner(directory)
    path = directory / name
    write_atomically(path, pretty_json(content).encode())
    return path


async def user_topics(admin: Admin, address: str, *, with_special: bool) -> TopicConfigSerializeWrapper:
    """The topics of a broker without those of the system; retry and dead letter topics only if asked for."""
    found = TopicConfigSerializeWrapper.decode((await admin.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)).body)
    system = TopicList.decode((await admin.ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)).body)
    hidden = SYSTEM_TOPICS | set(system.topic_list)
    found.topic_config_table = {
        name: config
        for name, config in found.topic_config_table.items()
        if name not in hidden
        and not name.startswith(SYSTEM_TOPIC_PREFIX)
        and (with_special or not (is_retry_topic(name) or is_dlq_topic(name)))
    }
    return found


async def user_groups(admin: Admin, address: str) -> SubscriptionGroupWrapper:
    """The groups of a broker without those of the system."""
    response = await admin.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    found = SubscriptionGroupWrapper.decode(response.body)
    found.subscription_group_table = {
        name: config
        for name, config in found.subscription_group_table.items()
        if name not in SYSTEM_GROUPS and not name.startswith(SYSTEM_GROUP_PREFIX)
    }
    return found


async def cluster_topics(admin: Admin, masters: list[str], *, with_special: bool) -> dict[str, TopicConfig]:
    """The topics of a cluster. As in Java, the numbers of queues are the sums over its masters."""
    merged: dict[str, TopicConfig] = {}
    for address in masters:
        for name, config in (await user_topics(admin, address, with_special=with_special)).topic_config_table.items():
            if name in merged:
                merged[name].read_queue_nums += config.read_queue_nums
                merged[name].write_queue_nums += config.write_queue_nums
            else:
                merged[name] = config
    return merged


async def cluster_groups(admin: Admin, masters: list[str]) -> dict[str, SubscriptionGroupConfig]:
    """The groups of a cluster. As in Java, the numbers of retry queues are the sums over its masters."""
    merged: dict[str, SubscriptionGroupConfig] = {}
    for address in masters:
        for name, config in (await user_groups(admin, address)).subscription_group_table.items():
            if name in merged:
                merged[name].retry_queue_nums += config.retry_queue_nums
            else:
                merged[name] = config
    return merged


async def configs(admin: Admin, cluster: str) -> Json:
    """Important settings of the masters of a cluster, and how many servers there are."""
    masters = await admin.addresses_of(cluster)
    everyone = await admin.addresses_of(cluster, masters_only=False)
    by_broker: Json = {}
    for address in masters:
        config = await admin.broker_config(address)
        by_broker[config.get("brokerName", address)] = {key: config[key] for key in CONFIG_KEYS if key in config}
    scale = {
        "namesrvSize": len(admin.options.name_server_list),
        "slaveBrokerSize": len(everyone) - len(masters),
        "masterBrokerSize": len(masters),
    }
    return {"clusterScale": scale, "brokerConfigs": by_broker}


@attrs.frozen
class Load:
    """Messages per second, and in the 24 hours to this morning."""

    normal_in_tps: float = 0.0
    normal_out_tps: float = 0.0
    trans_in_tps: float = 0.0
    schedule_in_tps: float = 0.0
    normal_in_day: int = 0
    normal_out_day: int = 0
    trans_in_day: int = 0
    schedule_in_day: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(*(one + more for one, more in zip(attrs.astuple(self), attrs.astuple(other), strict=True)))

    @property
    def day(self) -> Json:
        return {
            "transOneDayInNum": self.trans_in_day,
            "scheduleOneDayInNum": self.schedule_in_day,
            "normalOneDayOutNum": self.normal_out_day,
            "normalOneDayInNum": self.normal_in_day,
        }


async def metrics(admin: Admin, cluster: str) -> Json:
    """Figures of the masters of a cluster, for its sizing, and their totals."""
    total, report = Load(), dict[str, object]()
    for address in await admin.addresses_of(cluster):
        figures, config = await admin.runtime_info(address), await admin.broker_config(address)
        load = await _load(admin, address, figures)
        total += load
        groups = (await user_groups(admin, address)).subscription_group_table
        topics = (await user_topics(admin, address, with_special=False)).topic_config_table
        report[config.get("brokerName", address)] = {
            "runtimeVersion": {
                "rocketmqVersion": figures.get("brokerVersionDesc", ""),
                "clientInfo": await _clients(admin, address, groups),
            },
            "runtimeQuota": {
                "diskRatio": {name: figures.get(name, "0") for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
                "topicSize": len(topics),
                "tps": {
                    "scheduleInTps": load.schedule_in_tps,
                    "normalInTps": load.normal_in_tps,
                    "normalOutTps": load.normal_out_tps,
                    "transInTps": load.trans_in_tps,
                },
                "groupSize": len(groups),
                "oneDayNum": load.day,
                "messageAverageSize": figures.get("putMessageAverageSize", "0"),
            },
            "runtimeEnv": {"cpuNum": config.get("clientCallbackExecutorThreads", "")},
        }
    tps = {
        "totalScheduleInTps": total.schedule_in_tps,
        "totalNormalInTps": total.normal_in_tps,
        "totalTransInTps": total.trans_in_tps,
        "totalNormalOutTps": total.normal_out_tps,
    }
    return {"totalData": {"totalOneDayNum": total.day, "totalTps": tps}, "evaluateReport": report}


async def _load(admin: Admin, address: str, figures: Mapping[str, str]) -> Load:
    half = await _stats(admin, address, TRANS_HALF_TOPIC)
    delayed = await _stats(admin, address, SCHEDULE_TOPIC)
    return Load(
        normal_in_tps=first_number(figures.get("putTps")),
        normal_out_tps=first_number(figures.get("getTransferedTps")),
        trans_in_tps=half.stats_minute.tps,
        schedule_in_tps=delayed.stats_minute.tps,
        normal_in_day=_yesterday(figures, "msgPutTotal"),
        normal_out_day=_yesterday(figures, "msgGetTotal"),
        trans_in_day=day_sum(half),
        schedule_in_day=day_sum(delayed),
    )


async def _stats(admin: Admin, address: str, topic: str) -> BrokerStatsData:
    """Return the statistics of a topic; empty for one without traffic."""
    try:
        return await admin.broker_stats(address, TOPIC_PUT_NUMS, topic)
    except BrokerError:
        return BrokerStatsData()


async def _clients(admin: Admin, address: str, groups: Mapping[str, object]) -> list[str]:
    """Language and version of all members of groups, `JAVA%V4_9_7`. A group without members adds nothing."""
    found: set[str] = set()
    for group in sorted(groups):
        try:
            members = (await admin.consumer_connection(group, address)).connection_set
        except RocketError:
            continue
        found |= {f"{language_name(member.language)}%{version_name(member.version)}" for member in members}
    return sorted(found)


def _yesterday(figures: Mapping[str, str], prefix: str) -> int:
    return long_or(figures.get(f"{prefix}TodayMorning"), 0) - long_or(figures.get(f"{prefix}YesterdayMorning"), 0)
