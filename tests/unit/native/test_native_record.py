"""Records in C: golden images of Java brokers, every truncation, every single damage."""

from typing import Any

import attrs
import pytest

from rocketpy.errors import MessageInvalid, RecordCorrupt
from rocketpy.message.record import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, StoredRecord
from rocketpy.native import Status
from tests.support import core_formats as core
from tests.support.core_formats import encode_record, record_size, record_status

IPV4_IMAGE = bytes.fromhex(
    "000000b2 daa320a7 02879f27 00000003 00000007 0000000000000005 0000000040000000 00000000 0000018bcfe56800"
    "c0a8010a 0000c350 0000018bcfe5687b 0a000001 00002a9f 00000000 0000000000000000"
    "0000000e 68656c6c6f20726f636b65747079 09 546f70696354657374 0040"
    "4b455953016f726465722d3102554e49515f4b455901304130303030303130303030324139463030303030303030303030303030414102"
    "54414753 01 54616741"
)
IPV4: dict[str, Any] = {
    "topic": "TopicTest",
    "body": b"hello rocketpy",
    "properties": b"KEYS\x01order-1\x02UNIQ_KEY\x010A00000100002A9F00000000000000AA\x02TAGS\x01TagA",
    "queue_id": 3,
    "flag": 7,
    "queue_offset": 5,
    "phy_offset": 1073741824,
    "born_timestamp_ms": 1700000000000,
    "born_host": ("192.168.1.10", 50000),
    "store_timestamp_ms": 1700000000123,
    "store_host": ("10.0.0.1", 10911),
}
IPV6_IMAGE = bytes.fromhex(
    "00000074 daa320a7 00000000 00000000 00000000 0000000000000000 0000000000000000 00000030 0000018bcfe56800"
    "20010db8000000000000000000000001 0000c350 0000018bcfe5687b 00000000000000000000000000000001 00002a9f"
    "00000000 0000000000000000 00000000 01 54 0000"
)
IPV6: dict[str, Any] = {
    "topic": "T",
    "body": b"",
    "born_timestamp_ms": 1700000000000,
    "born_host": ("2001:db8::1", 50000),
    "store_timestamp_ms": 1700000000123,
    "store_host": ("::1", 10911),
}
JAVA_IMAGE = bytes.fromhex(  # written by a Java broker
    "000000b7 daa320a7 3610a686 00000000 00000000 0000000000000000 0000000000000000 00000000"
    "000001a1f7daf2b1 7f000001 0000a104 000001a1f7daf2d3 7f000001 00007ca7 00000000 0000000000000000"
    "00000005 68656c6c6f 02 5431 0055"
    "4b45595301 6b31206b3202 554e49515f4b455901 374630303030303130303030303030303030303030303030303030304141414102"
    "434c555354455201 44656661756c74436c757374657202 5441475301 54616741"
)
BODY_START = 88


def decode(image: bytes) -> StoredRecord | None:
    return core.decode_record(image, 4096, check_crc=True)


def fields_of(record: StoredRecord | None) -> dict[str, Any]:
    """Return the message that encodes to this record."""
    assert record is not None
    computed = {"size", "magic", "body_crc"}
    return {name: value for name, value in attrs.asdict(record, recurse=False).items() if name not in computed}


@pytest.mark.parametrize(("fields", "image"), [(IPV4, IPV4_IMAGE), (IPV6, IPV6_IMAGE)])
def test_golden_image(fields: dict[str, Any], image: bytes) -> None:
    assert encode_record(**fields) == image
    assert record_size(**fields) == len(image)


def test_image_of_the_java_broker_round_trips() -> None:
    record = decode(JAVA_IMAGE)
    assert record is not None
    assert (record.topic, record.body, record.store_host) == ("T1", b"hello", ("127.0.0.1", 31911))
    assert encode_record(**fields_of(record)) == JAVA_IMAGE


def test_every_field_is_read() -> None:
    fields = IPV6 | {
        "properties": b"",
        "queue_id": -1,
        "flag": -2,
        "queue_offset": 1 << 63,
        "phy_offset": (1 << 64) - 1,
        "sys_flag": -1,
        "reconsume_times": 16,
        "prepared_transaction_offset": -5,
        "born_host": IPV4["born_host"],
    }
    read = fields_of(decode(encode_record(**fields)))
    assert read == fields | {"sys_flag": ~0x10}  # the born host is IPv4: its bit is cleared


def test_bytes_behind_the_record_do_not_matter() -> None:
    assert decode(IPV4_IMAGE + b"\xff" * 9) == decode(IPV4_IMAGE)


@pytest.mark.parametrize("image", [IPV4_IMAGE, IPV6_IMAGE])
def test_truncation_is_told_from_damage(image: bytes) -> None:
    for size in range(len(image)):
        assert record_status(image[:size]) == (Status.INCOMPLETE, len(image) if size >= 8 else 0)


def test_damaged_sizes_are_found() -> None:
    """Each byte of the total size, magic, CRC, body, and inner lengths."""
    lengths = {84, 85, 86, 87, BODY_START + 14, BODY_START + 24, BODY_START + 25}
    for position in {*range(12), *range(BODY_START, BODY_START + 14), *lengths}:
        image = bytearray(IPV4_IMAGE)
        image[position] ^= 0x81
        status, _ = record_status(bytes(image))
        assert status is Status.CORRUPT or (position < 4 and status is Status.INCOMPLETE), position


def test_crc_is_only_looked_at_when_asked() -> None:
    image = IPV4_IMAGE.replace(b"hello", b"jello")
    assert core.decode_record(image) is not None
    with pytest.raises(RecordCorrupt):
        decode(image)


def test_crc_of_an_empty_body_is_never_looked_at() -> None:
    image = IPV6_IMAGE[:8] + b"\x12\x34\x56\x78" + IPV6_IMAGE[12:]
    assert decode(image) is not None


def test_end_of_a_file() -> None:
    blank = bytes.fromhex("0000000c cbd43194 00000000")
    assert record_status(blank) == (Status.END_OF_FILE, 12)
    assert record_status(bytes(64)) == (Status.EMPTY, 0)
    assert record_status(blank[:10]) == (Status.INCOMPLETE, 12)
    too_small = (7).to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True)
    assert record_status(too_small) == (Status.CORRUPT, 7)


def test_second_version_has_a_longer_topic_length() -> None:
    magic = MESSAGE_MAGIC_CODE_V2.to_bytes(4, "big", signed=True)
    topic_at = BODY_START + 14
    image = b"\x00\x00\x00\xb3" + magic + IPV4_IMAGE[8:topic_at] + b"\x00" + IPV4_IMAGE[topic_at:]
    record = decode(image)
    assert record is not None
    assert (record.magic, record.topic) == (MESSAGE_MAGIC_CODE_V2, IPV4["topic"])
    assert record.properties == IPV4["properties"]


@pytest.mark.parametrize(
    ("properties", "tail", "stored"),
    [
        (b"", b"", b""),
        (b"A\x011", b"", b"A\x011"),
        (b"", b"B\x012", b"B\x012"),
        (b"A\x011", b"B\x012", b"A\x011\x02B\x012"),
        (b"A\x011\x02", b"B\x012", b"A\x011\x02B\x012"),
    ],
)
def test_properties_are_joined_by_one_separator(properties: bytes, tail: bytes, stored: bytes) -> None:
    image = encode_record(**IPV4 | {"properties": properties, "properties_tail": tail})
    assert fields_of(decode(image))["properties"] == stored


@pytest.mark.parametrize(
    ("properties", "size", "stored"),
    [
        (b"TAGS\x01T1", 132, b"TAGS\x01T1\x02CLUSTER\x01DefaultCluster"),
        (b"", 124, b"CLUSTER\x01DefaultCluster"),
    ],
)
def test_entries_of_a_batch_as_they_are_stored(properties: bytes, size: int, stored: bytes) -> None:
    """With the batch property CLUSTER."""
    texts = {"body": b"b1", "properties": properties, "properties_tail": b"CLUSTER\x01DefaultCluster"}
    image = encode_record(**IPV4 | texts)
    assert len(image) == record_size(**IPV4 | texts) == size
    assert fields_of(decode(image))["properties"] == stored


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({"topic": "t" * 127}, True),
        ({"topic": "t" * 128}, False),
        ({"properties": b"p" * 32767}, True),
        ({"properties": b"p" * 32768}, False),
        ({"properties": b"p" * 32000, "properties_tail": b"q" * 766}, True),  # with the separator: 32767
        ({"properties": b"p" * 32000, "properties_tail": b"q" * 767}, False),
    ],
)
def test_limits_of_the_format(changes: dict[str, Any], fits: bool) -> None:
    fields = IPV4 | changes
    assert (record_size(**fields) > 0) is fits
    if fits:
        assert decode(encode_record(**fields)) is not None
    else:
        with pytest.raises(MessageInvalid):
            encode_record(**fields)
