"""Serializers: values go and come back, wrong bodies are errors, and a missing package is named with its extra."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from rocketpy.client.typed import JSON, AttrsSerializer, ProtobufSerializer, PydanticSerializer, Serializer
from rocketpy.errors import ClientError


@attrs.frozen
class Line:
    article: str
    count: int


@attrs.frozen
class Order:
    number: int
    lines: list[Line]
    at: datetime = datetime(2026, 1, 2, tzinfo=UTC)


ORDER = Order(7, [Line("pen", 2)])


def attrs_orders() -> Serializer[Order]:
    pytest.importorskip("cattrs")
    return AttrsSerializer(Order)


def pydantic_orders() -> Serializer[Any]:
    pydantic = pytest.importorskip("pydantic")
    return PydanticSerializer(pydantic.create_model("Order", number=(int, ...), lines=(list[str], ...)))


def protobuf_texts() -> Serializer[Any]:
    wrappers = pytest.importorskip("google.protobuf.wrappers_pb2")
    return ProtobufSerializer(wrappers.StringValue)


def test_json_is_short_and_keeps_text() -> None:
    assert JSON.encode({"a": ["ü", 1, None]}) == '{"a":["ü",1,null]}'.encode()
    assert JSON.decode(b' {"a": 1.5}') == {"a": 1.5}
    with pytest.raises(ValueError, match="not JSON compliant"):
        JSON.encode(float("nan"))


def test_attrs_classes_within_each_other() -> None:
    orders = attrs_orders()
    body = orders.encode(ORDER)
    assert b'"lines":[{"article":"pen","count":2}]' in body
    assert orders.decode(body) == ORDER


def test_models_of_pydantic() -> None:
    orders = pydantic_orders()
    value = orders.decode(b'{"number": "7", "lines": ["pen"]}')
    assert (value.number, value.lines) == (7, ["pen"])
    assert orders.encode(value) == b'{"number":7,"lines":["pen"]}'


def test_messages_of_protobuf() -> None:
    texts = protobuf_texts()
    kind = type(texts.decode(b""))
    assert texts.decode(texts.encode(kind(value="pen"))).value == "pen"
    assert texts.content_type == "application/x-protobuf"


@pytest.mark.parametrize("make", [attrs_orders, pydantic_orders, protobuf_texts])
def test_a_wrong_body_is_an_error(make: Any) -> None:
    with pytest.raises(Exception):  # noqa: B017 - each package has its own
        make().decode(b'{"number": "seven"')


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [(AttrsSerializer, "cattrs.preconf.json", "attrs"), (PydanticSerializer, "pydantic", "pydantic")],
)
def test_a_missing_package_is_named_with_its_extra(
    kind: Any, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ClientError, match=rf"{kind.__name__} needs .*pip install 'rocketpy-mq\[{extra}\]'"):
        kind(Order)
