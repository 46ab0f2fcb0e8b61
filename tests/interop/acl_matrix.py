"""Accounts, resources and request codes in all combinations, as requests whose decision two servers can be asked for.

No request changes anything if it is allowed: each lacks a field without which no handler works.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from rocketpy.acl.document import write_document
from rocketpy.codes import RequestCode
from rocketpy.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.signature import Credentials, sign

WORDS = (None, "DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB", "ANY", "nonsense")
ENTRIES = ("deny=DENY", "pub=PUB", "sub=SUB", "both=PUB|SUB", "any=ANY", " blank = PUB ", "twice=PUB", "twice=SUB")
NAMES = ("deny", "pub", "sub", "both", "any", "blank", "twice", "other")
TOPICS = (*NAMES, "%RETRY%sub", "%RETRY%deny", "%RETRY%other", "%DLQ%sub", "RMQ_SYS_TRACE_TOPIC", "TBW102", "%")
WHITE_OF_ALL, WHITE_OF_ONE = "127.0.1.*", "127.0.2.{1,2}"
NEAR, WHITE, OWN_WHITE, OWN_NEAR = "127.0.0.1", "127.0.1.77", "127.0.2.2", "127.0.2.3"
HOSTS = (NEAR, WHITE, OWN_WHITE, OWN_NEAR)
SECRET = "matrix-secret-ä"
SILENT = frozenset(  # codes that the official broker does not answer, or whose success would change something
    {RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG, RequestCode.CLEAN_UNUSED_TOPIC}
)

Build = Callable[[str, str], RemotingCommand]


def account(key: str, **members: Any) -> dict[str, Any]:
    given = {name: value for name, value in members.items() if value is not None}
    return {"accessKey": key, "secretKey": SECRET} | given


def accounts() -> list[dict[str, Any]]:
    """Every combination of role, defaults and entries, and one account with a white list."""
    found = [account("white-account", whiteRemoteAddress=WHITE_OF_ONE)]
    with_entries = ((), ("topicPerms",), ("groupPerms",), ("topicPerms", "groupPerms"))
    combinations = itertools.product((False, True), WORDS, WORDS, with_entries)
    for number, (is_admin, topics, groups, keys) in enumerate(combinations):
        members = {"defaultTopicPerm": topics, "defaultGroupPerm": groups} | {key: list(ENTRIES) for key in keys}
        found.append(account(f"account-{number:04}", admin=is_admin, **members))
    return found


def file_of_accounts() -> bytes:
    return write_document({"globalWhiteRemoteAddresses": [WHITE_OF_ALL], "accounts": accounts()})


def _fields(code: int, topic_name: str | None, group_name: str | None) -> Build:
    def build(topic: str, group: str) -> RemotingCommand:
        named = {topic_name: topic, group_name: group}
        return RemotingCommand.request(code, ext_fields={name: value for name, value in named.items() if name})

    return build


def _heartbeat(topic: str, group: str) -> RemotingCommand:
    first = ConsumerData(group_name=group, subscription_data_set=[SubscriptionData(topic=topic)])
    second = ConsumerData(group_name="sub", subscription_data_set=[SubscriptionData(topic="sub")])
    beat = HeartbeatData(client_id="matrix", producer_data_set=[ProducerData(group_name="p")])
    beat.consumer_data_set = [first, second]
    return RemotingCommand.request(RequestCode.HEART_BEAT, body=beat.encode(), ext_fields={})


CODE = RequestCode
BUILDERS: Sequence[Build] = (
    _fields(CODE.SEND_MESSAGE, "topic", "group"),
    _fields(CODE.SEND_MESSAGE, "topic", "producerGroup"),
    _fields(CODE.SEND_MESSAGE_V2, "b", "a"),
    _fields(CODE.SEND_MESSAGE_V2, "b", None),
    _fields(CODE.SEND_BATCH_MESSAGE, "b", "a"),
    _fields(CODE.CONSUMER_SEND_MSG_BACK, "originTopic", "group"),
    _fields(CODE.PULL_MESSAGE, "topic", "consumerGroup"),
    _fields(CODE.PULL_MESSAGE, "topic", None),
    _fields(CODE.LITE_PULL_MESSAGE, "topic", "consumerGroup"),
    _fields(CODE.QUERY_MESSAGE, "topic", None),
    _heartbeat,
    _fields(CODE.UNREGISTER_CLIENT, None, "consumerGroup"),
    _fields(CODE.GET_CONSUMER_LIST_BY_GROUP, None, "consumerGroup"),
    _fields(CODE.UPDATE_CONSUMER_OFFSET, "topic", "consumerGroup"),
    _fields(CODE.UPDATE_CONSUMER_OFFSET, None, "consumerGroup"),
    _fields(CODE.QUERY_CONSUMER_OFFSET, "topic", "consumerGroup"),
    _fields(CODE.END_TRANSACTION, "topic", "producerGroup"),
    _fields(CODE.SEND_REPLY_MESSAGE_V2, "b", "a"),
)
OTHERS = [_fields(code, None, None) for code in CODE if code not in SILENT and code != CODE.HEART_BEAT]


@attrs.frozen
class Case:
    """A request from an address."""

    host: str
    request: RemotingCommand


def permissions(count: int | None, rng: random.Random) -> Iterator[Case]:
    """Signed requests of every account for every resource; a sample of them, if there is a `count`."""
    keys = [one["accessKey"] for one in accounts()]
    axes: tuple[Sequence[Any], ...] = (keys, BUILDERS, TOPICS, NAMES)
    sample = (tuple(map(rng.choice, axes)) for _ in range(count or 0))
    chosen = itertools.product(*axes) if count is None else sample
    for key, build, topic, group in chosen:
        yield signed(build(topic, group), key, rng)


def roles(rng: random.Random) -> Iterator[Case]:
    """Every code, of each kind of account."""
    for one, build in itertools.product(accounts()[::37], OTHERS):
        yield signed(build("", ""), one["accessKey"], rng)


def signed(request: RemotingCommand, key: str, rng: random.Random, host: str = NEAR) -> Case:
    request.serialize_type = rng.choice(list(SerializeType)) if request.code < 1 << 15 else SerializeType.JSON
    request.add_ext_field("n", str(rng.randrange(10**6)))
    sign(request, Credentials(key, SECRET))
    return Case(host, request)


def identities(rng: random.Random) -> Iterator[Case]:
    """Wrong and missing keys and signatures, from every address."""
    for host, build, key in itertools.product(HOSTS, BUILDERS, ("white-account", "account-0007", "nobody-knows")):
        for topic, spoil in itertools.product(("sub", "RMQ_SYS_TRACE_TOPIC"), SPOILERS):
            case = signed(build(topic, "sub"), key, rng, host)
            spoil(case.request)
            yield case


def _without(*names: str) -> Callable[[RemotingCommand], None]:
    def spoil(request: RemotingCommand) -> None:
        for name in names:
            (request.ext_fields or {}).pop(name, None)

    return spoil


def _with(name: str, value: str) -> Callable[[RemotingCommand], None]:
    return lambda request: request.add_ext_field(name, value)


def _other_body(request: RemotingCommand) -> None:
    request.body = HeartbeatData(client_id="another").encode()


SPOILERS: Sequence[Callable[[RemotingCommand], None]] = (
    lambda request: None,
    _without("AccessKey"),
    _without("Signature"),
    _without("AccessKey", "Signature"),
    _with("Signature", "AAAAAAAAAAAAAAAAAAAAAAAAAAA="),
    _with("Signature", "no base64: ä"),
    _with("AccessKey", "account-0008"),
    _with("n", "another"),
    _with("_UNIQUE_KEY_QUERY", "true"),
    _with("added", "x"),
    _other_body,
)
