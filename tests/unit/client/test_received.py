"""Records of a pull answer as the messages that consumers see."""

import pytest

from rocketpy.client.cluster.received import decode_messages
from rocketpy.message.compression import compress
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.record import encode_record
from rocketpy.message.sys_flag import CompressionType, with_compression

ZLIB = with_compression(0, CompressionType.ZLIB)


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
