"""Subscription groups: their settings (200, 201), members (38), names (300), locked queues (41, 42), SQL92 filters
(the file consumerFilter.json).
"""

from __future__ import annotations

from rocketpy.message.message_queue import MessageQueue

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


@body
class LockBatchRequestBody(Body):
    """The request of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    client_id: str = wire("clientId", default="")
    consumer_group: str = wire("consumerGroup", default="")
    mq_set: list[MessageQueue] = wire("mqSet", factory=list)


@body
class LockBatchResponseBody(Body):
    """The queues that are locked now: equal to the requested ones in all three fields; the others are not."""

    lock_ok_mq_set: list[MessageQueue] = wire("lockOKMQSet", factory=list)


@body
class BloomFilterData(Body):
    bit_num: Int = wire("bitNum", default=0)
    bit_pos: list[Int] = wire("bitPos", factory=list)


@body
class ConsumerFilterData(Body):
    """One subscription. Times are milliseconds since 1970; it is dead, its group has left, if `dead_time` is not before
    `born_time`."""

    bloom_filter_data: BloomFilterData | None = wire("bloomFilterData", default=None)
    born_time: int = wire("bornTime", default=0)
    client_version: int = wire("clientVersion", default=0)  # subVersion of the subscription
    consumer_group: str = wire("consumerGroup", default="")
    dead: bool = wire("dead", default=False)  # written for readers; the times say it
    dead_time: int = wire("deadTime", default=0)
    expression: str = wire("expression", default="")
    expression_type: str = wire("expressionType", default="SQL92")
    topic: str = wire("topic", default="")

    @property
    def is_dead(self) -> bool:
        return self.dead_time >= self.born_time


@body
class FilterDataOfTopic(Body):
    group_filter_data: dict[str, ConsumerFilterData] = wire("groupFilterData", factory=dict)
    topic: str = wire("topic", default="")


@body
class FilterDocument(Body):
    """The file consumerFilter.json."""

    filter_data_by_topic: dict[str, FilterDataOfTopic] = wire("filterDataByTopic", factory=dict)
