"""Messages between workers (csrc/ipc/worker_messages.h) as Python values and back. Native byte order; a unit test holds
each layout to C's.

A record is one fixed struct, then its strings back to back in the order of their sizes.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from enum import IntEnum

import attrs

from rocketpy.errors import LocalProtocolError
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.abc import Channel, Peer
from rocketpy.remoting.fast_path import MessageToPut, PullRequest, PutResult, SendRequest


class WorkerMessage(IntEnum):
    """RP_MSG_*: the type of a record."""

    FRAME = lib.RP_MSG_FRAME
    CLOSED = lib.RP_MSG_CLOSED
    COMMAND = lib.RP_MSG_COMMAND
    SEND = lib.RP_MSG_SEND
    PULL = lib.RP_MSG_PULL
    REPLY = lib.RP_MSG_REPLY
    PUT_RESULT = lib.RP_MSG_PUT_RESULT
    COMMIT_OFFSET = lib.RP_MSG_COMMIT_OFFSET
    TOPIC = lib.RP_MSG_TOPIC
    GROUP = lib.RP_MSG_GROUP
    SUBSCRIPTION = lib.RP_MSG_SUBSCRIPTION
    TABLES_END = lib.RP_MSG_TABLES_END
    BROKER = lib.RP_MSG_BROKER
    CLEAN_TOPIC = lib.RP_MSG_CLEAN_TOPIC
    CLEANED = lib.RP_MSG_CLEANED
    CLEAN_EXPIRED = lib.RP_MSG_CLEAN_EXPIRED
    SETTINGS = lib.RP_MSG_SETTINGS
    COMPLETED = lib.RP_MSG_COMPLETED
    POSITION = lib.RP_MSG_POSITION


CONNECTION_INTERNAL = 0xFF << 56
REPLY_CLOSE_AFTER: int = lib.RP_REPLY_CLOSE_AFTER
TABLES_END = struct.Struct("=QII")  # sends_from, epoch, reserved
TOKEN_AT = ffi.offsetof("rp_send_request", "token")

ORIGIN = struct.Struct(
    "=Q"  # connection
    "Q"  # received_ns   CLOCK_MONOTONIC
    "16sHBx"  # peer     address, port, family
    "I"  # listener      0 main port, 1 VIP port
)
REPLY = struct.Struct("=QII")  # connection, flags, size
PUT_RESULT = struct.Struct("=QQQqiiII")  # token, phy_offset, queue_offset, store_timestamp_ms, code, queue_id, size
COMMIT_OFFSET = struct.Struct("=qiIIIQ")  # offset, queue_id, group_size, topic_size, reserved, received_ns
TOPIC = struct.Struct("=IiiiII")  # flags, perm, read_queue_nums, write_queue_nums, topic_size
GROUP = struct.Struct("=IiiI")  # flags, broker_id, which_broker_when_slow, group_size
SUBSCRIPTION = struct.Struct("=qIIII")  # sub_version, flags, group_size, topic_size, tag_count
POSITION = struct.Struct("=Q")  # token
CLEAN_TOPIC = struct.Struct("=QII")  # token (0 for CLEAN_EXPIRED), topic_size
DELIVERY = struct.Struct("=QQII")  # phy_offset, queue_offset, level, reserved
BROKER = struct.Struct("=iI")  # permission, max_message_size
SEND = struct.Struct(
    "=iii"  # opaque, code, version
    "I"  # flags
    "ii"  # queue_id, sys_flag
    "iii"  # message_flag, reconsume_times, max_reconsume_times
    "i"  # default_topic_queue_nums
    "qq"  # born_timestamp_ms, prepared_transaction_offset
    "Q"  # token          of an internal put
    "IIII"  # sizes       topic, group, default topic, properties
    "I"  # body_size
    "I"  # unit_mode
)
PULL = struct.Struct(
    "=iii"  # opaque, code, version
    "I"  # flags
    "iii"  # queue_id, max_msg_nums, sys_flag
    "4x"
    "qq"  # queue_offset, commit_offset
    "qq"  # sub_version, suspend_timeout_ms
    "IIII"  # sizes       group, topic, subscription, expression type
)


@attrs.frozen
class Origin:
    """Who asked, and when the selector had the whole request."""

    connection: int
    received_ns: int
    peer: Peer
    listener: int

    @property
    def is_internal(self) -> bool:
        return self.connection >= CONNECTION_INTERNAL


def decode_origin(record: bytes) -> Origin:
    connection, received_ns, address, port, family, listener = ORIGIN.unpack_from(record)
    is_v6 = family == 6
    host = socket.inet_ntop(socket.AF_INET6 if is_v6 else socket.AF_INET, address if is_v6 else address[:4])
    return Origin(connection, received_ns, Peer(host, port), listener)


def encode_host(host: str, port: int) -> tuple[bytes, int, int]:
    """(address, port, family) as ORIGIN takes them."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.inet_pton(family, host).ljust(16, b"\0"), port, 6 if ":" in host else 4


def encode_reply(connection: int, frame: bytes, *, close_after: bool = False) -> bytes:
    """A frame for a connection; no frame and `close_after`: the connection broke the protocol."""
    return REPLY.pack(connection, REPLY_CLOSE_AFTER if close_after else 0, len(frame)) + frame


def _strings(record: bytes, at: int, sizes: Iterable[int]) -> list[bytes]:
    found = []
    for size in sizes:
        found.append(record[at : at + size])
        at += size
    if at > len(record):
        raise LocalProtocolError(f"ring message of {len(record)} bytes, but its strings end at byte {at}")
    return found


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


# --- requests ---------------------------------------------------------------------------------------------------------


def decode_send(record: bytes, channel: Channel) -> SendRequest:
    """A SEND record that the fast path left to us."""
    (
        opaque,
        code,
        version,
        flags,
        queue_id,
        sys_flag,
        message_flag,
        reconsume_times,
        max_reconsume_times,
        default_topic_queue_nums,
        born_timestamp_ms,
        _prepared,
        _token,
        *sizes,
        unit_mode,
    ) = SEND.unpack_from(record, ORIGIN.size)
    strings = _strings(record, ORIGIN.size + SEND.size, sizes)
    return SendRequest(
        channel=channel,
        opaque=opaque,
        code=code,
        version=version,
        is_oneway=bool(flags & lib.RP_REQUEST_ONEWAY),
        is_rocketmq=bool(flags & lib.RP_REQUEST_ROCKETMQ),
        is_batch=bool(flags & lib.RP_REQUEST_BATCH),
        wait_store=not flags & lib.RP_REQUEST_NO_WAIT,
        topic=_text(strings[0]),
        producer_group=_text(strings[1]),
        default_topic=_text(strings[2]),
        default_topic_queue_nums=default_topic_queue_nums,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp_ms=born_timestamp_ms,
        message_flag=message_flag,
        reconsume_times=reconsume_times,
        max_reconsume_times=max_reconsume_times if flags & lib.RP_REQUEST_HAS_MAX_RECONSUME else None,
        unit_mode=bool(unit_mode),
        properties=strings[3],
        body=strings[4],
        raw=record,
    )


def connection_of(record: bytes) -> int:
    """Who asked; every request begins with its origin."""
    connection: int = struct.unpack_from("=Q", record)[0]
    return connection


def token_of(record: bytes) -> int:
    """Of a SEND record: later sends have greater ones."""
    token: int = struct.unpack_from("=Q", record, TOKEN_AT)[0]
    return token


def encode_completed(record: bytes, token: int) -> bytes:
    """All sends up to `token` of the connection that sent `record` are dealt with."""
    return record[: ORIGIN.size] + struct.pack("=Q", token)


def resolve_send(
    request: SendRequest, *, topic: str | None, queue_id: int | None, properties: bytes | None, sys_flag: int | None
) -> bytes:
    """The SEND record of `request`, marked as checked and with what is given changed."""
    record = request.raw
    fixed = list(SEND.unpack_from(record, ORIGIN.size))
    strings = _strings(record, ORIGIN.size + SEND.size, fixed[13:18])
    fixed[3] |= lib.RP_REQUEST_RESOLVED
    if topic is not None:
        strings[0] = topic.encode()
    if queue_id is not None:
        fixed[4] = queue_id
    if sys_flag is not None:
        fixed[5] = sys_flag
    if properties is not None:  # stored exactly as given
        strings[3] = properties
        fixed[3] &= ~lib.RP_REQUEST_ADD_CLUSTER
    fixed[13:18] = [len(one) for one in strings]
    return b"".join((record[: ORIGIN.size], SEND.pack(*fixed), *strings))


def encode_put(message: MessageToPut, token: int, received_ns: int) -> bytes:
    """A SEND record of our own; its outcome comes back as PUT_RESULT with `token`."""
    topic = message.topic.encode()
    flags = lib.RP_REQUEST_RESOLVED | (0 if message.wait_store else lib.RP_REQUEST_NO_WAIT)
    delivery = b""
    if message.delivery is not None:
        flags |= lib.RP_REQUEST_DELIVERY
        delivery = DELIVERY.pack(message.delivery.phy_offset, message.delivery.queue_offset, message.delivery.level, 0)
    fixed = SEND.pack(
        0,
        0,
        0,
        flags,
        message.queue_id,
        message.sys_flag,
        message.message_flag,
        message.reconsume_times,
        0,
        0,
        message.born_timestamp_ms,
        message.prepared_transaction_offset,
        token,
        len(topic),
        len(delivery),
        0,
        len(message.properties),
        len(message.body),
        0,
    )
    origin = ORIGIN.pack(CONNECTION_INTERNAL, received_ns, *encode_host(*message.born_host), 0)
    return b"".join((origin, fixed, topic, delivery, message.properties, message.body))


def with_token(record: bytes, token: int) -> bytes:
    """A SEND record with another token."""
    return b"".join((record[:TOKEN_AT], struct.pack("=Q", token), record[TOKEN_AT + 8 :]))


def decode_pull(record: bytes, channel: Channel) -> PullRequest:
    """A PULL record that the fast path left to us."""
    (
        opaque,
        code,
        version,
        flags,
        queue_id,
        max_msg_nums,
        sys_flag,
        queue_offset,
        commit_offset,
        sub_version,
        suspend_timeout_ms,
        *sizes,
    ) = PULL.unpack_from(record, ORIGIN.size)
    strings = _strings(record, ORIGIN.size + PULL.size, sizes)
    return PullRequest(
        channel=channel,
        opaque=opaque,
        code=code,
        version=version,
        is_oneway=bool(flags & lib.RP_REQUEST_ONEWAY),
        is_rocketmq=bool(flags & lib.RP_REQUEST_ROCKETMQ),
        consumer_group=_text(strings[0]),
        topic=_text(strings[1]),
        queue_id=queue_id,
        queue_offset=queue_offset,
        max_msg_nums=max_msg_nums,
        sys_flag=sys_flag,
        commit_offset=commit_offset,
        suspend_timeout_ms=suspend_timeout_ms,
        subscription=_text(strings[2]),
        sub_version=sub_version,
        expression_type=_text(strings[3]),
        raw=record,
    )


def resolve_pull(request: PullRequest) -> bytes:
    """The PULL record of `request`, to be validated once more: what it still lacks then is an error."""
    record = bytearray(request.raw)
    at = ORIGIN.size + 12
    (flags,) = struct.unpack_from("=I", record, at)
    struct.pack_into("=I", record, at, flags | lib.RP_REQUEST_RESOLVED)
    return bytes(record)


# --- answers ----------------------------------------------------------------------------------------------------------


def decode_put_result(record: bytes, store_host: tuple[str, int]) -> tuple[int, PutResult]:
    """(token, outcome); `store_host` is what the message id names."""
    token, phy_offset, queue_offset, store_timestamp_ms, code, queue_id, size, _ = PUT_RESULT.unpack_from(record)
    result = PutResult(code=code, queue_id=queue_id)
    if result.is_stored:
        result = PutResult(
            code, phy_offset, queue_id, queue_offset, size, store_timestamp_ms, _message_id(store_host, phy_offset)
        )
    return token, result


def _message_id(store_host: tuple[str, int], phy_offset: int) -> str:
    host, port = store_host
    address = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    return (address + port.to_bytes(4, "big") + phy_offset.to_bytes(8, "big")).hex().upper()


def decode_commit_offset(record: bytes) -> tuple[str, str, int, int, int]:
    """(group, topic, queue id, offset, when the pull that brought it arrived in ms of CLOCK_MONOTONIC)."""
    offset, queue_id, group_size, topic_size, _, received_ns = COMMIT_OFFSET.unpack_from(record)
    group, topic = _strings(record, COMMIT_OFFSET.size, (group_size, topic_size))
    return _text(group), _text(topic), queue_id, offset, received_ns // 1_000_000


# --- tables -----------------------------------------------------------------------------------------------------------


def encode_topic(
    topic: str, *, flags: int, perm: int = 0, read_queue_nums: int = 0, write_queue_nums: int = 0
) -> bytes:
    name = topic.encode()
    return TOPIC.pack(flags, perm, read_queue_nums, write_queue_nums, len(name), 0) + name


def encode_group(group: str, *, flags: int, broker_id: int = 0, which_broker_when_slow: int = 0) -> bytes:
    name = group.encode()
    return GROUP.pack(flags, broker_id, which_broker_when_slow, len(name)) + name


def encode_subscription(group: str, topic: str, *, flags: int, sub_version: int = 0, tags: Iterable[str] = ()) -> bytes:
    hashes = [tag_hash(tag) for tag in tags]
    names = group.encode(), topic.encode()
    fixed = SUBSCRIPTION.pack(sub_version, flags, len(names[0]), len(names[1]), len(hashes))
    return b"".join((fixed, struct.pack(f"={len(hashes)}i", *hashes), *names))


def tag_hash(tag: str) -> int:
    """The tag as consume queues store it: Java's String.hashCode."""
    raw = tag.encode()
    return int(lib.rp_string_hash(ffi.from_buffer(raw), len(raw)))


def encode_clean_topic(topic: str, token: int) -> bytes:
    """CLEAN_TOPIC; comes back as CLEANED. `token` tells one deletion of the topic from the next."""
    name = topic.encode()
    return CLEAN_TOPIC.pack(token, len(name), 0) + name


def encode_clean_expired() -> bytes:
    """CLEAN_EXPIRED; comes back as CLEANED."""
    return CLEAN_TOPIC.pack(0, 0, 0)
