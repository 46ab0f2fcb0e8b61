"""Messages between workers (csrc/ipc/worker_messages.h) as Python values and back.

A record is one struct of that header, in native byte order, then its strings back to back in the order of their sizes.
The structs are read and written through cffi, so that each layout is declared once, in C.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import attrs

from rocketpy.errors import LocalProtocolError
from rocketpy.logs import NO_VALUE
from rocketpy.message.host import pack_host
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.native.core import Layout, ffi, lib
from rocketpy.remoting.abc import Channel, Peer
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import (
    DueMessages,
    EndTransaction,
    MessageToPut,
    PullRequest,
    PutResult,
    SendRequest,
    TimerState,
    Traffic,
)
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.headers.send import EndTransactionRequestHeader
from rocketpy.remoting.request_log import ServedRequest


class WorkerMessage(IntEnum):
    """RP_MSG_*: the type of a record."""

    FRAME = lib.RP_MSG_FRAME
    CLOSED = lib.RP_MSG_CLOSED
    COMMAND = lib.RP_MSG_COMMAND
    HEARTBEAT = lib.RP_MSG_HEARTBEAT
    SEND = lib.RP_MSG_SEND
    PULL = lib.RP_MSG_PULL
    END_TRANSACTION = lib.RP_MSG_END_TRANSACTION
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
    COMPLETED = lib.RP_MSG_COMPLETED
    CLEAN_EXPIRED = lib.RP_MSG_CLEAN_EXPIRED
    SETTINGS = lib.RP_MSG_SETTINGS
    POSITION = lib.RP_MSG_POSITION
    EXPRESSION = lib.RP_MSG_EXPRESSION
    FILTER = lib.RP_MSG_FILTER
    TRAFFIC = lib.RP_MSG_TRAFFIC
    DELIVER = lib.RP_MSG_DELIVER
    TIMER = lib.RP_MSG_TIMER
    SERVED = lib.RP_MSG_SERVED


def name_of(kind: int) -> str:
    return WorkerMessage(kind).name if kind in WorkerMessage._value2member_map_ else "of unknown type"


CONNECTION_INTERNAL = 0xFF << 56
CONNECTION_TIMER = CONNECTION_INTERNAL + 1
REPLY_CLOSE_AFTER: int = lib.RP_REPLY_CLOSE_AFTER
HOST = Layout("rp_host")
ORIGIN = Layout("rp_origin")
SEND_REQUEST = Layout("rp_msg_send")
PULL_REQUEST = Layout("rp_msg_pull")
END_REQUEST = Layout("rp_msg_end_transaction")
REPLY = Layout("rp_msg_reply")
PUT_RESULT = Layout("rp_msg_put_result")
COMMIT_OFFSET = Layout("rp_msg_commit_offset")
TRAFFIC = Layout("rp_msg_traffic")
SERVED = Layout("rp_msg_served")
TOPIC = Layout("rp_msg_topic")
GROUP = Layout("rp_msg_group")
BROKER = Layout("rp_msg_broker")
TABLES_END = Layout("rp_msg_tables_end")
CLEAN_TOPIC = Layout("rp_msg_clean_topic")
POSITION = Layout("rp_msg_position")
COMPLETED = Layout("rp_msg_completed")
DELIVERY = Layout("rp_delivery")
DELIVER = Layout("rp_msg_deliver")
TIMER = Layout("rp_msg_timer")
TOKENS = {  # records that PUT_RESULT answers
    WorkerMessage.SEND: SEND_REQUEST,
    WorkerMessage.END_TRANSACTION: END_REQUEST,
    WorkerMessage.DELIVER: DELIVER,
}


def _peer_of(host: Any) -> Peer:
    """`host`: an rp_host."""
    is_v6 = host.family == 6
    address = bytes(ffi.buffer(host.address, 16 if is_v6 else 4))
    return Peer(socket.inet_ntop(socket.AF_INET6 if is_v6 else socket.AF_INET, address), host.port)


def decode_host(record: bytes) -> Peer:
    """Read an rp_host."""
    return _peer_of(HOST.read(record))


@attrs.frozen
class Origin:
    """The connection that asked, and when the selector had the whole request."""

    connection: int
    received_ns: int
    listener: int
    _fields: Any = attrs.field(repr=False, eq=False)  # rp_origin

    @property
    def peer(self) -> Peer:
        """Read when asked for: once per connection, not per request."""
        return _peer_of(self._fields.peer)


def decode_origin(record: bytes) -> Origin:
    fields = ORIGIN.read(record)
    return Origin(fields.connection, fields.received_ns, fields.listener, fields)


def encode_host(host: str, port: int) -> dict[str, object]:
    """The fields of rp_host."""
    address = pack_host((host, port))[:-4]
    return {"address": address, "port": port, "family": 6 if len(address) == 16 else 4}


def frame_of(record: bytes) -> bytes:
    """The frame of a COMMAND record, with the length that it began with on the wire."""
    return (len(record) - ORIGIN.size).to_bytes(4, "big") + record[ORIGIN.size :]


def encode_reply(connection: int, frame: bytes, *, close_after: bool = False) -> bytes:
    """A frame for a connection. No frame and `close_after`: the connection is closed."""
    return REPLY.write(connection, REPLY_CLOSE_AFTER if close_after else 0, len(frame)) + frame


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
    """Decode a SEND record of the slow path."""
    fixed = SEND_REQUEST.read(record)
    flags = fixed.flags
    topic, group, default_topic, properties, body = _strings(record, SEND_REQUEST.size, _sizes_of_send(fixed))
    return SendRequest(
        channel=channel,
        opaque=fixed.opaque,
        code=fixed.code,
        version=fixed.version,
        received_ms=ORIGIN.read(record).received_ns // 1_000_000,
        is_oneway=bool(flags & lib.RP_REQUEST_ONEWAY),
        is_rocketmq=bool(flags & lib.RP_REQUEST_ROCKETMQ),
        is_batch=bool(flags & lib.RP_REQUEST_BATCH),
        wait_store=not flags & lib.RP_REQUEST_NO_WAIT,
        has_wait=bool(flags & lib.RP_REQUEST_HAS_WAIT),
        topic=_text(topic),
        producer_group=_text(group),
        default_topic=_text(default_topic),
        default_topic_queue_nums=fixed.default_topic_queue_nums,
        queue_id=fixed.queue_id,
        sys_flag=fixed.sys_flag,
        born_timestamp_ms=fixed.born_timestamp_ms,
        message_flag=fixed.message_flag,
        reconsume_times=fixed.reconsume_times,
        max_reconsume_times=fixed.max_reconsume_times if flags & lib.RP_REQUEST_HAS_MAX_RECONSUME else None,
        unit_mode=bool(fixed.unit_mode),
        properties=properties,
        body=body,
        raw=record,
        is_timer=bool(flags & lib.RP_REQUEST_TIMER),
    )


def _sizes_of_send(fixed: Any) -> tuple[int, int, int, int, int]:
    return fixed.topic_size, fixed.group_size, fixed.default_topic_size, fixed.properties_size, fixed.body_size


def unchecked(record: bytes, kind: int) -> tuple[bytes, bytes | None, bool]:
    """Split a SEND or PULL record that access control has to see.

    Returns: the record as the fast path makes it of a request that is allowed, the frame that it was made of, and
    whether the limits of its account have it; the record unchanged and None if it is not RP_REQUEST_UNCHECKED.
    """
    layout, is_send = (SEND_REQUEST, True) if kind == WorkerMessage.SEND else (PULL_REQUEST, False)
    if not layout.read(record).flags & lib.RP_REQUEST_UNCHECKED:
        return record, None, True
    fixed = layout.copy(record)
    is_counted = bool(fixed.flags & lib.RP_REQUEST_COUNTED)
    fixed.flags &= ~(lib.RP_REQUEST_UNCHECKED | lib.RP_REQUEST_COUNTED)
    end = layout.size + sum(_sizes_of_send(fixed) if is_send else _sizes_of_pull(fixed))
    frame = record[end:] + (record[end - fixed.body_size : end] if is_send else b"")
    return bytes(ffi.buffer(fixed)) + record[layout.size : end], len(frame).to_bytes(4, "big") + frame, is_counted


def connection_of(record: bytes) -> int:
    """The connection that asked; every request begins with its origin."""
    connection: int = ORIGIN.read(record).connection
    return connection


def token_of(record: bytes, kind: int = WorkerMessage.SEND) -> int:
    """The token of a SEND, END_TRANSACTION or DELIVER record; later sends have greater ones."""
    token: int = TOKENS[WorkerMessage(kind)].read(record).token
    return token


def owner_of_pull(record: bytes, owners: int) -> int:
    """Number of the pull worker that owns the queue of a PULL record."""
    request = PULL_REQUEST.read(record)
    at = PULL_REQUEST.size + request.group_size
    topic = record[at : at + request.topic_size]
    return int(lib.rp_queue_owner(topic, len(topic), request.queue_id, owners))


def encode_completed(record: bytes, token: int) -> bytes:
    """Encode: all sends up to `token` of the connection of `record` are completed."""
    return COMPLETED.write(ORIGIN.read(record)[0], token)


def resolve_send(
    request: SendRequest, *, topic: str | None, queue_id: int | None, properties: bytes | None, sys_flag: int | None
) -> bytes:
    """The SEND record of `request`, marked as RESOLVED, with the given fields changed."""
    record = request.raw
    fixed = SEND_REQUEST.copy(record)
    strings = _strings(record, SEND_REQUEST.size, _sizes_of_send(fixed))
    fixed.flags |= lib.RP_REQUEST_RESOLVED
    if topic is not None:
        strings[0] = topic.encode()
        fixed.topic_size = len(strings[0])
    if queue_id is not None:
        fixed.queue_id = queue_id
    if sys_flag is not None:
        fixed.sys_flag = sys_flag
    if properties is not None:  # stored exactly as given
        strings[3] = properties
        fixed.properties_size = len(properties)
        fixed.flags &= ~lib.RP_REQUEST_ADD_CLUSTER
    return b"".join((ffi.buffer(fixed), *strings))


def encode_put(message: MessageToPut, token: int, received_ns: int) -> bytes:
    """The SEND record of an internal put; its result comes back as PUT_RESULT with `token`.

    Raises: OverflowError (a number beyond its field).
    """
    topic, delivery = message.topic.encode(), message.delivery
    flags = lib.RP_REQUEST_RESOLVED | (0 if message.wait_store else lib.RP_REQUEST_NO_WAIT)
    in_place_of_group = b""
    if delivery is not None:
        flags |= lib.RP_REQUEST_DELIVERY
        in_place_of_group = DELIVERY.write(delivery.phy_offset, delivery.queue_offset, delivery.level)
    elif message.ends_timer is not None:
        flags |= lib.RP_REQUEST_ENDS_TIMER
        in_place_of_group = message.ends_timer.to_bytes(8, sys.byteorder)
    head = SEND_REQUEST.write(
        origin={
            "connection": CONNECTION_INTERNAL,
            "received_ns": received_ns,
            "peer": encode_host(*message.born_host),
        },
        flags=flags,
        queue_id=message.queue_id,
        sys_flag=message.sys_flag,
        message_flag=message.message_flag,
        reconsume_times=message.reconsume_times,
        born_timestamp_ms=message.born_timestamp_ms,
        prepared_transaction_offset=message.prepared_transaction_offset,
        token=token,
        topic_size=len(topic),
        group_size=len(in_place_of_group),
        properties_size=len(message.properties),
        body_size=len(message.body),
    )
    return b"".join((head, topic, in_place_of_group, message.properties, message.body))


def encode_deliver(due: DueMessages, token: int) -> bytes:
    """The DELIVER record; its result comes back as PUT_RESULT with `token`."""
    head = DELIVER.write(token, due.queue_offset, due.level, len(due.places))
    return head + bytes(ffi.buffer(ffi.new("rp_due[]", [(phy_offset, size, 0) for phy_offset, size in due.places])))


def encode_end(end: EndTransaction, token: int, received_ns: int) -> bytes:
    """The END_TRANSACTION record of the manager; its result comes back as PUT_RESULT with `token`."""
    return END_REQUEST.write(
        origin={"connection": CONNECTION_INTERNAL, "received_ns": received_ns},
        action=end.action,
        queue_offset=end.queue_offset,
        phy_offset=end.phy_offset,
        token=token,
    )


def encode_end_of_client(
    request: RemotingCommand, header: EndTransactionRequestHeader, channel: Channel, received_ns: int
) -> bytes:
    """The END_TRANSACTION record of a client's request; the send worker answers it."""
    group, action = (header.producer_group or "").encode(), header.commit_or_rollback
    is_end = action in (lib.RP_END_COMMIT, lib.RP_END_ROLLBACK)
    is_rocketmq = request.serialize_type == SerializeType.ROCKETMQ
    flags = request.is_oneway * lib.RP_REQUEST_ONEWAY | is_rocketmq * lib.RP_REQUEST_ROCKETMQ
    origin = {
        "connection": channel.connection,
        "received_ns": received_ns,
        "peer": encode_host(channel.peer.host, channel.peer.port),
        "listener": int(channel.is_vip),
    }
    record = END_REQUEST.write(
        origin=origin,
        opaque=request.opaque,
        code=request.code,
        version=request.version,
        flags=flags,
        action=action if is_end else 0,
        group_size=len(group),
        queue_offset=header.tran_state_table_offset,
        phy_offset=header.commit_log_offset,
    )
    return record + group


def with_token(kind: WorkerMessage, record: bytes, token: int) -> bytes:
    """A SEND, END_TRANSACTION or DELIVER record with another token."""
    changed = bytearray(record)
    TOKENS[kind].read(changed).token = token
    return bytes(changed)


def decode_pull(record: bytes, channel: Channel) -> PullRequest:
    """Decode a PULL record of the slow path."""
    fixed = PULL_REQUEST.read(record)
    group, topic, subscription, expression_type = _strings(record, PULL_REQUEST.size, _sizes_of_pull(fixed))
    return PullRequest(
        channel=channel,
        opaque=fixed.opaque,
        code=fixed.code,
        version=fixed.version,
        is_oneway=bool(fixed.flags & lib.RP_REQUEST_ONEWAY),
        is_rocketmq=bool(fixed.flags & lib.RP_REQUEST_ROCKETMQ),
        consumer_group=_text(group),
        topic=_text(topic),
        queue_id=fixed.queue_id,
        queue_offset=fixed.queue_offset,
        max_msg_nums=fixed.max_msg_nums,
        sys_flag=fixed.sys_flag,
        commit_offset=fixed.commit_offset,
        suspend_timeout_ms=fixed.suspend_timeout_ms,
        subscription=_text(subscription),
        sub_version=fixed.sub_version,
        expression_type=_text(expression_type),
        raw=record,
    )


def _sizes_of_pull(fixed: Any) -> tuple[int, int, int, int]:
    return fixed.group_size, fixed.topic_size, fixed.subscription_size, fixed.expression_type_size


def resolve_pull(request: PullRequest) -> bytes:
    """The PULL record of `request`, marked as RESOLVED. The fast path checks it again and answers with an error if
    something is still missing."""
    changed = bytearray(request.raw)
    PULL_REQUEST.read(changed).flags |= lib.RP_REQUEST_RESOLVED
    return bytes(changed)


# --- answers ----------------------------------------------------------------------------------------------------------


def decode_put_result(record: bytes, store_host: tuple[str, int]) -> tuple[int, PutResult]:
    """Decode to (token, result); `store_host` goes into the message id."""
    put = PUT_RESULT.read(record)
    result = PutResult(
        code=put.code,
        queue_id=put.queue_id,
        queue_offset=put.queue_offset,
        size=put.size,
        timer_state=TimerState(put.timer_state),
    )
    if result.is_stored:
        result = PutResult(
            put.code,
            put.phy_offset,
            put.queue_id,
            put.queue_offset,
            put.size,
            put.store_timestamp_ms,
            encode_offset_message_id(store_host, put.phy_offset),
        )
    return put.token, result


def decode_commit_offset(record: bytes) -> tuple[str, str, int, int, int]:
    """(group, topic, queue id, offset, when the pull that brought it arrived in ms of CLOCK_MONOTONIC)."""
    fixed = COMMIT_OFFSET.read(record)
    group, topic = _strings(record, COMMIT_OFFSET.size, (fixed.group_size, fixed.topic_size))
    return _text(group), _text(topic), fixed.queue_id, fixed.offset, fixed.received_ns // 1_000_000


def decode_traffic(record: bytes) -> Traffic:
    """The value of a TRAFFIC record."""
    fixed = TRAFFIC.read(record)
    group, topic = _strings(record, TRAFFIC.size, (fixed.group_size, fixed.topic_size))
    return Traffic(
        topic=_text(topic),
        queue_id=fixed.queue_id,
        group=_text(group) if fixed.group_size else None,
        messages=fixed.messages,
        bytes=fixed.bytes,
        requests=fixed.requests,
        wait_ms=fixed.wait_us // 1000,
        behind_bytes=fixed.behind_bytes,
    )


def decode_served(record: bytes) -> ServedRequest:
    """The value of a SERVED record."""
    fixed, origin = SERVED.read(record), decode_origin(record)
    group, topic = _strings(record, SERVED.size, (fixed.group_size, fixed.topic_size))
    return ServedRequest(
        connection=origin.connection,
        opaque=fixed.opaque,
        name=RemotingCommand(fixed.code).name,
        peer=origin.peer,
        topic=_text(topic) or NO_VALUE,
        group=_text(group),
        queue=fixed.queue_id if fixed.queue_id >= 0 else NO_VALUE,
        offset=fixed.queue_offset if fixed.queue_offset >= 0 else NO_VALUE,
        answer=fixed.answer,
        duration_ms=max(0, fixed.answered_ns - origin.received_ns) / 1e6,
    )


# --- tables -----------------------------------------------------------------------------------------------------------


def encode_topic(
    topic: str, *, flags: int, perm: int = 0, read_queue_nums: int = 0, write_queue_nums: int = 0
) -> bytes:
    name = topic.encode()
    return TOPIC.write(flags, perm, read_queue_nums, write_queue_nums, len(name)) + name


def encode_group(group: str, *, flags: int, broker_id: int = 0, which_broker_when_slow: int = 0) -> bytes:
    name = group.encode()
    return GROUP.write(flags, broker_id, which_broker_when_slow, len(name)) + name


def encode_clean_topic(topic: str, token: int) -> bytes:
    """CLEAN_TOPIC; comes back as CLEANED. `token` tells one deletion of the topic from the next."""
    name = topic.encode()
    return CLEAN_TOPIC.write(token, len(name)) + name


def encode_clean_expired() -> bytes:
    """CLEAN_EXPIRED; comes back as CLEANED."""
    return CLEAN_TOPIC.write()
