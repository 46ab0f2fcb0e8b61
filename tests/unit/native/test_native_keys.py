"""Hashes, properties and message ids in C: golden values of a Java broker."""

import pytest

from tests.support import core_formats as core
from tests.support.cases import cases
from tests.support.java_hashes import JAVA_HASHES


@cases("text, value", JAVA_HASHES)
def test_string_hash(text: str, value: int) -> None:
    """Holds: trap, the hash of a tag is Java's."""
    assert core.string_hash(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "units"),
    [
        (b"\xff", 1),
        (b"\xe6\xa0", 1),  # an unfinished character is one
        (b"\xe6\xa0a", 2),
        (b"\xed\xa0\x80", 3),  # a surrogate is three that are wrong
        (b"\xf4\x90\x80\x80", 4),
        (b"\xc0\xaf", 2),
        (b"\xf0\x9d\x84", 1),
    ],
)
def test_malformed_sequences_count_as_replacement_characters(text: bytes, units: int) -> None:
    expected = text.decode("utf-8", "replace")
    assert expected.count("\ufffd") == units - text.count(b"a")
    assert core.string_hash(text) == core.string_hash(expected.encode())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("TopicTest#k1", 2746024),
        ("TopicTest#order-1", 1829193424),
        ("TopicTest#0A00000100002A9F00000000000000AA", 903739184),
        ("TopicTest#tbaekxa", 0),
        ("订单#号码", 711294598),
    ],
)
def test_index_hash(key: str, value: int) -> None:
    assert core.index_hash(key.encode()) == value


@pytest.mark.parametrize(
    ("key", "slot_at"),
    [
        ("TopicTest#k1", 10984136),
        ("TopicTest#order-1", 16773736),
        ("TopicTest#0A00000100002A9F00000000000000AA", 14956776),
        ("TopicTest#tbaekxa", 40),
        ("订单#号码", 5178432),
    ],
)
def test_slot_of_a_key(key: str, slot_at: int) -> None:
    """In a file of the default 5,000,000 slots, behind 40 bytes of header.
    Holds: store, index files with header, slots and chains."""
    assert 40 + 4 * (core.index_hash(key.encode()) % 5_000_000) == slot_at


@cases(
    "properties, name, value",
    [
        (b"KEYS\x01k1 k2\x02TAGS\x01TagA", b"TAGS", b"TagA"),
        (b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02", b"TAGS", b"TagA"),
        (b"KEYS\x01k1 k2\x02TAGS\x01TagA", b"KEYS", b"k1 k2"),
        (b"A\x011\x02A\x012", b"A", b"2"),  # the last of several wins
        (b"A\x011\x02A\x01", b"A", b"1"),  # but an empty one is none
        (b"A\x011\x012", b"A", b"1\x012"),
        (b"A\x01", b"A", None),
        (b"A", b"A", None),
        (b"\x01x", b"", None),
        (b"AB\x01x", b"A", None),
        (b"A\x01x", b"AB", None),
        (b"A\x01B\x01x", b"A\x01B", None),
        (b"", b"A", None),
        (b"\x02\x02A\x01x\x02\x02", b"A", b"x"),
    ],
)
def test_property_find(properties: bytes, name: bytes, value: bytes | None) -> None:
    assert core.find_property(properties, name) == value


@pytest.mark.parametrize(
    ("address", "port", "phy_offset", "message_id"),
    [
        ("10.0.0.1", 10911, 1073741824, "0A00000100002A9F0000000040000000"),
        ("127.0.0.1", 31911, 1321, "7F00000100007CA70000000000000529"),
        ("2001:db8::2", 10911, 1073741824, "20010DB800000000000000000000000200002A9F0000000040000000"),
    ],
)
def test_message_id(address: str, port: int, phy_offset: int, message_id: str) -> None:
    assert core.encode_offset_message_id((address, port), phy_offset) == message_id
