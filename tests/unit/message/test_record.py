"""The stored record against bytes of real brokers and against damage."""

import pytest

from rocketpy.errors import MessageInvalid, RecordCorrupt
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import (
    MESSAGE_MAGIC_CODE_V2,
    RECORD_HEAD_MAX,
    body_crc,
    decode_record,
    decode_records,
    encode_blank,
    encode_record,
    store_timestamp_of,
)
from tests.support.cases import cases

IPV4_RECORD = bytes.fromhex(
    "000000b2daa320a702879f27000000030000000700000000000000050000000040000000000000000000018bcfe56800"
    "c0a8010a0000c3500000018bcfe5687b0a00000100002a9f000000000000000000000000"
    "0000000e68656c6c6f20726f636b65747079"
    "09546f70696354657374"
    "0040"
    "4b455953016f726465722d3102554e49515f4b4559013041303030303031303030303241394630303030303030303030"
    "303030304141025441475301546167"
    "41"
)
IPV6_RECORD = bytes.fromhex(
    "00000074daa320a70000000000000000000000000000000000000000000000000000000000000030"
    "0000018bcfe5680020010db80000000000000000000000010000c3500000018bcfe5687b"
    "0000000000000000000000000000000100002a9f"
    "000000000000000000000000"
    "00000000"
    "0154"
    "0000"
)
PULLED_RECORD = bytes.fromhex(
    "000000b7 daa320a7 3610a686 00000000 00000000 0000000000000000 0000000000000000 00000000"
    "000001a1f7daf2b1 7f000001 0000a104 000001a1f7daf2d3 7f000001 00007ca7 00000000 0000000000000000"
    "00000005 68656c6c6f 02 5431 0055"
    "4b45595301 6b31206b3202"
    "554e49515f4b455901 374630303030303130303030303030303030303030303030303030304141414102"
    "434c555354455201 44656661756c74436c757374657202"
    "5441475301 54616741"
)


def ipv4_record() -> bytes:
    return encode_record(
        topic="TopicTest",
        queue_id=3,
        flag=7,
        queue_offset=5,
        phy_offset=1073741824,
        born_timestamp_ms=1700000000000,
        born_host=("192.168.1.10", 50000),
        store_timestamp_ms=1700000000123,
        store_host=("10.0.0.1", 10911),
        body=b"hello rocketpy",
        properties=b"KEYS\x01order-1\x02UNIQ_KEY\x010A00000100002A9F00000000000000AA\x02TAGS\x01TagA",
    )


def test_ipv4_record_is_encoded_as_java_does() -> None:
    """Holds: store, fields of a record."""
    assert ipv4_record() == IPV4_RECORD


def test_minimal_ipv6_record_is_encoded_as_java_does() -> None:
    image = encode_record(
        topic="T",
        queue_id=0,
        queue_offset=0,
        phy_offset=0,
        body=b"",
        properties=b"",
        born_timestamp_ms=1700000000000,
        born_host=("2001:db8::1", 50000),
        store_timestamp_ms=1700000000123,
        store_host=("::1", 10911),
    )
    assert image == IPV6_RECORD
    record = decode_record(image, check_crc=True)
    assert record is not None
    assert (record.born_host, record.store_host) == (("2001:db8::1", 50000), ("::1", 10911))
    assert record.sys_flag == 0x30


def test_pulled_record_of_a_real_broker() -> None:
    record = decode_record(PULLED_RECORD, check_crc=True)
    assert record is not None
    assert (record.topic, record.body, record.body_crc) == ("T1", b"hello", 0x3610A686)
    assert (record.born_timestamp_ms, record.store_timestamp_ms) == (1795159683761, 1795159683795)
    assert (record.born_host, record.store_host) == (("127.0.0.1", 41220), ("127.0.0.1", 31911))
    assert decode_properties(record.properties.decode()) == {
        "KEYS": "k1 k2",
        "UNIQ_KEY": "7F00000100000000000000000000AAAA",
        "CLUSTER": "DefaultCluster",
        "TAGS": "TagA",
    }
    assert encode_offset_message_id(record.store_host, record.phy_offset) == "7F00000100007CA70000000000000000"


def test_the_store_timestamp_is_read_from_the_head_alone() -> None:
    assert store_timestamp_of(IPV4_RECORD[:64]) == store_timestamp_of(IPV4_RECORD) == 1700000000123
    assert store_timestamp_of(IPV6_RECORD[:RECORD_HEAD_MAX]) == 1700000000123
    v2 = IPV4_RECORD[:4] + bytes.fromhex("daa320ab") + IPV4_RECORD[8:]
    assert store_timestamp_of(v2) == 1700000000123


def test_no_store_timestamp_where_no_message_begins() -> None:
    assert store_timestamp_of(b"") is None
    assert store_timestamp_of(IPV4_RECORD[:63]) is None  # one byte short
    assert store_timestamp_of(IPV6_RECORD[: RECORD_HEAD_MAX - 1]) is None
    assert store_timestamp_of(bytes(RECORD_HEAD_MAX)) is None
    assert store_timestamp_of(IPV4_RECORD[:4] + bytes.fromhex("cbd43194") + IPV4_RECORD[8:]) is None  # filler


def test_v2_record_has_two_bytes_of_topic_length() -> None:
    v1 = decode_record(IPV4_RECORD)
    image = bytearray(IPV4_RECORD)
    image[0:8] = bytes.fromhex("000000b3daa320ab")
    image[102:103] = b"\0\x09"
    v2 = decode_record(bytes(image), check_crc=True)
    assert v1 is not None and v2 is not None
    assert (v2.magic, v2.topic, v2.properties) == (MESSAGE_MAGIC_CODE_V2, v1.topic, v1.properties)


@pytest.mark.parametrize(
    ("body", "crc"),
    [
        (b"", 0),
        (b"a", 1756872259),
        (b"123456789", 1274296614),
        (b"hello rocketpy", 42442535),
        ("第二条".encode(), 2110470348),
        (bytes(range(256)), 688229491),
        (bytes(1024), 1874177838),
    ],
)
def test_body_crc(body: bytes, crc: int) -> None:
    assert body_crc(body) == crc


def test_records_follow_each_other_until_the_end_of_the_file() -> None:
    image = IPV4_RECORD + IPV6_RECORD
    for end in (b"", bytes(100), encode_blank(12) + bytes(4)):
        assert [record.topic for record in decode_records(image + end)] == ["TopicTest", "T"]


def test_blank_is_the_filler_of_the_reference() -> None:
    assert encode_blank(12) == bytes.fromhex("0000000ccbd43194")


def test_records_before_damage_are_given() -> None:
    records = decode_records(IPV4_RECORD + b"\0\0\0\x7fgarbage!", 4096)
    assert next(records).topic == "TopicTest"
    with pytest.raises(RecordCorrupt, match=f"record at {4096 + len(IPV4_RECORD)}"):
        next(records)


def test_damaged_body_is_found_by_its_crc() -> None:
    image = bytearray(IPV4_RECORD)
    image[90] ^= 1
    assert decode_record(image) is not None
    with pytest.raises(RecordCorrupt, match="CRC"):
        decode_record(image, check_crc=True)


def test_crc_of_an_empty_body_is_not_looked_at() -> None:
    image = IPV6_RECORD[:8] + b"\x12\x34\x56\x78" + IPV6_RECORD[12:]
    record = decode_record(image, check_crc=True)
    assert record is not None and record.body_crc == 0x12345678


def test_filler_smaller_than_its_head_is_corrupt() -> None:
    with pytest.raises(RecordCorrupt, match="filler of 7 bytes"):
        decode_record(bytes.fromhex("00000007cbd43194"))


@cases("size", range(1, len(IPV4_RECORD)))
def test_truncated_record_is_corrupt(size: int) -> None:
    truncated = IPV4_RECORD[:size]
    if any(truncated):
        with pytest.raises(RecordCorrupt):
            decode_record(truncated)
    else:
        assert decode_record(truncated) is None


@pytest.mark.parametrize("offset", [0, 4, 36, 84, 102, 112])
def test_damaged_length_is_never_trusted(offset: int) -> None:
    for value in (0x00, 0x01, 0x7F, 0x80, 0xFF):
        image = bytearray(IPV4_RECORD + bytes(64))
        if image[offset] == value:
            continue
        image[offset] = value
        try:
            record = decode_record(image, check_crc=True)
        except RecordCorrupt:
            continue
        assert offset == 36 and record is not None and record.size == len(IPV4_RECORD)  # high byte of sys flag


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "t" * 128},
        {"properties": b"p" * 32768},
        {"queue_id": 1 << 31},
        {"born_host": ("example.org", 1)},
        {"store_host": ("10.0.0.1", 1 << 40)},
        {"phy_offset": 1 << 63},
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object]) -> None:
    fields: dict[str, object] = {
        "topic": "T",
        "queue_id": 0,
        "queue_offset": 0,
        "phy_offset": 0,
        "body": b"",
        "properties": b"",
        "born_timestamp_ms": 0,
        "born_host": ("10.0.0.1", 1),
        "store_timestamp_ms": 0,
        "store_host": ("10.0.0.1", 1),
    }
    with pytest.raises(MessageInvalid):
        encode_record(**(fields | change))  # type: ignore[arg-type]  # a table of wrong values
