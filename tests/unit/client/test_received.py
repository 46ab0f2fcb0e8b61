"""Records of a pull answer as the messages that consumers see."""

import pytest

from rocketpy.client.cluster.received import decode_messages
from rocketpy.message.compression import compress
from rocketpy.message.host import Host
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.record import MESSAGE_MAGIC_CODE_V2, RECORD_START, decode_record, encode_record
from rocketpy.message.sys_flag import CompressionType, with_compression

ZLIB = with_compression(0, CompressionType.ZLIB)
FIELDS = (
    "topic",
    "queue_offset",
    "phy_offset",
    "flag",
    "sys_flag",
    "born_timestamp_ms",
    "born_host",
    "store_timestamp_ms",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_crc",
)


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


def test_messages_of_a_pull_answer() -> None:
    body = record(b"one", b"UNIQ_KEY\x01abc\x02") + record(compress(b"two" * 9), b"", ZLIB)
    first, second = decode_messages(body, "broker-a")
    assert (first.body, first.msg_id, first.queue) == (b"one", "abc", MessageQueue("T", "broker-a", 2))
    assert (first.queue_offset, first.phy_offset, first.reconsume_times) == (9, 1321, 3)
    assert (second.body, second.sys_flag) == (b"two" * 9, ZLIB)
    assert second.msg_id == second.offset_msg_id == "7F00000100007CA70000000000000529"
    assert second.store_size == len(body) - first.store_size


@pytest.mark.parametrize("born_host", [("10.0.0.9", 5), ("2001:db8::9", 5)])
@pytest.mark.parametrize("store_host", [("127.0.0.1", 31911), ("::1", 31911)])
@pytest.mark.parametrize("is_v2", [False, True])
def test_each_field_is_that_of_the_record(born_host: Host, store_host: Host, is_v2: bool) -> None:
    image = encode_record(
        topic="T",
        queue_id=2,
        body=b"body",
        properties=b"UNIQ_KEY\x01abc",
        flag=7,
        queue_offset=9,
        phy_offset=1321,
        born_timestamp_ms=1,
        born_host=born_host,
        store_timestamp_ms=2,
        store_host=store_host,
        reconsume_times=3,
        prepared_transaction_offset=8,
    )
    if is_v2:  # a topic size of two bytes
        before, after = image.split(b"body\x01T")
        image = RECORD_START.pack(len(image) + 1, MESSAGE_MAGIC_CODE_V2) + before[8:] + b"body\x00\x01T" + after
    stored = decode_record(image)
    assert stored is not None
    first, second = decode_messages(image * 2, "broker-a")
    assert first == second
    assert (first.store_size, first.stored_size, first.body) == (stored.size, 4, stored.body)
    assert first.msg_id == "abc" and first.queue == MessageQueue("T", "broker-a", 2)
    for name in FIELDS:
        assert getattr(first, name) == getattr(stored, name), name


def test_a_body_that_cannot_be_inflated_is_handed_on(caplog: pytest.LogCaptureFixture) -> None:
    (message,) = decode_messages(record(b"not zlib", b"", ZLIB), "broker-a")
    assert (message.body, message.sys_flag) == (b"not zlib", ZLIB)
    assert "cannot decompress the body of message 7F00000100007CA70000000000000529" in caplog.text


def test_a_message_is_the_same_before_and_after_its_fields_are_looked_at() -> None:
    image = record(b"one", b"UNIQ_KEY\x01abc\x02TAGS\x01A")
    (first,), (second,) = decode_messages(image, "broker-a"), decode_messages(image, "broker-a")
    assert first.properties == {"UNIQ_KEY": "abc", "TAGS": "A"}
    assert (first.born_host, first.store_host) == (("10.0.0.9", 5), ("127.0.0.1", 31911))
    assert first == second and repr(first) == repr(second)
    again = second.tried_again()
    assert (again.reconsume_times, again.msg_id, again.body) == (4, "abc", b"one")
