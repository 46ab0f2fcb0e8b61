"""HEART_BEAT (34) and CHECK_CLIENT_CONFIG (46): who a client is and what it subscribes to."""

from __future__ import annotations

from enum import StrEnum

from .schema import Body, Int, body, wire

EXPRESSION_TYPE_TAG = "TAG"
EXPRESSION_TYPE_SQL92 = "SQL92"
SUB_ALL = "*"


class ConsumeFromWhere(StrEnum):
    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ConsumeType(StrEnum):
    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"  # pull consumers
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"  # push consumers
    CONSUME_POP = "CONSUME_POP"  # 5.x


class MessageModel(StrEnum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


@body
class SubscriptionData(Body):
    """One subscription. Tag codes are to be computed from the tags: Go sends its code set as texts, or empty."""

    class_filter_mode: bool = wire("classFilterMode", default=False)
    code_set: list[Int] = wire("codeSet", factory=list)
    expression_type: str = wire("expressionType", default=EXPRESSION_TYPE_TAG)
    sub_string: str = wire("subString", default=SUB_ALL)
    sub_version: int = wire("subVersion", default=0)
    tags_set: list[str] = wire("tagsSet", factory=list)
    topic: str = wire("topic", default="")


@body
class ConsumerData(Body):
    consume_from_where: ConsumeFromWhere = wire("consumeFromWhere", default=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    consume_type: ConsumeType = wire("consumeType", default=ConsumeType.CONSUME_PASSIVELY)
    group_name: str = wire("groupName", default="")
    message_model: MessageModel = wire("messageModel", default=MessageModel.CLUSTERING)
    subscription_data_set: list[SubscriptionData] = wire("subscriptionDataSet", factory=list)
    unit_mode: bool = wire("unitMode", default=False)


@body
class ProducerData(Body):
    group_name: str = wire("groupName", default="")


@body
class HeartbeatData(Body):
    client_id: str = wire("clientID", default="")
    consumer_data_set: list[ConsumerData] = wire("consumerDataSet", factory=list)
    producer_data_set: list[ProducerData] = wire("producerDataSet", factory=list)


@body
class CheckClientRequestBody(Body):
    client_id: str = wire("clientId", default="")
    group: str = wire("group", default="")
    subscription_data: SubscriptionData = wire("subscriptionData", factory=SubscriptionData)
    namespace: str | None = wire("namespace", default=None)
