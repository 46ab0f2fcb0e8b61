"""The wire values that administration speaks, for packages above the client, which do not import remoting."""

from __future__ import annotations

from rocketpy.remoting.bodies.connection import Connection, ConsumerConnection, ProducerConnection, ProducerTableInfo
from rocketpy.remoting.bodies.consume_stats import ConsumeStats, ConsumeStatsList, OffsetWrapper
from rocketpy.remoting.bodies.group import GroupList, SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.heartbeat import ConsumeType, SubscriptionData
from rocketpy.remoting.bodies.kv import KVTable
from rocketpy.remoting.bodies.offset import ResetOffsetBody
from rocketpy.remoting.bodies.route import ClusterInfo, TopicRouteData
from rocketpy.remoting.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo, ProcessQueueInfo
from rocketpy.remoting.bodies.stats import BrokerStatsData, QueryConsumeQueueResponseBody
from rocketpy.remoting.bodies.topic import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fastjson import dump_text
from rocketpy.remoting.headers.broker import GetConsumeStatsInBrokerHeader, ViewBrokerStatsDataRequestHeader
from rocketpy.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketpy.remoting.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rocketpy.remoting.headers.namesrv import (
    AddWritePermOfBrokerResponseHeader,
    BrokerNameRequestHeader,
    DeleteTopicInNamesrvRequestHeader,
    GetKVConfigResponseHeader,
    KVConfigRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocketpy.remoting.headers.pull import PullSysFlag
from rocketpy.remoting.headers.query import QueryConsumeQueueRequestHeader, QueryMessageRequestHeader
from rocketpy.remoting.headers.topic import CreateTopicRequestHeader, TopicRequestHeader
from rocketpy.remoting.schema import Header

__all__ = [
    "AddWritePermOfBrokerResponseHeader",
    "BrokerNameRequestHeader",
    "BrokerStatsData",
    "ClusterInfo",
    "Connection",
    "ConsumeMessageDirectlyRequestHeader",
    "ConsumeMessageDirectlyResult",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerRunningInfo",
    "CreateTopicRequestHeader",
    "DeleteSubscriptionGroupRequestHeader",
    "DeleteTopicInNamesrvRequestHeader",
    "GetConsumeStatsInBrokerHeader",
    "GetConsumeStatsRequestHeader",
    "GetConsumerConnectionListRequestHeader",
    "GetConsumerRunningInfoRequestHeader",
    "GetKVConfigResponseHeader",
    "GetProducerConnectionListRequestHeader",
    "GroupList",
    "Header",
    "KVConfigRequestHeader",
    "KVTable",
    "OffsetWrapper",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerTableInfo",
    "PullSysFlag",
    "PutKVConfigRequestHeader",
    "QueryConsumeQueueRequestHeader",
    "QueryConsumeQueueResponseBody",
    "QueryMessageRequestHeader",
    "RemotingCommand",
    "ResetOffsetBody",
    "ResetOffsetRequestHeader",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "SubscriptionGroupWrapper",
    "TopicConfig",
    "TopicConfigSerializeWrapper",
    "TopicList",
    "TopicOffset",
    "TopicRequestHeader",
    "TopicRouteData",
    "TopicStatsTable",
    "ViewBrokerStatsDataRequestHeader",
    "WipeWritePermOfBrokerResponseHeader",
    "dump_text",
]
