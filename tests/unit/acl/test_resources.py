"""Which request codes have rules, and what they read of a request."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocketpy.acl.permissions import ANY, PUB, SUB
from rocketpy.acl.reference import GROUP, TOPIC, page, sample
from rocketpy.acl.resources import CHECKED_WHEN_READ, REFERENCE, STRICT, Access, FieldMissing, Need
from rocketpy.codes import RequestCode
from rocketpy.config import BrokerSettings, NamesrvSettings
from rocketpy.errors import BodyInvalid, RemoteProtocolError
from rocketpy.namesrv.kv_config import KVConfigManager
from rocketpy.namesrv.processor import NamesrvProcessor
from rocketpy.namesrv.route_info import RouteInfoManager
from rocketpy.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers import client, namesrv, offset, pull, send
from rocketpy.remoting.schema import Header
from tests.support.cases import cases
from tests.support.rules import hold

RETRY = f"%RETRY%{GROUP}"
MEMBER: list[Need] = [(RETRY, SUB), (TOPIC, SUB)]
SENDS = (10, 310, 320, 324, 325)


def needs(code: int, *, strict: bool = True, body: bytes | None = None, **fields: str) -> list[Need]:
    request = RemotingCommand.request(code, body=body, ext_fields=fields)
    return (STRICT if strict else REFERENCE)[code].needs(request)


def served() -> set[int]:
    """The codes of the pools of a broker."""
    pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    from rocketpy.reactor.pools import broker_pools

    return set(broker_pools(BrokerSettings()).codes)


def test_every_code_that_is_served_has_a_rule() -> None:
    """A new code needs a decision who may send it."""
    hold(sorted(RequestCode(code).name for code in served() - STRICT.keys()), "give the code a rule in STRICT")


def test_every_code_of_the_name_server_has_a_rule(tmp_path: Path) -> None:
    processor = NamesrvProcessor(NamesrvSettings(), RouteInfoManager(), KVConfigManager(tmp_path / "kv"), lambda: 0)
    codes = set(processor._methods)
    assert len(codes) > 15
    hold(sorted(RequestCode(code).name for code in codes - STRICT.keys()), "give the code a rule in STRICT")


def test_the_page_has_each_code_in_one_row() -> None:
    assert sorted(int(code) for code in re.findall(r"[A-Z]\w+ \((\d+)\)", page())) == sorted(STRICT)


def test_the_reference_has_five_codes_of_administrators() -> None:
    assert {int(code) for code, rule in REFERENCE.items() if rule.access is Access.ADMIN} == {17, 25, 200, 207, 215}


def test_strict_demands_whatever_the_reference_demands() -> None:
    for code, rule in REFERENCE.items():
        strict = STRICT[code]
        assert strict.access is rule.access
        assert set(rule.needs(sample(code))) <= set(strict.needs(sample(code))), code


@cases(
    "code, expected",
    [
        *((code, [(TOPIC, PUB)]) for code in SENDS),
        (11, [(TOPIC, SUB), (RETRY, SUB)]),
        (361, [(TOPIC, SUB), (RETRY, SUB)]),
        (12, [(TOPIC, SUB)]),
        (14, MEMBER),
        (15, MEMBER),
        *((code, [(TOPIC, ANY)]) for code in (29, 30, 31, 32, 105, 202)),
        (33, [(None, SUB)]),
        (34, MEMBER),
        (35, [(RETRY, SUB)]),
        (36, [(RETRY, SUB), (TOPIC, SUB), (None, SUB)]),
        (37, [(None, PUB)]),
        (38, [(RETRY, SUB)]),
        (41, MEMBER),
        (42, MEMBER),
        (46, MEMBER),
    ],
)
def test_what_clients_need(code: int, expected: list[Need]) -> None:
    """Holds: trap, access control checks few codes."""
    assert STRICT[code].needs(sample(code)) == expected


def test_all_other_codes_are_for_roles() -> None:
    of_clients = {code for code, rule in STRICT.items() if rule.access is Access.ANY}
    assert of_clients == {*SENDS, 11, 12, 14, 15, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41, 42, 46, 105, 202, 361}
    assert {code for code, rule in STRICT.items() if rule.access is Access.BROKER and code < 200} == {
        *(21, 26, 28, 43, 45, 103, 104, 106)
    }


@pytest.mark.parametrize("code", SENDS)
def test_a_send_to_a_retry_topic_is_for_members_of_its_group(code: int) -> None:
    """The reference looks at the group that the sender names, and a client of code 10 names none."""
    topic, group = ("b", "a") if code in (310, 320, 325) else ("topic", "producerGroup")
    fields = {topic: "%RETRY%theirs", group: "own"}
    assert needs(code, **fields) == [("%RETRY%theirs", SUB), ("%RETRY%own", SUB)]
    assert needs(code, **{topic: "%RETRY%theirs"}) == [("%RETRY%theirs", SUB)]
    if code in REFERENCE:
        assert needs(code, strict=False, **fields) == ([("%RETRY%own", SUB)] if code == 310 else [])


def test_every_subscription_of_a_heartbeat() -> None:
    consumers = [
        ConsumerData(group_name=f"g{n}", subscription_data_set=[SubscriptionData(topic=f"t{n}{m}") for m in range(2)])
        for n in range(2)
    ]
    beat = HeartbeatData(client_id="c", consumer_data_set=consumers, producer_data_set=[ProducerData(group_name="p")])
    found = needs(34, body=beat.encode())
    assert found == [(f"{name}", SUB) for n in range(2) for name in (f"%RETRY%g{n}", f"t{n}0", f"t{n}1")]
    assert needs(34, body=HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="p")]).encode()) == []


@pytest.mark.parametrize("topic", ["TBW102", "RMQ_SYS_TRACE_TOPIC"])
def test_every_producer_may_ask_for_the_route_of_these(topic: str) -> None:
    assert needs(105, topic=topic) == [] and needs(30, topic=topic) == [(topic, ANY)]


def test_what_is_not_named() -> None:
    """The reference asks for no permission then; STRICT refuses, whatever a handler might make of it."""
    for code, rule in STRICT.items():
        request = RemotingCommand.request(code, ext_fields={})
        if rule.access is Access.ANY and code not in (33, 35, 37):
            with pytest.raises((FieldMissing, BodyInvalid)):
                rule.needs(request)
        if code in REFERENCE and code != 34:
            assert REFERENCE[code].needs(request) == []
    assert needs(35) == [] and needs(36, group="g") == [("%RETRY%g", SUB), (None, SUB)]


@pytest.mark.parametrize("body", [None, b"", b"[]", b"x", b"{]", b"[" * 100_000, b" " * 3_000_000])
@pytest.mark.parametrize("code", [34, 41, 42, 46])
def test_bodies_that_cannot_be_read(code: int, body: bytes | None) -> None:
    with pytest.raises(RemoteProtocolError):
        needs(code, body=body)


def test_messages_that_are_named_by_place_are_checked_when_they_are_read() -> None:
    named = {code: dict(rule.needs(sample(code))).get(None) for code, rule in STRICT.items()}
    assert {code: permission for code, permission in named.items() if permission is not None} == CHECKED_WHEN_READ


def test_fields_are_those_that_handlers_read() -> None:
    """A handler that read a topic under another name could be told another topic."""
    headers: dict[int, type[Header]] = {
        10: send.SendMessageRequestHeader,
        310: send.SendMessageRequestHeaderV2,
        36: send.ConsumerSendMsgBackRequestHeader,
        11: pull.PullMessageRequestHeader,
        12: pull.QueryMessageRequestHeader,
        14: offset.QueryConsumerOffsetRequestHeader,
        15: offset.UpdateConsumerOffsetRequestHeader,
        29: offset.SearchOffsetRequestHeader,
        30: offset.QueueRequestHeader,
        35: client.UnregisterClientRequestHeader,
        38: client.GetConsumerListByGroupRequestHeader,
        105: namesrv.GetRouteInfoRequestHeader,
    }
    for code, header in headers.items():
        fields = {field.wire: field for field, _ in header.schema()}
        for name in sample(code).ext_fields or {}:
            if (code, name) != (10, "group"):  # of the reference's rule
                assert name in fields and not fields[name].aliases, (code, name)
