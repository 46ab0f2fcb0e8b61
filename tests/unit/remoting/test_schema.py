"""Header schemas: the mapping between attrs values and extFields."""

import importlib
import inspect
import json
import pkgutil

import pytest

import rocketpy.remoting.headers
from rocketpy.codes import RequestCode
from rocketpy.errors import HeaderInvalid
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.admin import DeleteSubscriptionGroupRequestHeader
from rocketpy.remoting.headers.client import ResetOffsetRequestHeader, UnregisterClientRequestHeader
from rocketpy.remoting.headers.namesrv import GetRouteInfoRequestHeader
from rocketpy.remoting.headers.offset import QueueRequestHeader, UpdateConsumerOffsetRequestHeader
from rocketpy.remoting.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    read_send_header,
)
from rocketpy.remoting.schema import SELDOM, Header
from tests.support.cases import cases

ALL_HEADERS = [
    cls
    for module in pkgutil.iter_modules(rocketpy.remoting.headers.__path__)
    for _, cls in inspect.getmembers(
        importlib.import_module(f"rocketpy.remoting.headers.{module.name}"), inspect.isclass
    )
    if issubclass(cls, Header) and cls is not Header
]


def test_fields_are_spelled_as_java_fields() -> None:
    fields = ResetOffsetRequestHeader(topic="T", group="G", timestamp_ms=-1, is_force=True).to_ext_fields()
    assert fields == {"topic": "T", "group": "G", "timestamp": "-1", "isForce": "true"}
    assert UnregisterClientRequestHeader(client_id="c").to_ext_fields() == {"clientID": "c"}


def test_absent_optional_is_none_and_not_written() -> None:
    header = GetRouteInfoRequestHeader.from_ext_fields({"topic": "T", "unknown": "x"})
    assert header.accept_standard_json_only is None
    assert header.to_ext_fields() == {"topic": "T"}


@pytest.mark.parametrize("fields", [None, {}, {"topic": "T"}])
def test_missing_mandatory_field_is_named(fields: dict[str, str] | None) -> None:
    with pytest.raises(HeaderInvalid, match=r"topic|queueId"):
        QueueRequestHeader.from_ext_fields(fields)


@cases("text", ["", " 1", "1 ", "1.0", "1e3", "1_0", "2147483648", "-2147483649", "9" * 5000])
def test_java_int_rules_refuse(text: str) -> None:
    with pytest.raises(HeaderInvalid, match="queueId"):
        QueueRequestHeader.from_ext_fields({"topic": "T", "queueId": text})


@pytest.mark.parametrize(("text", "number"), [("+7", 7), ("-2147483648", -(1 << 31)), ("007", 7)])
def test_java_int_rules_accept(text: str, number: int) -> None:
    assert QueueRequestHeader.from_ext_fields({"topic": "T", "queueId": text}).queue_id == number


def test_longs_are_64_bit() -> None:
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "9223372036854775807"}
    assert UpdateConsumerOffsetRequestHeader.from_ext_fields(fields).commit_offset == (1 << 63) - 1
    with pytest.raises(HeaderInvalid, match="commitOffset"):
        UpdateConsumerOffsetRequestHeader.from_ext_fields(fields | {"commitOffset": "9223372036854775808"})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("1", False), ("yes", False)])
def test_java_boolean_rules(text: str, value: bool) -> None:
    fields = {"topic": "T", "group": "G", "isForce": text}
    assert ResetOffsetRequestHeader.from_ext_fields(fields).is_force is value


def test_name_of_5x_is_read_too() -> None:
    fields = {"groupName": "G", "cleanOffset": "true"}
    assert DeleteSubscriptionGroupRequestHeader.from_ext_fields(fields).remove_offset
    both = fields | {"removeOffset": "false"}
    assert not DeleteSubscriptionGroupRequestHeader.from_ext_fields(both).remove_offset


def test_send_header_is_read_by_code() -> None:
    header = SendMessageRequestHeader(producer_group="P", topic="T", queue_id=-1, batch=True, reconsume_times=2)
    long_names = RemotingCommand.request(RequestCode.SEND_MESSAGE, header)
    short_names = RemotingCommand.request(RequestCode.SEND_BATCH_MESSAGE, header.to_v2())
    assert short_names.ext_fields is not None
    assert (short_names.ext_fields["a"], short_names.ext_fields["m"], short_names.ext_fields["j"]) == ("P", "true", "2")
    assert "l" not in short_names.ext_fields
    assert read_send_header(long_names) == read_send_header(short_names) == header


def test_send_header_versions_have_the_same_fields_in_order() -> None:
    long_names, short_names = (
        [field.attribute for field, _ in cls.schema()] for cls in (SendMessageRequestHeader, SendMessageRequestHeaderV2)
    )
    assert long_names == short_names
    assert [field.wire for field, _ in SendMessageRequestHeaderV2.schema()] == list("abcdefghijklmn")


def test_a_header_is_written_as_its_fields_are() -> None:
    header = SendMessageRequestHeader(
        producer_group='a "\\', topic="Ω\ud800", queue_id=-1, properties="\x01", batch=True
    )
    as_it_is, looked_at = (RemotingCommand.request(RequestCode.SEND_MESSAGE, header, opaque) for opaque in (b"x", b"x"))
    assert looked_at.ext_fields == header.to_ext_fields() and looked_at == as_it_is
    as_it_is = RemotingCommand.request(RequestCode.SEND_MESSAGE, header, b"x")
    assert as_it_is.encode() == looked_at.encode()
    as_it_is.add_ext_field("more", "1")
    assert RemotingCommand.decode(as_it_is.encode()).ext_fields == {
        **header.to_ext_fields(),
        "topic": "Ω?",
        "more": "1",
    }


def test_ad_hoc_fields_stand_beside_the_header() -> None:
    header = SendMessageResponseHeader(msg_id="id", queue_id=0, queue_offset=5, region="DefaultRegion", trace_on=True)
    command = RemotingCommand.response(0, None, header, ext_fields={"extra": "1"})
    assert command.ext_fields == {
        "msgId": "id",
        "queueId": "0",
        "queueOffset": "5",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "extra": "1",
    }


@cases("cls", ALL_HEADERS)
def test_every_header_survives_the_wire(cls: type[Header]) -> None:
    """Each field gets a text of its type; what is written is read back equal, however often."""
    ext_fields = {}
    for field, _ in cls.schema():
        ext_fields[field.wire] = {bool: "true", str: 'a "text" \\ é \n'}.get(field.hint, "17")
    header = cls.from_ext_fields(ext_fields)
    assert header.to_ext_fields() == ext_fields
    written = json.dumps(ext_fields, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    assert [header.to_json() for _ in range(2 * SELDOM)] == [written] * (2 * SELDOM)
    assert cls.from_ext_fields(header.to_ext_fields()) == header


def test_there_is_a_header_for_each_family() -> None:
    assert len(ALL_HEADERS) > 45


def test_headers_are_values() -> None:
    one = QueueRequestHeader(topic="T", queue_id=1)
    assert one == QueueRequestHeader(topic="T", queue_id=1) != QueueRequestHeader(topic="T", queue_id=2)
    assert one != GetRouteInfoRequestHeader(topic="T") and one != ("T", 1)
    assert repr(one) == "QueueRequestHeader(topic='T', queue_id=1, broker_name=None)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
