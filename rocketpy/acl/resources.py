"""Which topics, groups or roles a request needs: the tables REFERENCE and STRICT, a rule for each request code.

    RequestCode.PULL_MESSAGE: resources(topic("topic", SUB), group("consumerGroup"))

REFERENCE is RocketMQ 4.9 with its holes: a code without a rule needs a valid signature and nothing else. STRICT has a
rule for each code that a server of ours serves. A rule reads the request as it arrived; names of fields differ by code.

Some requests name a message by its place in the log, so their topic is known when the message has been read. STRICT
demands the permission for some topic; whoever reads the message asks AccessValidator.check_topic (CHECKED_WHEN_READ).

Source: RocketMQ 4.9 `PlainAccessValidator#parse`, `Permission#ADMIN_CODE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

import attrs

from rocketpy.codes import RequestCode
from rocketpy.errors import RemoteProtocolError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    DLQ_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from rocketpy.remoting.bodies.client import CheckClientRequestBody, ConsumerData, HeartbeatData, SubscriptionData
from rocketpy.remoting.bodies.group import LockBatchRequestBody
from rocketpy.remoting.command import RemotingCommand

from .permissions import ANY, PUB, SUB, group_resource, is_group

Need = tuple[str | None, int]
"""A resource and a permission for it; None: some topic."""

INNER_TOPICS = frozenset(
    {
        *(SCHEDULE_TOPIC, TIMER_TOPIC, DLQ_PREFIX + TIMER_TOPIC),
        *(TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC),
    }
)
"""Topics with messages of other topics, which would be read here by accounts that may not read them there."""
_OF_EVERYBODY = frozenset({AUTO_CREATE_TOPIC_KEY_TOPIC, TRACE_TOPIC})  # each producer asks for their routes
_WORDS = {PUB: "PUB", SUB: "SUB", ANY: "PUB or SUB"}


class FieldMissing(RemoteProtocolError):
    """A request names no resource where it must."""


class Access(Enum):
    """The account that a request needs."""

    ANY = "valid signature"
    BROKER = "broker"
    ADMIN = "administrator"


@attrs.frozen
class Source:
    """A place in a request that names resources."""

    text: str
    needs: Callable[[RemotingCommand], Iterable[Need]]
    """Raises FieldMissing, BodyInvalid."""
    fill: Callable[[RemotingCommand, str, str], None]
    """Puts a topic and a group there, for samples."""


@attrs.frozen
class Rule:
    """The needs of one request code."""

    access: Access = Access.ANY
    sources: tuple[Source, ...] = ()

    def needs(self, request: RemotingCommand) -> list[Need]:
        """Read the resources that the request needs. Raises FieldMissing, BodyInvalid."""
        return [need for source in self.sources for need in source.needs(request)]

    @property
    def text(self) -> str:
        return "; ".join(source.text for source in self.sources) or self.access.value


def resources(*sources: Source) -> Rule:
    return Rule(sources=sources)


# --- fields -----------------------------------------------------------------------------------------------------------


def topic(name: str, permission: int, *, optional: bool = False, free: frozenset[str] = frozenset()) -> Source:
    """The topic in a field. Those of `free` need nothing."""

    def needs(request: RemotingCommand) -> Iterable[Need]:
        named = _field(request, name, optional)
        return [] if named is None or named in free else [(named, permission)]

    def fill(request: RemotingCommand, topic: str, group: str) -> None:
        request.add_ext_field(name, topic)

    return Source(f"topic `{name}`: {_WORDS[permission]}", needs, fill)


def group(name: str, *, optional: bool = False) -> Source:
    """The consumer group in a field."""

    def needs(request: RemotingCommand) -> Iterable[Need]:
        named = _field(request, name, optional)
        return [] if named is None else [(group_resource(named), SUB)]

    def fill(request: RemotingCommand, topic: str, group: str) -> None:
        request.add_ext_field(name, group)

    return Source(f"group `{name}`: SUB", needs, fill)


def sent(topic_name: str, group_name: str, *, strict: bool) -> Source:
    """The topic of a send. To send to a retry topic is the right of its group's members; the reference looks at the
    group that the sender names instead of the topic."""

    def needs(request: RemotingCommand) -> Iterable[Need]:
        named = _field(request, topic_name, not strict)
        if named is None:
            return []
        if not is_group(named):
            return [(named, PUB)]
        sender = _field(request, group_name, optional=True)
        own = [] if sender is None else [(group_resource(sender), SUB)]
        return [(named, SUB), *own] if strict else own

    def fill(request: RemotingCommand, topic: str, group: str) -> None:
        request.add_ext_field(topic_name, topic)
        request.add_ext_field(group_name, group)

    retry = f"retry topic: {'SUB for it and ' if strict else ''}group `{group_name}`: SUB"
    return Source(f"topic `{topic_name}`: PUB; {retry}", needs, fill)


def _field(request: RemotingCommand, name: str, optional: bool) -> str | None:
    value = request.ext_field(name)
    if value is None and not optional:
        raise FieldMissing(f"the custom field <{name}> is null")
    return value


def some_topic(permission: int) -> Source:
    """Any topic, of an account that has this permission for one at all."""
    return Source(f"some topic: {_WORDS[permission]}", lambda request: [(None, permission)], lambda *_: None)


# --- bodies -----------------------------------------------------------------------------------------------------------


def _subscribed(group: str, topics: Iterable[str]) -> Iterable[Need]:
    return [(group_resource(group), SUB), *((topic, SUB) for topic in topics)]


def _heartbeat_needs(request: RemotingCommand) -> Iterable[Need]:
    for consumer in HeartbeatData.decode_request(request.body).consumer_data_set:
        yield from _subscribed(consumer.group_name, (data.topic for data in consumer.subscription_data_set))


def _fill_heartbeat(request: RemotingCommand, topic: str, group: str) -> None:
    consumer = ConsumerData(group_name=group, subscription_data_set=[SubscriptionData(topic=topic)])
    request.body = HeartbeatData(client_id="client", consumer_data_set=[consumer]).encode()


def _checked_needs(request: RemotingCommand) -> Iterable[Need]:
    body = CheckClientRequestBody.decode_request(request.body)
    return _subscribed(body.group, [body.subscription_data.topic])


def _fill_checked(request: RemotingCommand, topic: str, group: str) -> None:
    data = SubscriptionData(topic=topic)
    request.body = CheckClientRequestBody(client_id="client", group=group, subscription_data=data).encode()


def _lock_needs(request: RemotingCommand) -> Iterable[Need]:
    body = LockBatchRequestBody.decode_request(request.body)
    return _subscribed(body.consumer_group, {queue.topic for queue in body.mq_set})


def _fill_lock(request: RemotingCommand, topic: str, group: str) -> None:
    queues = [MessageQueue(topic, "broker", 0)]
    request.body = LockBatchRequestBody(client_id="client", consumer_group=group, mq_set=queues).encode()


_HEARTBEAT = Source(
    "each consumer: group: SUB, each topic: SUB; producers: nothing, PUB to be asked about transactions",
    _heartbeat_needs,
    _fill_heartbeat,
)
_CHECKED = Source("body: group: SUB, topic: SUB", _checked_needs, _fill_checked)
_LOCKED = Source("body: group: SUB, topic of each queue: SUB", _lock_needs, _fill_lock)

# --- tables -----------------------------------------------------------------------------------------------------------

_Code = RequestCode
_ADMIN = Rule(Access.ADMIN)
_BROKER = Rule(Access.BROKER)

REFERENCE: Mapping[int, Rule] = {
    _Code.SEND_MESSAGE: resources(sent("topic", "group", strict=False)),
    _Code.SEND_MESSAGE_V2: resources(sent("b", "a", strict=False)),
    _Code.CONSUMER_SEND_MSG_BACK: resources(group("group", optional=True)),
    _Code.PULL_MESSAGE: resources(topic("topic", SUB, optional=True), group("consumerGroup", optional=True)),
    _Code.QUERY_MESSAGE: resources(topic("topic", SUB, optional=True)),
    _Code.HEART_BEAT: resources(_HEARTBEAT),
    _Code.UNREGISTER_CLIENT: resources(group("consumerGroup", optional=True)),
    _Code.GET_CONSUMER_LIST_BY_GROUP: resources(group("consumerGroup", optional=True)),
    _Code.UPDATE_CONSUMER_OFFSET: resources(group("consumerGroup", optional=True), topic("topic", SUB, optional=True)),
    _Code.UPDATE_AND_CREATE_TOPIC: _ADMIN,
    _Code.UPDATE_BROKER_CONFIG: _ADMIN,
    _Code.DELETE_TOPIC_IN_BROKER: _ADMIN,
    _Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _ADMIN,
    _Code.DELETE_SUBSCRIPTIONGROUP: _ADMIN,
}

_PULL = resources(topic("topic", SUB), group("consumerGroup"))
_OFFSET = resources(group("consumerGroup"), topic("topic", SUB))
_QUEUE = resources(topic("topic", ANY))
_SEND_V2 = resources(sent("b", "a", strict=True))
_OF_CLIENTS: Mapping[int, Rule] = {
    _Code.SEND_MESSAGE: resources(sent("topic", "producerGroup", strict=True)),
    _Code.SEND_MESSAGE_V2: _SEND_V2,
    _Code.SEND_BATCH_MESSAGE: _SEND_V2,
    _Code.SEND_REPLY_MESSAGE: resources(sent("topic", "producerGroup", strict=True)),
    _Code.SEND_REPLY_MESSAGE_V2: _SEND_V2,
    _Code.CONSUMER_SEND_MSG_BACK: resources(group("group"), topic("originTopic", SUB, optional=True), some_topic(SUB)),
    _Code.END_TRANSACTION: resources(some_topic(PUB)),
    _Code.PULL_MESSAGE: _PULL,
    _Code.LITE_PULL_MESSAGE: _PULL,
    _Code.QUERY_MESSAGE: resources(topic("topic", SUB)),
    _Code.VIEW_MESSAGE_BY_ID: resources(some_topic(SUB)),
    _Code.HEART_BEAT: resources(_HEARTBEAT),
    _Code.CHECK_CLIENT_CONFIG: resources(_CHECKED),
    _Code.UNREGISTER_CLIENT: resources(group("consumerGroup", optional=True)),
    _Code.GET_CONSUMER_LIST_BY_GROUP: resources(group("consumerGroup")),
    _Code.QUERY_CONSUMER_OFFSET: _OFFSET,
    _Code.UPDATE_CONSUMER_OFFSET: _OFFSET,
    _Code.LOCK_BATCH_MQ: resources(_LOCKED),
    _Code.UNLOCK_BATCH_MQ: resources(_LOCKED),
    _Code.SEARCH_OFFSET_BY_TIMESTAMP: _QUEUE,
    _Code.GET_MAX_OFFSET: _QUEUE,
    _Code.GET_MIN_OFFSET: _QUEUE,
    _Code.GET_EARLIEST_MSG_STORETIME: _QUEUE,
    _Code.GET_TOPIC_STATS_INFO: _QUEUE,
    _Code.GET_ROUTEINFO_BY_TOPIC: resources(topic("topic", ANY, free=_OF_EVERYBODY)),
}
_OF_BROKERS = (
    *(_Code.GET_ALL_TOPIC_CONFIG, _Code.GET_BROKER_CONFIG, _Code.GET_ALL_CONSUMER_OFFSET, _Code.GET_ALL_DELAY_OFFSET),
    *(_Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _Code.GET_ALL_CONSUMER_FILTER, _Code.GET_REPLICATION_VERSION),
    *(_Code.GET_BROKER_HA_STATUS, _Code.REGISTER_BROKER, _Code.UNREGISTER_BROKER, _Code.QUERY_DATA_VERSION),
    *(_Code.GET_BROKER_CLUSTER_INFO, _Code.GET_BROKER_RUNTIME_INFO),
)
_OF_ADMINISTRATORS = (
    *(_Code.UPDATE_AND_CREATE_TOPIC, _Code.GET_TOPIC_CONFIG, _Code.DELETE_TOPIC_IN_BROKER),
    *(_Code.QUERY_TOPIC_CONSUME_BY_WHO, _Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _Code.CLEAN_UNUSED_TOPIC),
    *(_Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _Code.GET_SUBSCRIPTIONGROUP_CONFIG, _Code.DELETE_SUBSCRIPTIONGROUP),
    *(_Code.GET_CONSUMER_CONNECTION_LIST, _Code.GET_PRODUCER_CONNECTION_LIST, _Code.GET_ALL_PRODUCER_INFO),
    *(_Code.GET_CONSUME_STATS, _Code.GET_BROKER_CONSUME_STATS, _Code.QUERY_CONSUME_TIME_SPAN),
    *(_Code.QUERY_CONSUME_QUEUE, _Code.QUERY_CORRECTION_OFFSET, _Code.CLONE_GROUP_OFFSET),
    *(_Code.INVOKE_BROKER_TO_RESET_OFFSET, _Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS),
    *(_Code.GET_CONSUMER_RUNNING_INFO, _Code.CONSUME_MESSAGE_DIRECTLY, _Code.UPDATE_BROKER_CONFIG),
    *(_Code.VIEW_BROKER_STATS_DATA, _Code.CLEAN_EXPIRED_CONSUMEQUEUE),
    *(_Code.DELETE_EXPIRED_COMMITLOG, _Code.RESUME_CHECK_HALF_MESSAGE, _Code.UPDATE_AND_CREATE_ACL_CONFIG),
    *(_Code.DELETE_ACL_CONFIG, _Code.GET_BROKER_CLUSTER_ACL_INFO, _Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG),
    *(_Code.GET_BROKER_CLUSTER_ACL_CONFIG, _Code.PUT_KV_CONFIG, _Code.GET_KV_CONFIG, _Code.DELETE_KV_CONFIG),
    *(_Code.GET_KVLIST_BY_NAMESPACE, _Code.WIPE_WRITE_PERM_OF_BROKER, _Code.ADD_WRITE_PERM_OF_BROKER),
    *(_Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, _Code.DELETE_TOPIC_IN_NAMESRV, _Code.GET_TOPICS_BY_CLUSTER),
    *(_Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, _Code.GET_UNIT_TOPIC_LIST, _Code.GET_HAS_UNIT_SUB_TOPIC_LIST),
    *(_Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, _Code.UPDATE_NAMESRV_CONFIG, _Code.GET_NAMESRV_CONFIG),
)
STRICT: Mapping[int, Rule] = {
    **_OF_CLIENTS,
    **dict.fromkeys(_OF_BROKERS, _BROKER),
    **dict.fromkeys(_OF_ADMINISTRATORS, _ADMIN),
}
CHECKED_WHEN_READ: Mapping[int, int] = {
    _Code.CONSUMER_SEND_MSG_BACK: SUB,
    _Code.VIEW_MESSAGE_BY_ID: SUB,
    _Code.END_TRANSACTION: PUB,
}
"""Codes that name a message by its place, with the permission for its topic."""
NAMED_IN_BODIES = frozenset({_Code.HEART_BEAT, _Code.CHECK_CLIENT_CONFIG, _Code.LOCK_BATCH_MQ, _Code.UNLOCK_BATCH_MQ})
"""Codes whose rules read the body, which takes as long as it is large."""
SIGNATURE_ONLY = Rule()
