"""Converts stored records to received messages: decompressed, with ids and queue."""

from __future__ import annotations

import functools
import logging

import attrs

from rocketpy.errors import CompressionError, MessageInvalid, NumberInvalid
from rocketpy.message import properties as names
from rocketpy.message.compression import INFLATED_SIZE_MAX, decompress_body
from rocketpy.message.host import HOST_SIZE_V4, pack_host, parse_host
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.numbers import PhyOffset, QueueOffset
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import MESSAGE_MAGIC_CODE, FixedFields, read_records
from rocketpy.message.sys_flag import COMPRESSED
from rocketpy.remoting.headers.client import ReplyMessageRequestHeader

from ..messages import ReceivedMessage

logger = logging.getLogger(__name__)

PULLED_BYTES_MAX = INFLATED_SIZE_MAX  # of the inflated bodies of one pull: 32 bodies may have 2 GiB


def decode_messages(body: bytes | None, broker_name: str, *, inflate: bool = True) -> list[ReceivedMessage]:
    """The messages in the body of a query or view answer, their bodies inflated; `sys_flag` stays as stored.

    A body that cannot be decompressed is logged and delivered unchanged: an error would stop its queue for ever.

    Args:
        inflate: False leaves bodies compressed: those of a few messages may have gigabytes.

    Raises:
        RecordCorrupt: the body is damaged.
    """
    return _decode(body, broker_name, inflate=inflate)[0]


def decode_pulled(
    body: bytes | None, broker_name: str, next_offset: int, *, inflate: bool
) -> tuple[list[ReceivedMessage], int]:
    """The messages in the body of a pull answer, as `decode_messages`, and the offset of the next pull.

    That is `next_offset`, or the offset of the first message that is left out: compressed bodies are inflated up to
    PULLED_BYTES_MAX, and at least one. So an answer exceeds the limits of a queue by no more than that.

    Raises:
        RecordCorrupt: the body is damaged.
    """
    received, left_out = _decode(body, broker_name, inflate=inflate, bytes_max=PULLED_BYTES_MAX)
    return received, next_offset if left_out is None else left_out


def _decode(
    body: bytes | None, broker_name: str, *, inflate: bool, bytes_max: int | None = None
) -> tuple[list[ReceivedMessage], int | None]:
    """Return the messages, and the offset of the first one that is left out for `bytes_max`, if any."""
    received: list[ReceivedMessage] = []
    inflated_bytes = 0
    queue, queue_topic, queue_id = MessageQueue("", broker_name, -1), b"", -1
    for _, fields, record_queue_id, offset, sys_flag, stored, topic, properties in read_records(body or b""):
        if topic != queue_topic or record_queue_id != queue_id:  # the messages of a pull have one queue
            queue_topic, queue_id = topic, record_queue_id
            queue = _queue(topic, broker_name, queue_id)
        message = ReceivedMessage(queue.topic, stored, queue, offset, properties, fields)
        if inflate and sys_flag & COMPRESSED:
            message.body = _inflated(stored, sys_flag, "message", message.offset_msg_id)
            inflated_bytes += len(message.body)
            if bytes_max is not None and inflated_bytes > bytes_max and received:
                return received, offset
        received.append(message)
    return received, None


def decode_message(body: bytes | None, broker_name: str) -> ReceivedMessage | None:
    """The first message in the body of a request or an answer, as `decode_messages`; None if there is none."""
    return next(iter(decode_messages(body, broker_name)), None)


def inflated(message: ReceivedMessage) -> ReceivedMessage:
    """A message that was decoded without `inflate`, with its body inflated as `decode_messages` does."""
    body = _inflated(message.body, message.sys_flag, "message", message.offset_msg_id)
    return attrs.evolve(message, body=body)


@functools.lru_cache(maxsize=4096)
def _queue(topic: bytes, broker_name: str, queue_id: int) -> MessageQueue:
    """Return the queue of a record; one object for all of its messages."""
    return MessageQueue(topic.decode("utf-8", "replace"), broker_name, queue_id)


def pushed_reply(header: ReplyMessageRequestHeader, body: bytes, now_ms: int) -> ReceivedMessage:
    """A reply as the broker pushed it (326): it comes from no queue, and has the id that its sender gave it."""
    properties = decode_properties(header.properties or "") | {names.ARRIVE_TIME: str(now_ms)}
    record = FixedFields(
        size=len(body),
        magic=MESSAGE_MAGIC_CODE,
        body_crc=0,
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=QueueOffset(0),
        phy_offset=PhyOffset(-1),
        sys_flag=header.sys_flag,
        born_timestamp_ms=header.born_timestamp_ms,
        born_host=_host(header.born_host),
        store_timestamp_ms=header.store_timestamp_ms,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body_size=len(body),
    )
    return ReceivedMessage(
        header.topic,
        _inflated(body, header.sys_flag, "reply", properties.get(names.UNIQ_KEY, "")),
        MessageQueue(header.topic, "", header.queue_id),
        0,
        properties,
        record,
    )


def _host(text: str) -> bytes:
    """`ip:port`, or `/ip:port` as Java prints it; packed. What is no address becomes 0.0.0.0:0."""
    try:
        return pack_host(parse_host(text.removeprefix("/")))
    except (NumberInvalid, MessageInvalid):
        return bytes(HOST_SIZE_V4)


def _inflated(body: bytes, sys_flag: int, what: str, msg_id: str) -> bytes:
    try:
        return decompress_body(body, sys_flag)[0]
    except CompressionError as error:
        logger.error("cannot decompress the body of %s %s: %s; delivering it compressed", what, msg_id, error)
        return body
