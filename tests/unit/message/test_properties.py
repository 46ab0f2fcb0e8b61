"""The property string: separators, malformed pieces, and the byte-level helpers."""

import pytest

from rocketpy.errors import MessageInvalid
from rocketpy.message.properties import (
    decode_properties,
    encode_properties,
    find_property,
    join_properties,
    without_property,
)


def test_written_without_trailing_separator() -> None:
    assert encode_properties({"TAGS": "TagA", "KEYS": "k"}) == "TAGS\x01TagA\x02KEYS\x01k"
    assert encode_properties({}) == ""


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
        ("a\x01\x02b\x01c", {"b": "c"}),
        ("\x01b\x02nothing\x02\x02", {}),
        ("a\x01b\x01c", {"a": "b\x01c"}),
    ],
)
def test_read_as_java_reads(text: str, properties: dict[str, str]) -> None:
    assert decode_properties(text) == properties
    for name, value in properties.items():
        assert find_property(text.encode(), name.encode()) == value.encode()
    assert find_property(text.encode(), b"zz") is None


@pytest.mark.parametrize("properties", [{"": "v"}, {"a\x01": "v"}, {"a": "v\x02"}])
def test_separators_do_not_get_in(properties: dict[str, str]) -> None:
    with pytest.raises(MessageInvalid):
        encode_properties(properties)


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        (b"", b"", b""),
        (b"a\x01b", b"", b"a\x01b"),
        (b"", b"c\x01d", b"c\x01d"),
        (b"a\x01b", b"c\x01d", b"a\x01b\x02c\x01d"),
        (b"a\x01b\x02", b"c\x01d", b"a\x01b\x02c\x01d"),
    ],
)
def test_join(first: bytes, second: bytes, joined: bytes) -> None:
    assert join_properties(first, second) == joined


def test_without_property_leaves_the_rest_alone() -> None:
    assert without_property(b"a\x01b\x02WAIT\x01true\x02WAITER\x01x", b"WAIT") == b"a\x01b\x02WAITER\x01x"
    assert without_property(b"WAIT\x01true", b"WAIT") == b""
    assert without_property(b"a\x01b\x02", b"WAIT") == b"a\x01b\x02"
