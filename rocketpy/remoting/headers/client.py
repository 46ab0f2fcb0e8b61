"""Clients (35, 38) and what brokers ask of them: 40, 220, 221, 307, 309, 326; 222 and 223 set off 220 and 221."""

from __future__ import annotations

from ..schema import Header, Int, header, wire


@header
class UnregisterClientRequestHeader(Header):
    client_id: str = wire("clientID")
    producer_group: str | None = wire("producerGroup", default=None)
    consumer_group: str | None = wire("consumerGroup", default=None)


@header
class GetConsumerListByGroupRequestHeader(Header):
    consumer_group: str = wire("consumerGroup")


@header
class NotifyConsumerIdsChangedRequestHeader(Header):
    consumer_group: str = wire("consumerGroup", default="")


@header
class ResetOffsetRequestHeader(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET (222) and RESET_CONSUMER_CLIENT_OFFSET (220). Timestamp -1: the end."""

    topic: str = wire("topic")
    group: str = wire("group")
    timestamp_ms: int = wire("timestamp", default=-1)
    is_force: bool = wire("isForce", default=False)
    queue_id: Int | None = wire("queueId", default=None)  # 5.x
    offset: int | None = wire("offset", default=None)  # 5.x


@header
class GetConsumerStatusRequestHeader(Header):
    """223 and 221. `client_addr` is a client id."""

    topic: str = wire("topic")
    group: str = wire("group")
    client_addr: str | None = wire("clientAddr", default=None)


@header
class GetConsumerRunningInfoRequestHeader(Header):
    consumer_group: str = wire("consumerGroup")
    client_id: str = wire("clientId")
    jstack_enable: bool = wire("jstackEnable", default=False)


@header
class ConsumeMessageDirectlyRequestHeader(Header):
    consumer_group: str = wire("consumerGroup")
    client_id: str | None = wire("clientId", default=None)
    msg_id: str | None = wire("msgId", default=None)  # an offsetMsgId
    broker_name: str | None = wire("brokerName", default=None)


@header
class ReplyMessageRequestHeader(Header):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326): a reply for the client that waits for it; its body is the request's."""

    producer_group: str = wire("producerGroup")
    topic: str = wire("topic")
    default_topic: str = wire("defaultTopic", default="")
    default_topic_queue_nums: Int = wire("defaultTopicQueueNums", default=4)
    queue_id: Int = wire("queueId")
    sys_flag: Int = wire("sysFlag", default=0)
    born_timestamp_ms: int = wire("bornTimestamp", default=0)
    flag: Int = wire("flag", default=0)
    properties: str | None = wire("properties", default=None)
    reconsume_times: Int | None = wire("reconsumeTimes", default=None)
    unit_mode: bool = wire("unitMode", default=False)
    born_host: str = wire("bornHost", default="")
    store_host: str = wire("storeHost", default="")
    store_timestamp_ms: int = wire("storeTimestamp", default=0)
