"""Records: golden images of Java brokers, every truncation, every single damage."""

import attrs
import pytest

from rocketpy.errors import MessageInvalid, RecordCorrupt
from rocketpy.native import Native
from rocketpy.native.abc import (
    BLANK_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    Host,
    NoRecord,
    Record,
    RecordView,
    Status,
)

IPV4_IMAGE = bytes.fromhex(
    "000000b2 daa320a7 02879f27 00000003 00000007 0000000000000005 0000000040000000 00000000 0000018bcfe56800"
    "c0a8010a 0000c350 0000018bcfe5687b 0a000001 00002a9f 00000000 0000000000000000"
    "0000000e 68656c6c6f20726f636b65747079 09 546f70696354657374 0040"
    "4b455953016f726465722d3102554e49515f4b455901304130303030303130303030324139463030303030303030303030303030414102"
    "54414753 01 54616741"
)
IPV4 = Record(
    topic=b"TopicTest",
    body=b"hello rocketpy",
    properties=b"KEYS\x01order-1\x02UNIQ_KEY\x010A00000100002A9F00000000000000AA\x02TAGS\x01TagA",
    queue_id=3,
    flag=7,
    queue_offset=5,
    phy_offset=1073741824,
    born_timestamp_ms=1700000000000,
    born_host=Host(bytes([192, 168, 1, 10]), 50000),
    store_timestamp_ms=1700000000123,
    store_host=Host(bytes([10, 0, 0, 1]), 10911),
)
IPV6_IMAGE = bytes.fromhex(
    "00000074 daa320a7 00000000 00000000 00000000 0000000000000000 0000000000000000 00000030 0000018bcfe56800"
    "20010db8000000000000000000000001 0000c350 0000018bcfe5687b 00000000000000000000000000000001 00002a9f"
    "00000000 0000000000000000 00000000 01 54 0000"
)
IPV6 = Record(
    topic=b"T",
    body=b"",
    born_timestamp_ms=1700000000000,
    born_host=Host(bytes.fromhex("20010db8000000000000000000000001"), 50000),
    store_timestamp_ms=1700000000123,
    store_host=Host(bytes(15) + b"\x01", 10911),
)
JAVA_IMAGE = bytes.fromhex(  # written by a Java broker
    "000000b7 daa320a7 3610a686 00000000 00000000 0000000000000000 0000000000000000 00000000"
    "000001a1f7daf2b1 7f000001 0000a104 000001a1f7daf2d3 7f000001 00007ca7 00000000 0000000000000000"
    "00000005 68656c6c6f 02 5431 0055"
    "4b45595301 6b31206b3202 554e49515f4b455901 374630303030303130303030303030303030303030303030303030304141414102"
    "434c555354455201 44656661756c74436c757374657202 5441475301 54616741"
)
BODY_START = 88


def decode(native: Native, image: bytes) -> RecordView | NoRecord:
    return native.record_decode(image, check_crc=True, phy_offset=4096)


def as_record(view: RecordView) -> Record:
    """What would encode to it again."""
    return Record(**{field.name: getattr(view, field.name, b"") for field in attrs.fields(Record)})


@pytest.mark.parametrize(("record", "image"), [(IPV4, IPV4_IMAGE), (IPV6, IPV6_IMAGE)])
def test_golden_image(native: Native, record: Record, image: bytes) -> None:
    assert native.record_encode(record) == image
    assert native.record_size(record) == len(image)


def test_image_of_the_java_broker_round_trips(native: Native) -> None:
    view = decode(native, JAVA_IMAGE)
    assert isinstance(view, RecordView)
    assert (view.topic, view.body, view.store_host) == (b"T1", b"hello", Host(b"\x7f\x00\x00\x01", 31911))
    assert native.record_encode(as_record(view)) == JAVA_IMAGE


def test_every_field_is_read(native: Native) -> None:
    record = attrs.evolve(
        IPV6,
        queue_id=-1,
        flag=-2,
        queue_offset=1 << 63,
        phy_offset=(1 << 64) - 1,
        sys_flag=-1,
        reconsume_times=16,
        prepared_transaction_offset=-5,
        born_host=IPV4.born_host,
    )
    view = decode(native, native.record_encode(record))
    assert isinstance(view, RecordView)
    assert as_record(view) == attrs.evolve(record, sys_flag=~0x10)  # the born host is IPv4: its bit is cleared


def test_bytes_behind_the_record_do_not_matter(native: Native) -> None:
    assert decode(native, IPV4_IMAGE + b"\xff" * 9) == decode(native, IPV4_IMAGE)


@pytest.mark.parametrize("image", [IPV4_IMAGE, IPV6_IMAGE])
def test_truncation_is_told_from_damage(native: Native, image: bytes) -> None:
    for size in range(len(image)):
        assert decode(native, image[:size]) == NoRecord(Status.INCOMPLETE, len(image) if size >= 8 else 0)


def test_damaged_sizes_are_found(native: Native) -> None:
    """Each byte of the total size, magic, CRC, body, and inner lengths."""
    lengths = {84, 85, 86, 87, BODY_START + 14, BODY_START + 24, BODY_START + 25}
    for position in {*range(12), *range(BODY_START, BODY_START + 14), *lengths}:
        image = bytearray(IPV4_IMAGE)
        image[position] ^= 0x81
        try:
            outcome = decode(native, bytes(image))
        except RecordCorrupt as exc:
            assert exc.phy_offset == 4096
        else:  # a size may also point past the end
            assert position < 4, position
            assert isinstance(outcome, NoRecord)
            assert outcome.status is Status.INCOMPLETE


def test_crc_is_only_looked_at_when_asked(native: Native) -> None:
    image = IPV4_IMAGE.replace(b"hello", b"jello")
    assert isinstance(native.record_decode(image, check_crc=False), RecordView)
    with pytest.raises(RecordCorrupt):
        decode(native, image)


def test_crc_of_an_empty_body_is_never_looked_at(native: Native) -> None:
    image = IPV6_IMAGE[:8] + b"\x12\x34\x56\x78" + IPV6_IMAGE[12:]
    assert isinstance(decode(native, image), RecordView)


def test_end_of_a_file(native: Native) -> None:
    blank = bytes.fromhex("0000000c cbd43194 00000000")
    assert decode(native, blank) == NoRecord(Status.END_OF_FILE, 12)
    assert decode(native, bytes(64)) == NoRecord(Status.EMPTY, 0)
    assert decode(native, blank[:10]) == NoRecord(Status.INCOMPLETE, 12)
    with pytest.raises(RecordCorrupt):
        decode(native, (7).to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True))


def test_second_version_has_a_longer_topic_length(native: Native) -> None:
    magic = MESSAGE_MAGIC_CODE_V2.to_bytes(4, "big", signed=True)
    topic_at = BODY_START + 14
    image = b"\x00\x00\x00\xb3" + magic + IPV4_IMAGE[8:topic_at] + b"\x00" + IPV4_IMAGE[topic_at:]
    view = decode(native, image)
    assert isinstance(view, RecordView)
    assert (view.magic, view.topic, view.properties) == (MESSAGE_MAGIC_CODE_V2, IPV4.topic, IPV4.properties)


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
def test_properties_are_joined_by_one_separator(native: Native, properties: bytes, tail: bytes, stored: bytes) -> None:
    record = attrs.evolve(IPV4, properties=properties, properties_tail=tail)
    view = decode(native, native.record_encode(record))
    assert isinstance(view, RecordView)
    assert view.properties == stored


@pytest.mark.parametrize(
    ("properties", "size", "stored"),
    [
        (b"TAGS\x01T1", 132, b"TAGS\x01T1\x02CLUSTER\x01DefaultCluster"),
        (b"", 124, b"CLUSTER\x01DefaultCluster"),
    ],
)
def test_entries_of_a_batch_as_they_are_stored(native: Native, properties: bytes, size: int, stored: bytes) -> None:
    """The batch of 15.5 with the batch property CLUSTER."""
    tail = b"CLUSTER\x01DefaultCluster"
    record = Record(
        topic=b"TopicTest",
        body=b"b1",
        properties=properties,
        properties_tail=tail,
        born_host=IPV4.born_host,
        store_host=IPV4.store_host,
    )
    image = native.record_encode(record)
    view = decode(native, image)
    assert len(image) == native.record_size(record) == size
    assert isinstance(view, RecordView) and view.properties == stored


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({"topic": b"t" * 127}, True),
        ({"topic": b"t" * 128}, False),
        ({"properties": b"p" * 32767}, True),
        ({"properties": b"p" * 32768}, False),
        ({"properties": b"p" * 32000, "properties_tail": b"q" * 766}, True),  # with the separator: 32767
        ({"properties": b"p" * 32000, "properties_tail": b"q" * 767}, False),
    ],
)
def test_limits_of_the_format(native: Native, changes: dict[str, bytes], fits: bool) -> None:
    record = attrs.evolve(IPV4, **changes)
    assert (native.record_size(record) > 0) is fits
    if fits:
        assert isinstance(decode(native, native.record_encode(record)), RecordView)
    else:
        with pytest.raises(MessageInvalid):
            native.record_encode(record)
