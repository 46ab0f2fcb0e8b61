"""Subscription groups: their settings (200, 201), members (38), names (300)."""

from __future__ import annotations

from .schema import Body, Int, body, wire
from .topic import DataVersion


@body
class SubscriptionGroupConfig(Body):
    broker_id: int = wire("brokerId", default=0)
    consume_broadcast_enable: bool = wire("consumeBroadcastEnable", default=True)
    consume_enable: bool = wire("consumeEnable", default=True)
    consume_from_min_enable: bool = wire("consumeFromMinEnable", default=True)
    group_name: str = wire("groupName", default="")
    notify_consumer_ids_changed_enable: bool = wire("notifyConsumerIdsChangedEnable", default=True)
    retry_max_times: Int = wire("retryMaxTimes", default=16)
    retry_queue_nums: Int = wire("retryQueueNums", default=1)
    which_broker_when_consume_slowly: int = wire("whichBrokerWhenConsumeSlowly", default=1)


@body
class SubscriptionGroupWrapper(Body):
    data_version: DataVersion = wire("dataVersion", factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = wire("subscriptionGroupTable", factory=dict)


@body
class GroupList(Body):
    group_list: list[str] = wire("groupList", factory=list)


@body
class GetConsumerListByGroupResponseBody(Body):
    consumer_id_list: list[str] = wire("consumerIdList", factory=list)
