"""Converts stored records to received messages: decompressed, with ids and queue."""

from __future__ import annotations

import logging

from rocketpy.errors import CompressionError, NumberInvalid
from rocketpy.message import properties as names
from rocketpy.message.compression import decompress_body
from rocketpy.message.host import Host, parse_host
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import StoredRecord, decode_records
from rocketpy.remoting.headers.client import ReplyMessageRequestHeader

from ..messages import ReceivedMessage

logger = logging.getLogger(__name__)


def decode_messages(body: bytes | None, broker_name: str) -> list[ReceivedMessage]:
    """The messages in the body of a pull, query or view answer.

    Raises:
        RecordCorrupt: the body is damaged.
    """
    return [received_message(record, broker_name) for record in decode_records(body or b"")]


def received_message(record: StoredRecord, broker_name: str) -> ReceivedMessage:
    """One record, its body inflated; `sys_flag` stays as stored, as in Java.

    A body that cannot be decompressed is logged and delivered unchanged: an error would stop its queue for ever.
    """
    properties = decode_properties(record.properties.decode("utf-8", "replace"))
    offset_msg_id = encode_offset_message_id(record.store_host, record.phy_offset)
    return ReceivedMessage(
        topic=record.topic,
        body=_inflated(record.body, record.sys_flag, "message", offset_msg_id),
        properties=properties,
        queue=MessageQueue(record.topic, broker_name, record.queue_id),
        queue_offset=record.queue_offset,
        phy_offset=record.phy_offset,
        msg_id=properties.get(names.UNIQ_KEY) or offset_msg_id,
        offset_msg_id=offset_msg_id,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp_ms,
        store_timestamp_ms=record.store_timestamp_ms,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        body_crc=record.body_crc,
        store_size=record.size,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


def pushed_reply(header: ReplyMessageRequestHeader, body: bytes, now_ms: int) -> ReceivedMessage:
    """A reply as the broker pushed it (326): it comes from no queue, and has the id that its sender gave it."""
    properties = decode_properties(header.properties or "") | {names.ARRIVE_TIME: str(now_ms)}
    msg_id = properties.get(names.UNIQ_KEY, "")
    return ReceivedMessage(
        topic=header.topic,
        body=_inflated(body, header.sys_flag, "reply", msg_id),
        properties=properties,
        queue=MessageQueue(header.topic, "", header.queue_id),
        queue_offset=0,
        phy_offset=0,
        msg_id=msg_id,
        offset_msg_id="",
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp_ms=header.born_timestamp_ms,
        store_timestamp_ms=header.store_timestamp_ms,
        born_host=_host(header.born_host),
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        body_crc=0,
        store_size=len(body),
    )


def _host(text: str) -> Host:
    """`ip:port`, or `/ip:port` as Java prints it."""
    try:
        return parse_host(text.removeprefix("/"))
    except NumberInvalid:
        return "", 0


def _inflated(body: bytes, sys_flag: int, what: str, msg_id: str) -> bytes:
    try:
        return decompress_body(body, sys_flag)[0]
    except CompressionError as error:
        logger.error("cannot decompress the body of %s %s: %s; delivering it compressed", what, msg_id, error)
        return body
