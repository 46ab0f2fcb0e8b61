"""Connected clients: ConsumerConnection (203), ProducerConnection (204), ProducerTableInfo (328)."""

from __future__ import annotations

from rocketpy.codes import LanguageCode

from .heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from .schema import Body, Int, body, wire


@body
class Connection(Body):
    client_addr: str = wire("clientAddr", default="")
    client_id: str = wire("clientId", default="")
    language: LanguageCode | None = wire("language", default=None)
    version: Int = wire("version", default=0)


@body
class DifferingSubscription(Body):
    """What `members` of a group subscribe to, unlike others of it. Of rocketpy alone."""

    client_id: str = wire("clientId", default="")  # one of them
    members: Int = wire("members", default=0)
    text: str = wire("text", default="")


@body
class ConsumerConnection(Body):
    connection_set: list[Connection] = wire("connectionSet", factory=list)
    consume_from_where: ConsumeFromWhere | None = wire("consumeFromWhere", default=None)
    consume_type: ConsumeType | None = wire("consumeType", default=None)
    message_model: MessageModel | None = wire("messageModel", default=None)
    subscription_table: dict[str, SubscriptionData] = wire("subscriptionTable", factory=dict)
    differing_subscriptions: list[DifferingSubscription] | None = wire("differingSubscriptions", default=None)


@body
class ProducerConnection(Body):
    connection_set: list[Connection] = wire("connectionSet", factory=list)


@body
class ProducerInfo(Body):
    client_id: str = wire("clientId", default="")
    language: LanguageCode | None = wire("language", default=None)
    last_update_timestamp_ms: int = wire("lastUpdateTimestamp", default=0)
    remote_ip: str = wire("remoteIP", default="")  # "/ip:port"
    version: Int = wire("version", default=0)


@body
class ProducerTableInfo(Body):
    data: dict[str, list[ProducerInfo]] = wire("data", factory=dict)
