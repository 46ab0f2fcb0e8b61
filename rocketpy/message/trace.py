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

import attrs

from .numbers import int_or, long_or

FIELD_END, RECORD_END = "\x01", "\x02"
NULL = "null"


class MessageKind(IntEnum):
    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3


class ContextCode(IntEnum):
    """How a listener ended."""

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
        return _record("Pub", fields)


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
        return _record("SubBefore", attrs.astuple(self))


@attrs.frozen
class SubAfter:
    """What a listener made of a message. `timestamp_ms` and `group` may be missing: clients of the cloud omit them."""

    request_id: str
    msg_id: str
    cost_ms: int
    is_success: bool
    keys: str
    context_code: int
    timestamp_ms: int = 0
    group: str = ""

    def encode(self) -> str:
        return _record("SubAfter", attrs.astuple(self))


@attrs.frozen
class EndTransaction:
    """What a producer told the broker about a transaction. `state` is the name of Java's LocalTransactionState."""

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
        return _record("EndTransaction", attrs.astuple(self))


TraceRecord = Pub | SubBefore | SubAfter | EndTransaction


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, IntEnum):
        return str(int(value))
    text = NULL if value is None or value == "" else str(value)
    return text.replace(FIELD_END, "").replace(RECORD_END, "")


def _record(name: str, fields: Iterable[object]) -> str:
    return FIELD_END.join([name, *map(_text, fields)]) + RECORD_END


def decode_records(text: str) -> list[TraceRecord]:
    """The records of a body. Those of other kinds, and torn ones, are passed over."""
    found = (_decode(record.split(FIELD_END)) for record in text.split(RECORD_END))
    return [record for record in found if record is not None]


def _decode(fields: list[str]) -> TraceRecord | None:
    read = _READERS.get(fields[0])
    if read is None:
        return None
    count, make = read
    return make(fields[1:]) if len(fields) > count else None


def _pub(values: list[str]) -> Pub:
    return Pub(
        timestamp_ms=long_or(values[0], 0),
        region_id=values[1],
        group=values[2],
        topic=values[3],
        msg_id=values[4],
        tags=values[5],
        keys=values[6],
        store_host=values[7],
        body_size=int_or(values[8], 0),
        cost_ms=int_or(values[9], 0),
        kind=int_or(values[10], 0),
        offset_msg_id=values[11],
        is_success=values[12] == "true",
        client_host=values[13] if len(values) > 13 else None,
    )


def _sub_before(values: list[str]) -> SubBefore:
    timestamp, region_id, group, request_id, msg_id, retry_times, keys = values[:7]
    return SubBefore(long_or(timestamp, 0), region_id, group, request_id, msg_id, int_or(retry_times, 0), keys)


def _sub_after(values: list[str]) -> SubAfter:
    return SubAfter(
        request_id=values[0],
        msg_id=values[1],
        cost_ms=int_or(values[2], 0),
        is_success=values[3] == "true",
        keys=values[4],
        context_code=int_or(values[5], 0),
        timestamp_ms=long_or(values[6], 0) if len(values) > 6 else 0,
        group=values[7] if len(values) > 7 else "",
    )


def _end_transaction(values: list[str]) -> EndTransaction:
    return EndTransaction(
        timestamp_ms=long_or(values[0], 0),
        region_id=values[1],
        group=values[2],
        topic=values[3],
        msg_id=values[4],
        tags=values[5],
        keys=values[6],
        store_host=values[7],
        kind=int_or(values[8], 0),
        transaction_id=values[9],
        state=values[10],
        is_checked=values[11] == "true",
    )


_READERS: Mapping[str, tuple[int, Callable[[list[str]], TraceRecord]]] = {  # fields that must be there
    "Pub": (13, _pub),
    "SubBefore": (7, _sub_before),
    "SubAfter": (6, _sub_after),
    "EndTransaction": (12, _end_transaction),
}
FIELDS_MIN: Mapping[str, int] = {kind: count for kind, (count, _) in _READERS.items()}
