"""Message and MessageExt."""

import pytest

from rocketpy.errors import MessageInvalid
from rocketpy.message.compression import compress
from rocketpy.message.message import Message, MessageExt, decode_messages
from rocketpy.message.record import decode_record, encode_record
from rocketpy.message.sys_flag import CompressionType, with_compression


def record(body: bytes, properties: bytes, sys_flag: int = 0) -> bytes:
    return encode_record(
        topic="T",
        queue_id=2,
        body=body,
        properties=properties,
        sys_flag=sys_flag,
        queue_offset=9,
        phy_offset=1321,
        born_timestamp_ms=1,
        born_host=("10.0.0.9", 5),
        store_timestamp_ms=2,
        store_host=("127.0.0.1", 31911),
        reconsume_times=3,
    )


def test_tags_keys_and_the_like_are_properties() -> None:
    message = Message.create(
        "T", b"x", tags="TagA", keys=["k1", "k2"], delay_level=3, wait_store=False, properties={"mine": "1"}
    )
    assert message.properties == {"mine": "1", "TAGS": "TagA", "KEYS": "k1 k2", "DELAY": "3", "WAIT": "false"}
    assert (message.tags, message.keys, message.delay_level, message.wait_store) == ("TagA", ["k1", "k2"], 3, False)
    assert message.encoded_properties.startswith("mine\x011\x02TAGS\x01TagA")


def test_plain_message_has_no_properties() -> None:
    message = Message.create("T", b"x")
    assert message.properties == {}
    assert (message.tags, message.keys, message.delay_level, message.wait_store) == (None, [], 0, True)


def test_one_key_as_text() -> None:
    assert Message.create("T", b"", keys="order").keys == ["order"]


@pytest.mark.parametrize(("name", "value"), [("TAGS", "x"), ("mine", " "), ("", "x")])
def test_reserved_and_empty_properties_are_refused(name: str, value: str) -> None:
    with pytest.raises(MessageInvalid):
        Message.create("T", b"", properties={name: value})


def test_odd_delay_counts_as_none() -> None:
    assert Message(topic="T", properties={"DELAY": "soon"}).delay_level == 0


def test_messages_of_a_pull_reply() -> None:
    zlib_flag = with_compression(0, CompressionType.ZLIB)
    body = record(b"one", b"UNIQ_KEY\x01abc\x02") + record(compress(b"two" * 9), b"", zlib_flag)
    first, second = decode_messages(body, broker_name="broker-a")
    assert (first.body, first.message_id, first.broker_name) == (b"one", "abc", "broker-a")
    assert (first.queue_id, first.queue_offset, first.phy_offset, first.reconsume_times) == (2, 9, 1321, 3)
    assert (second.body, second.sys_flag) == (b"two" * 9, 0)
    assert second.message_id == second.offset_message_id == "7F00000100007CA70000000000000529"
    assert second.store_size == len(body) - first.store_size


def test_inflating_is_optional() -> None:
    compressed = compress(b"two" * 9)
    stored = decode_record(record(compressed, b"", 769))
    assert stored is not None
    message = MessageExt.from_record(stored, inflate=False)
    assert (message.body, message.sys_flag) == (compressed, 769)
