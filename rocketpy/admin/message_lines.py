"""Messages as lines of JSON, for shell pipelines: sendMessage reads what consumeMessage prints.

    {"topic": "A", "broker_name": "broker-a", "queue_id": 0, "queue_offset": 7, "tags": "paid", "keys": ["k1"],
     "properties": {"colour": "red"}, "flag": 0, "body": "text", ...}

A body that is no UTF-8 is `body_base64` instead. Names that sendMessage does not know are ignored, and so are reserved
properties, which the next broker sets again. `read_lines` holds one line at a time, and no more than LINE_BYTES_MAX.
"""

from __future__ import annotations

import base64
import json
import os
import select
import sys
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import attrs

from rocketpy import aio
from rocketpy.client.messages import Message
from rocketpy.errors import MessageInvalid
from rocketpy.message import properties as names
from rocketpy.message.message_queue import MessageQueue

LINE_BYTES_MAX = 16 << 20  # the largest body that brokers take by default, 4 MiB, fits in any encoding
CHUNK_BYTES = 1 << 18
LOOK_S = 0.2  # for input; a Ctrl-C is obeyed after this time
STANDARD_INPUT = "-"


async def read_lines(file: str) -> AsyncGenerator[bytes, None]:
    """Lines of a file, or of standard input (`-`), each as soon as it is there. Close it (`aclosing`).

    Raises:
        MessageInvalid: a line is too long. OSError.
    """
    source = sys.stdin.fileno() if file == STANDARD_INPUT else os.open(file, os.O_RDONLY)
    try:
        pending = b""
        while (chunk := await aio.in_thread(_read_some, source)) != b"":
            *whole, pending = (pending + (chunk or b"")).split(b"\n")
            for line in whole:
                yield line
            if len(pending) > LINE_BYTES_MAX:
                raise MessageInvalid(f"a line of {file} is longer than {LINE_BYTES_MAX} bytes")
        if pending:
            yield pending
    finally:
        if file != STANDARD_INPUT:
            os.close(source)


def _read_some(source: int) -> bytes | None:
    """Return what there is to read; nothing at the end of the file; None: nothing came within a moment."""
    if sys.platform != "win32":
        poller = select.poll()  # `select` takes no descriptor from 1024 on, `epoll` no file
        poller.register(source, select.POLLIN)
        if not poller.poll(LOOK_S * 1000):
            return None
    return os.read(source, CHUNK_BYTES)


@attrs.frozen
class Line:
    """A message to send, and the place that it was read from, if the line tells it."""

    message: Message
    queue: MessageQueue | None = None
    queue_offset: int = 0


def parse_line(text: bytes, topic: str) -> Line:
    """A line of JSON as a message for `topic`. Raises MessageInvalid."""
    try:
        record = json.loads(text)
    except ValueError as error:
        raise MessageInvalid(f"no JSON: {error}") from error
    if not isinstance(record, dict):
        raise MessageInvalid("no JSON object")
    properties = _member(record, "properties", dict, {})
    for name, value in properties.items():
        if not isinstance(value, str):
            raise MessageInvalid(f"property {name!r} is no text but {value!r}")
    message = Message(
        topic,
        _body(record),
        tags=_member(record, "tags", str, None),
        keys=_keys(record),
        properties={name: value for name, value in properties.items() if name not in names.SYSTEM_PROPERTIES},
        **{name: _member(record, name, int, 0) for name in ("flag", "delay_level", "delay_ms", "deliver_at_ms")},
    )
    queue = record.get("topic"), record.get("broker_name"), record.get("queue_id")
    offset = record.get("queue_offset")
    match queue, offset:
        case (str() as read_from, str() as broker_name, int() as queue_id), int():
            return Line(message, MessageQueue(read_from, broker_name, queue_id), offset)
    return Line(message)


def _member(record: Mapping[str, object], name: str, kind: type, missing: object) -> Any:
    value = record.get(name)
    if value is None:
        return missing
    if not isinstance(value, kind) or isinstance(value, bool):
        raise MessageInvalid(f"{name} is not {kind.__name__} but {value!r}")
    return value


def _keys(record: Mapping[str, object]) -> tuple[str, ...]:
    """A list of keys, or one text with spaces between them, as the property has it."""
    keys = record.get("keys") or ()
    if isinstance(keys, str):
        return tuple(keys.split())
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise MessageInvalid(f"keys is no list of texts but {keys!r}")
    return tuple(keys)


def _body(record: Mapping[str, object]) -> bytes:
    encoded = _member(record, "body_base64", str, None)
    if encoded is None:
        body: str = _member(record, "body", str, "")
        return body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise MessageInvalid(f"body_base64 is no base64: {error}") from error


def body_members(body: bytes) -> dict[str, str]:
    """The body of a message in a line: text, or base64 of bytes that are none."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}
