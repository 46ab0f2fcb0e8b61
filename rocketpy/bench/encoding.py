"""Requests as bytes, as the Java 4.9.7 client writes them, with the places that the driver patches.

A request is encoded once per queue. Fields that differ between two sends (opaque, unique id, a pull's offset, a time
stamp) are placeholders of fixed width, so that no length ever changes. Both brokers get the same bytes.
"""

from __future__ import annotations

import base64
import enum
import hmac
import json
import os
import struct
from collections.abc import Mapping
from types import MappingProxyType

import attrs

SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, PULL_MESSAGE = 310, 320, 11
END_TRANSACTION, ONEWAY = 37, 2
VERSION = 407  # V4_9_7
PRODUCER_GROUP, CONSUMER_GROUP = "bench_producer", "bench_consumer"
SYS_FLAG_PREPARED, COMMIT = 4, 8
END_DIGITS = 19  # as the driver writes both offsets
OPAQUE = 100_000_000  # nine digits, as the driver keeps them
OFFSET_DIGITS_MAX = 10
KEY_TAIL = "0123456789ABCDEF"  # 16 hexadecimal digits that the driver counts up
ENTRY_HEAD = 20  # bytes of a batch's entry before its body
PULL_SYS_FLAG_SUSPEND, PULL_SYS_FLAG_SUBSCRIPTION = 2, 4


NO_MORE: Mapping[str, str] = MappingProxyType({})


class Serialize(enum.Enum):
    JSON = 0
    ROCKETMQ = 1


@attrs.frozen
class Template:
    """One frame and its holes, as offsets from the start of the frame; 0 means there is none."""

    frame: bytes
    opaque_at: int
    opaque_is_binary: bool
    key_at: tuple[int, ...] = ()
    stamp_at: int = 0
    stamp_step: int = 0  # in a batch, from one message's to the next one's
    offset_at: int = 0
    offset_digits: int = 0
    messages: int = 1


@attrs.frozen
class EndTemplate:
    """END_TRANSACTION, and where its two offsets stand."""

    frame: bytes
    queue_offset_at: int
    phy_offset_at: int


def end_template() -> EndTemplate:
    """One-way, as producers send it: commit."""
    table, log = "1" * END_DIGITS, "2" * END_DIGITS
    fields = {
        "commitLogOffset": log,
        "commitOrRollback": str(COMMIT),
        "fromTransactionCheck": "false",
        "producerGroup": PRODUCER_GROUP,
        "tranStateTableOffset": table,
    }
    header = header_json(END_TRANSACTION, fields, OPAQUE, flag=ONEWAY)
    data = struct.pack(">ii", 4 + len(header), len(header)) + header
    return EndTemplate(data, data.index(table.encode()), data.index(log.encode()))


def header_json(code: int, fields: Mapping[str, str], opaque: int, flag: int = 0) -> bytes:
    """Keys in alphabetical order, no white space, control characters escaped: as fastjson does."""
    header = {
        "code": code,
        "extFields": dict(fields),
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": VERSION,
    }
    return json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()


def header_rocketmq(code: int, fields: Mapping[str, str], opaque: int) -> bytes:
    """Encode a header: code 2, language 1, version 2, opaque 4, flag 4, remark size 4, fields size 4, fields."""
    block = b"".join(
        struct.pack(">h", len(key)) + key.encode() + struct.pack(">i", len(value.encode())) + value.encode()
        for key, value in fields.items()
    )
    return struct.pack(">hbhiiii", code, 0, VERSION, opaque, 0, 0, len(block)) + block


def frame(
    code: int,
    fields: Mapping[str, str],
    body: bytes = b"",
    *,
    serialize: Serialize = Serialize.JSON,
    opaque: int = OPAQUE,
) -> bytes:
    encode = header_json if serialize is Serialize.JSON else header_rocketmq
    header = encode(code, fields, opaque)
    return struct.pack(">ii", 4 + len(header) + len(body), serialize.value << 24 | len(header)) + header + body


def unique_key_prefix() -> str:
    """Return the first half of a unique message id: address, process id, loader hash. Random, so that runs differ."""
    return "7F000001" + os.urandom(4).hex().upper()


def properties(prefix: str, *, wait: bool = True, more: Mapping[str, str] = NO_MORE) -> str:
    """Return what a producer sets on every message: its unique id, WAIT, and here a tag; separators 0x01 and 0x02."""
    pairs = {"UNIQ_KEY": prefix + KEY_TAIL} | ({"WAIT": "true"} if wait else {}) | {"TAGS": "TagA"} | dict(more)
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


def send_fields(topic: str, queue_id: int, props: str, *, born_timestamp_ms: int, batch: bool) -> dict[str, str]:
    """SendMessageRequestHeaderV2, one letter per field."""
    return {
        "a": PRODUCER_GROUP,
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(born_timestamp_ms),
        "h": "0",
        "i": props,
        "j": "0",
        "k": "false",
        "m": str(batch).lower(),
    }


def sign(fields: dict[str, str], body: bytes, access_key: str, secret: str) -> None:
    """Add access key and signature: HMAC-SHA1 of all values in the order of their names, and of the body."""
    fields["AccessKey"] = access_key
    content = "".join(fields[name] for name in sorted(fields)).encode() + body
    fields["Signature"] = base64.b64encode(hmac.digest(secret.encode(), content, "sha1")).decode()


def _holes(data: bytes, text: str) -> tuple[int, ...]:
    """Return the places of `text` in `data`."""
    found, at = [], data.find(text.encode())
    while at >= 0:
        found.append(at)
        at = data.find(text.encode(), at + 1)
    return tuple(found)


def _opaque_at(data: bytes, serialize: Serialize) -> int:
    """JSON: behind its key, which no field of ours repeats. ROCKETMQ: fixed."""
    return data.index(b'"opaque":') + 9 if serialize is Serialize.JSON else 13


def _body(size: int, queue_id: int) -> bytes:
    """Text-like, different between queues; never all the same byte."""
    line = f"message for queue {queue_id}: the quick brown fox jumps over the lazy dog 0123456789. ".encode()
    return (line * (size // len(line) + 1))[:size]


def send_template(
    topic: str,
    queue_id: int,
    body_size: int,
    *,
    prefix: str,
    born_timestamp_ms: int,
    serialize: Serialize = Serialize.JSON,
    stamped: bool = False,
    is_half: bool = False,
    account: tuple[str, str] | None = None,
    more: Mapping[str, str] = NO_MORE,
) -> Template:
    """Encode a single send (310). `stamped`: the body starts with the time it was due at. `is_half`: it is a
    half message. `account`: its access key and secret; signed messages are alike, for their id is signed. `more`:
    properties."""
    half = {"TRAN_MSG": "true", "PGROUP": PRODUCER_GROUP} if is_half else {}
    props = properties(prefix, more={**half, **more})
    fields = send_fields(topic, queue_id, props, born_timestamp_ms=born_timestamp_ms, batch=False)
    if is_half:
        fields["f"] = str(SYS_FLAG_PREPARED)
    body = _body(body_size, queue_id)
    if account is not None:
        sign(fields, body, *account)
    data = frame(SEND_MESSAGE_V2, fields, body, serialize=serialize)
    return Template(
        frame=data,
        opaque_at=_opaque_at(data, serialize),
        opaque_is_binary=serialize is Serialize.ROCKETMQ,
        key_at=() if account else _holes(data, KEY_TAIL),
        stamp_at=len(data) - body_size if stamped else 0,
    )


def batch_entry(body: bytes, props: str) -> bytes:
    """Encode an entry: size 4, magic 4, CRC 4 (left 0), flag 4, body size 4, body, properties size 2, properties."""
    encoded = props.encode()
    size = ENTRY_HEAD + len(body) + 2 + len(encoded)
    return struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body + struct.pack(">h", len(encoded)) + encoded


def batch_template(
    topic: str,
    queue_id: int,
    body_size: int,
    count: int,
    *,
    prefix: str,
    born_timestamp_ms: int,
    serialize: Serialize = Serialize.JSON,
    stamped: bool = False,
) -> Template:
    """Encode a batch send (320) of `count` messages to one queue, each with a unique id; WAIT belongs to the batch.
    `stamped`: each body starts with the time at which the batch should have been sent."""
    entry = batch_entry(_body(body_size, queue_id), properties(prefix, wait=False))
    entries = entry * count
    fields = send_fields(topic, queue_id, "WAIT\x01true\x02", born_timestamp_ms=born_timestamp_ms, batch=True)
    data = frame(SEND_BATCH_MESSAGE, fields, entries, serialize=serialize)
    return Template(
        frame=data,
        opaque_at=_opaque_at(data, serialize),
        opaque_is_binary=serialize is Serialize.ROCKETMQ,
        key_at=_holes(data, KEY_TAIL),
        stamp_at=len(data) - len(entries) + ENTRY_HEAD if stamped else 0,
        stamp_step=len(entry),
        messages=count,
    )


def pull_fields(
    topic: str,
    queue_id: int,
    offset: str,
    count: int,
    *,
    group: str,
    suspend_ms: int = 0,
    sub_version: int = 0,
    subscribed: str | None = None,
    expression: str = "*",
    expression_type: str = "TAG",
) -> dict[str, str]:
    """PullMessageRequestHeader with the subscription in it, so that no heartbeat has to come first.
    `subscribed`: without it; the type of the expression that a heartbeat has brought."""
    sys_flag = 0 if subscribed else PULL_SYS_FLAG_SUBSCRIPTION
    sys_flag |= PULL_SYS_FLAG_SUSPEND if suspend_ms else 0
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": offset,
        "maxMsgNums": str(count),
        "sysFlag": str(sys_flag),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        **({} if subscribed else {"subscription": expression}),
        "subVersion": str(sub_version),
        "expressionType": subscribed or expression_type,
    }


def pull_template(
    topic: str,
    queue_id: int,
    count: int,
    digits: int,
    *,
    group: str = CONSUMER_GROUP,
    suspend_ms: int = 0,
    serialize: Serialize = Serialize.JSON,
    subscribed: str | None = None,
    expression: str = "*",
    expression_type: str = "TAG",
) -> Template:
    """Encode a pull (11) whose offset has exactly `digits` digits."""
    fields = pull_fields(
        topic,
        queue_id,
        "7" * digits,
        count,
        group=group,
        suspend_ms=suspend_ms,
        subscribed=subscribed,
        expression=expression,
        expression_type=expression_type,
    )
    data = frame(PULL_MESSAGE, fields, serialize=serialize)
    key = b'"queueOffset":"' if serialize is Serialize.JSON else b"queueOffset" + struct.pack(">i", digits)
    return Template(
        frame=data,
        opaque_at=_opaque_at(data, serialize),
        opaque_is_binary=serialize is Serialize.ROCKETMQ,
        offset_at=data.index(key) + len(key),
        offset_digits=digits,
    )
