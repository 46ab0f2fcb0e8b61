"""The compiled formats of records agree with `rocketpy.message`, which says what a format means.

On whatever hypothesis can build, and on the same with bytes changed, cut off or added.
"""

import zlib
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.message import numbers, record, tags
from rocketpy.message.host import Host
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.properties import decode_properties, find_property, join_properties
from tests.support import core_formats as core
from tests.support.agreement import INT32, INT64, OFFSETS, TEXTS, agree, damaged, outcome, seeded

ADDRESSES = st.ip_addresses(v=4) | st.ip_addresses(v=6).filter(lambda address: address.ipv4_mapped is None)
HOSTS = st.tuples(ADDRESSES.map(str), st.integers(0, 65535))
PROPERTIES = st.lists(st.sampled_from([b"\x01", b"\x02", b"A", b"KEYS", b"TAGS", b"v", b"\xe6\xa0"])).map(b"".join)
RECORDS = st.fixed_dictionaries(
    {
        "topic": st.text(st.characters(codec="utf-8"), max_size=50),
        "body": st.binary(max_size=300),
        "properties": PROPERTIES,
        "queue_id": INT32,
        "flag": INT32,
        "queue_offset": OFFSETS,
        "phy_offset": OFFSETS,
        "sys_flag": INT32,
        "reconsume_times": INT32,
        "born_timestamp_ms": INT64,
        "born_host": HOSTS,
        "store_timestamp_ms": INT64,
        "store_host": HOSTS,
        "prepared_transaction_offset": INT64,
    }
)


# --- records ----------------------------------------------------------------------------------------------------------


@seeded
@given(st.binary(max_size=600), st.integers(0, (1 << 32) - 1))
def test_crc32(data: bytes, crc: int) -> None:
    assert core.crc32(data, crc) == zlib.crc32(data, crc)
    assert core.crc32(data) & 0x7FFFFFFF == record.body_crc(data)


@seeded
@given(RECORDS, PROPERTIES)
def test_record_encode(fields: dict[str, Any], tail: bytes) -> None:
    joined = fields | {"properties": join_properties(fields["properties"], tail)}
    image = agree(
        lambda: core.encode_record(**fields, properties_tail=tail),
        lambda: record.encode_record(**joined),
    )
    if isinstance(image, bytes):
        assert core.record_size(**joined) == len(image)
        agree_on_image(image, check_crc=True)


def agree_on_image(image: bytes, *, check_crc: bool) -> None:
    in_python = outcome(lambda: record.decode_record(image, check_crc=check_crc))
    if isinstance(in_python, record.StoredRecord):  # C reads 16 bits of a port, Python all 32 that are stored
        in_python = attrs.evolve(
            in_python, born_host=port_in_16_bits(in_python.born_host), store_host=port_in_16_bits(in_python.store_host)
        )
    assert outcome(lambda: core.decode_record(image, check_crc=check_crc)) == in_python


def port_in_16_bits(host: Host) -> Host:
    return host[0], host[1] & 0xFFFF


IMAGES = RECORDS.map(lambda fields: outcome(lambda: record.encode_record(**fields))).filter(
    lambda image: isinstance(image, bytes)
)


@seeded
@given(damaged(IMAGES), st.booleans())
def test_record_decode_of_damaged_images(image: bytes, check_crc: bool) -> None:
    agree_on_image(image, check_crc=check_crc)


@seeded
@given(st.integers(0, 40), st.binary(max_size=30))
def test_blanks_and_zeros(size: int, rest: bytes) -> None:
    """Fault: Python readers took a filler of less than 8 bytes for the end of a file."""
    blank = size.to_bytes(4, "big") + record.BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True)
    agree_on_image(blank + rest, check_crc=True)
    agree_on_image(bytes(size), check_crc=True)


@seeded
@given(RECORDS, st.binary(min_size=4, max_size=4))
def test_stored_crc(fields: dict[str, Any], crc: bytes) -> None:
    """Of an empty body it does not matter.
    Fault: Python readers called a message without a body damaged if its stored CRC was not 0."""
    for body in (fields["body"], b""):
        image = outcome(lambda body=body: record.encode_record(**fields | {"body": body}))
        if isinstance(image, bytes):
            agree_on_image(image[:8] + crc + image[12:], check_crc=True)


@seeded
@given(IMAGES)
def test_every_truncation_of_a_record(image: bytes) -> None:
    for size in range(0, len(image), 3):
        agree_on_image(image[:size], check_crc=True)


# --- hashes, properties, ids, numbers ---------------------------------------------------------------------------------


@seeded
@given(damaged(TEXTS.map(str.encode)))
def test_hashes(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    assert core.string_hash(raw) == tags.string_hash(text)
    assert core.index_hash(raw) == tags.index_hash(text)


@seeded
@given(PROPERTIES, PROPERTIES.filter(lambda name: b"\0" not in name) | st.sampled_from([b"A", b"KEYS", b"TAGS"]))
def test_find_property(properties: bytes, name: bytes) -> None:
    assert core.find_property(properties, name) == find_property(properties, name)


WORDS = st.text(st.sampled_from("ab "))


@seeded
@given(st.dictionaries(st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS"]), WORDS))
def test_index_keys(properties: dict[str, str]) -> None:
    encoded = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    assert core.index_keys("T", encoded.encode()) == tags.index_keys("T", decode_properties(encoded))
    assert core.lib.RP_INDEX_KEYS_MAX == tags.INDEX_KEYS_MAX  # C leaves the limit to dispatch


@seeded
@given(HOSTS, OFFSETS)
def test_offset_message_id(host: Host, phy_offset: int) -> None:
    assert core.encode_offset_message_id(host, phy_offset) == encode_offset_message_id(host, phy_offset)


@seeded
@given(damaged((INT64 | st.integers(-(1 << 70), 1 << 70)).map(lambda number: b"%d" % number)))
def test_parse_numbers(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    agree(lambda: core.parse_int(raw), lambda: numbers.parse_int(text))
    agree(lambda: core.parse_long(raw), lambda: numbers.parse_long(text))
