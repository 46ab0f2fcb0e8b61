"""Message traces: what clients write into the trace topic about sends and consumptions.

A body is a sequence of records. The fields of a record end with 0x01, all but the last; the record ends with 0x02.

    record     fields after its name
    Pub        timestamp, region, group, topic, message id, tags, keys, store host, body length, cost in ms,
               kind of message, id by the broker, success, and with some clients the client's host
    SubBefore  timestamp, region, group, request id, message id, times redelivered, keys
    SubAfter   request id, message id, cost in ms, success, keys, context code, timestamp, group
    EndTransaction  timestamp, region, group, topic, message id, tags, keys, store host, kind of message,
               transaction id, state, whether a broker had asked

Missing text is the word `null`: an empty last field breaks Java's reader.
Source: RocketMQ 4.9 `TraceDataEncoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any

import attrs

from .numbers import long_or

FIELD_END, RECORD_END = "\x01", "\x02"
NULL = "null"


class MessageKind(IntEnum):
    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3


class ContextCode(IntEnum):
    """The end of a listener's call."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


@attrs.frozen
class Pub:
    """A send. `timestamp_ms` is when it began."""

    timestamp_ms: int
    region_id: str
    group: str
    topic: str
    msg_id: str
    tags: str
    keys: str
    store_host: str
    body_size: int
    cost_ms: int
    kind: int
    offset_msg_id: str
    is_success: bool
    client_host: str | None = None

    def encode(self) -> str:
        fields = [*attrs.astuple(self)[:-1], *([self.client_host] if self.client_host else [])]
        return _record(self, fields)


@attrs.frozen
class SubBefore:
    """A message that a listener is about to get."""

    timestamp_ms: int
    region_id: str
    group: str
    request_id: str
    msg_id: str
    retry_times: int
    keys: str

    def encode(self) -> str:
        return _record(self, attrs.astuple(self))


@attrs.frozen
class SubAfter:
    """A listener's result for a message. `timestamp_ms` and `group` may be missing: clients of the cloud omit them."""

    request_id: str
    msg_id: str
    cost_ms: int
    is_success: bool
    keys: str
    context_code: int
    timestamp_ms: int = 0
    group: str = ""

    def encode(self) -> str:
        return _record(self, attrs.astuple(self))


@attrs.frozen
class EndTransaction:
    """The end of a transaction that a producer told the broker. `state` is the name of Java's LocalTransactionState."""

    timestamp_ms: int
    region_id: str
    group: str
    topic: str
    msg_id: str
    tags: str
    keys: str
    store_host: str
    kind: int
    transaction_id: str
    state: str
    is_checked: bool

    def encode(self) -> str:
        return _record(self, attrs.astuple(self))


TraceRecord = Pub | SubBefore | SubAfter | EndTransaction


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, IntEnum):
        return str(int(value))
    text = NULL if value is None or value == "" else str(value)
    return text.replace(FIELD_END, "").replace(RECORD_END, "")


def _record(record: TraceRecord, fields: Iterable[object]) -> str:
    return FIELD_END.join([type(record).__name__, *map(_text, fields)]) + RECORD_END


def decode_records(text: str) -> list[TraceRecord]:
    """The records of a body. Those of other kinds, and torn ones, are passed over."""
    found = (_decode(record.split(FIELD_END)) for record in text.split(RECORD_END))
    return [record for record in found if record is not None]


def _decode(fields: list[str]) -> TraceRecord | None:
    kind = _KINDS.get(fields[0])
    if kind is None or len(fields) <= FIELDS_MIN[fields[0]]:
        return None
    columns = attrs.fields(kind)
    return kind(*(_READERS[str(column.type)](text) for column, text in zip(columns, fields[1:], strict=False)))


_READERS: Mapping[str, Callable[[str], Any]] = {  # by the type of the field, as its class declares it
    "str": str,
    "str | None": str,
    "bool": lambda text: text == "true",
    "int": lambda text: long_or(text, 0),
}
_KINDS: Mapping[str, type[TraceRecord]] = {kind.__name__: kind for kind in (Pub, SubBefore, SubAfter, EndTransaction)}
FIELDS_MIN: Mapping[str, int] = {  # the fields that must be there: those without a default
    name: sum(column.default is attrs.NOTHING for column in attrs.fields(kind)) for name, kind in _KINDS.items()
}
