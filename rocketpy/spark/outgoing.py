"""Rows to messages: what each column of a DataFrame becomes, and which rows no broker would take.

The options of the sink `rocketmq` say what is sent, and how.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from rocketpy.client.messages import Message, check_message
from rocketpy.client.options import ProducerOptions
from rocketpy.client.sending.sender import Member
from rocketpy.errors import ConfigError, MessageInvalid
from rocketpy.message.batch import ENTRIES_MAX
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import is_retry_topic
from rocketpy.message.properties import (
    KEY_SEPARATOR,
    KEYS,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    SYSTEM_PROPERTIES,
    TAGS,
    UNIQ_KEY,
    decode_properties,
)

from .columns import TIMESTAMP, nearest
from .connection import ConnectionOptions
from .options import boolean, one_of, option, size, text, whole

SPARK_ID = "SPARK_ID"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "flag": ("int",),
    "delayLevel": ("int",),
    "deliverTimeMs": ("bigint",),
    "shardingKey": ("string",),
    "brokerName": ("string",),
    "queueId": ("int",),
    "msgId": ("string",),
    "bornTimestamp": ("timestamp", "bigint"),
}
DELAY_LEVEL_MAX = 18  # brokers deliver a higher one after the time of their highest, two hours
PLAIN = dict.fromkeys(("body", "topic", "tags", "keys", "flag", "msgId", "bornTimestamp"))
"""The columns of rows that become members of batches without a Message of each; in this order."""
YEAR_10000_US = 253_402_300_800_000_000
TOPICS_MAX = 1024  # that are remembered
SAMPLE_BYTES = 65_536  # of a body that is too large, in the dead letter topic
MIB = 1 << 20


@attrs.frozen(kw_only=True, slots=False)
class SinkOptions(ConnectionOptions):
    """The target of the messages, the size and number of requests, and the handling of a message that no broker
    takes."""

    topic: str | None = option("topic", text, None, "of all messages; otherwise there is a column topic")
    producer_group: str = option("producerGroup", text, "spark", "name of the producer group")
    batch_bytes: int = option("batchBytes", size(1, 64 * MIB), 512 << 10, "body bytes of one request, about")
    batch_records: int = option("batchRecords", whole(1, ENTRIES_MAX), 512, "messages of one request")
    in_flight: int = option("inFlight", whole(1, 1024), 8, "requests without an answer, for each task")
    send_timeout_ms: int = option("sendTimeoutMs", whole(1, 3_600_000), 5000, "for each attempt")
    retries: int = option("retryTimes", whole(0, 100), 2, "further attempts after a failure that may pass")
    compress_above: int = option("compressAbove", size(0, 1 << 31), 4096, "bodies of this size are compressed")
    message_size_max: int = option("maxMessageSize", size(1, 1 << 30), 4 * MIB, "of a body; brokers have a limit, too")
    delivery: str = option("delivery", one_of("atLeastOnce"), "atLeastOnce", "what a task that is repeated may do")
    idempotence_key: bool = option("idempotenceKey", boolean, True, "property SPARK_ID, the same in each repetition")
    on_too_large: str = option("onTooLarge", one_of("fail", "deadLetter"), "fail", "a body above maxMessageSize")
    on_not_stored_ok: str = option(
        "onNotStoredOk", one_of("fail", "accept"), "fail", "a status other than SEND_OK: stored, may still be lost"
    )
    ignore_unknown_columns: bool = option("ignoreUnknownColumns", boolean, False, "leave out what cannot be sent")
    dead_letter_topic: str | None = option("deadLetterTopic", text, None, "for onTooLarge=deadLetter")

    def __attrs_post_init__(self) -> None:
        if self.on_too_large == "deadLetter" and self.dead_letter_topic is None:
            raise ConfigError("is needed for onTooLarge=deadLetter", key="deadLetterTopic")
        if self.batch_bytes > self.message_size_max:
            raise ConfigError("must not be above maxMessageSize", key="batchBytes")

    def client(self) -> ProducerOptions:
        """Options of the producer. Raises ConfigError as `client_options`."""
        return self.producer_options(
            send_timeout=self.send_timeout_ms / 1000,
            retries=self.retries,
            async_retries=self.retries,
            compress_over=self.compress_above,
            message_size_max=self.message_size_max,
        )


@attrs.frozen
class Outgoing:
    """A message, where it must go, and the row that it was."""

    message: Message
    row: int  # in its task
    queue: MessageQueue | None = None
    sharding_key: str | None = None

    @property
    def topic(self) -> str:
        return self.message.topic

    @property
    def born_at_ms(self) -> int:
        return self.message.born_at_ms


class PlainRow(NamedTuple):
    """A row without a delay, a queue and properties of its own, as most rows are: a member of a batch, checked."""

    topic: str
    row: int  # in its task
    member: Member
    born_at_ms: int

    @property
    def message(self) -> Message:
        """The row as a message of its own."""
        body, properties, msg_id, flag = self.member
        given = decode_properties(properties)
        tags, keys = given.pop(TAGS, None), _keys(given.pop(KEYS, None))
        return Message(
            self.topic,
            body,
            tags=tags,
            keys=keys,
            properties=given,
            flag=flag,
            msg_id=msg_id,
            born_at_ms=self.born_at_ms,
        )


def row_text(row: int, topic: str | None) -> str:
    """A row, as errors name it."""
    return f"row {row} of this task (topic {topic})"


class RowRefused(MessageInvalid):
    """A row that cannot be sent: names the row and the reason."""

    def __init__(self, row: int, topic: str | None, reason: str) -> None:
        self.row = row
        super().__init__(f"{row_text(row, topic)}: {reason}")


def sent_columns(names: Sequence[str], options: SinkOptions) -> list[str]:
    """The columns that become messages: all, or with ignoreUnknownColumns those that the sink knows.

    In rows with a queueOffset, brokerName and queueId say where messages were stored: they choose no queue then.
    """
    if not options.ignore_unknown_columns:
        return list(names)
    of_stored = {"brokerName", "queueId"} if "queueOffset" in names else set()
    return [name for name in names if name in COLUMNS and name not in of_stored]


def check_schema(schema: Any, options: SinkOptions) -> None:
    """Check the columns of what is written.

    Raises:
        ConfigError: a column is unknown, missing, or of another type.
    """
    types = {field.name: field.dataType.simpleString() for field in schema}
    found = {name: types[name] for name in sent_columns(list(types), options)}
    for name, kind in found.items():
        if name not in COLUMNS:
            raise ConfigError(
                f'the sink has no column "{name}"{nearest(name, list(COLUMNS)) or "."} It takes {", ".join(COLUMNS)}; '
                "leave out others with select or drop, or with ignoreUnknownColumns=true"
            )
        if kind not in COLUMNS[name]:
            raise ConfigError(f"column {name} must be {' or '.join(COLUMNS[name])}, it is {kind}: cast it")
    if "body" not in found:
        raise ConfigError("a column body (binary or string) is needed")
    if "topic" not in found and options.topic is None:
        raise ConfigError("a column topic or the option topic is needed")
    if ("queueId" in found) != ("brokerName" in found):
        raise ConfigError("the columns brokerName and queueId choose a queue together: one of them is missing")


@attrs.define(eq=False)
class RowReader:
    """The rows of one task as messages.

    Args:
        identity: begin of SPARK_ID: the same whenever the same rows are written again.
    """

    options: SinkOptions
    identity: str
    rows: int = 0
    _plain_topics: set[str] = attrs.field(init=False, factory=set)  # that were looked at

    def messages(self, batch: Any) -> Iterator[Outgoing | PlainRow]:
        """The messages of an Arrow batch. Raises RowRefused."""
        names = sent_columns(batch.schema.names, self.options)
        columns = {name: self._values(name, batch.column(name)) for name in names}
        if set(names) <= PLAIN.keys():
            yield from self._plain_rows(columns)
            return
        for values in zip(*columns.values(), strict=True):
            yield self.message(dict(zip(names, values, strict=True)))

    def _plain_rows(self, columns: Mapping[str, Sequence[Any]]) -> Iterator[Outgoing | PlainRow]:
        """Rows of columns that plain rows have: a row that is none, or may be refused, becomes a message by itself."""
        body_end = min(self.options.compress_above, self.options.message_size_max + 1)
        prefix = f"{SPARK_ID}{NAME_VALUE_SEPARATOR}{self.identity}:" if self.options.idempotence_key else None
        fixed = self.options.topic
        absent = [None] * len(columns["body"])
        for values in zip(*(columns.get(name, absent) for name in PLAIN), strict=True):
            body, topic, tags, keys, flag, msg_id, born = values
            topic = fixed or topic
            if body.__class__ is str:
                body = body.encode()
            pairs = [] if prefix is None else [f"{prefix}{self.rows}"]
            if tags:
                pairs.append(f"{TAGS}{NAME_VALUE_SEPARATOR}{tags}")
            if keys:
                pairs.append(f"{KEYS}{NAME_VALUE_SEPARATOR}{keys}")
            text = PROPERTY_SEPARATOR.join(pairs)
            born_at_ms = 0 if born is None else _milliseconds(born)
            if (
                not body
                or len(body) >= body_end
                or not (topic in self._plain_topics or self._is_plain_topic(topic))
                or (len(pairs) > (prefix is not None) and not _is_plain_text(text, len(pairs), tags, keys))
                or born_at_ms < 0
                or not (msg_id is None or (msg_id.isascii() and msg_id.isalnum()))
            ):
                yield self.message(dict(zip(PLAIN, values, strict=True)))
                continue
            yield PlainRow(topic, self.rows, Member(body, text, msg_id, flag or 0), born_at_ms)
            self.rows += 1

    def _is_plain_topic(self, topic: str | None) -> bool:
        """Return True if batches may go to the topic."""
        if not topic or is_retry_topic(topic):
            return False
        try:
            check_message(Message(topic, b"x"), 1)
        except MessageInvalid:
            return False
        if len(self._plain_topics) < TOPICS_MAX:
            self._plain_topics.add(topic)
        return True

    def _values(self, name: str, column: Any) -> list[Any]:
        """The values of a column. Raises RowRefused: one has no value in Python, as a time after the year 9999."""
        try:
            return list((_in_milliseconds(column) if name == "bornTimestamp" else column).to_pylist())
        except (ValueError, OverflowError):
            for index, value in enumerate(column):
                try:
                    value.as_py()
                except (ValueError, OverflowError) as error:
                    raise RowRefused(self.rows + index, self.options.topic, f"column {name}: {error}") from error
            raise

    def message(self, row: Mapping[str, Any]) -> Outgoing:
        """The next row, by its columns. Raises RowRefused."""
        outgoing = self._message(row)
        self.rows += 1
        return outgoing

    def _message(self, row: Mapping[str, Any]) -> Outgoing:
        topic = self.options.topic or row.get("topic")
        if not topic:
            raise RowRefused(self.rows, None, "column topic is null or empty, and there is no option topic")
        body = row["body"]
        if body is None:
            raise RowRefused(self.rows, topic, "column body is null")
        if not 0 <= (row.get("delayLevel") or 0) <= DELAY_LEVEL_MAX:
            reason = f"column delayLevel is {row['delayLevel']}, levels are 1 to {DELAY_LEVEL_MAX}, 0 is none"
            raise RowRefused(self.rows, topic, reason)
        message = Message(
            topic,
            body.encode() if isinstance(body, str) else bytes(body),
            tags=row.get("tags"),
            keys=_keys(row.get("keys")),
            properties=self._properties(row),
            flag=row.get("flag") or 0,
            delay_level=row.get("delayLevel") or 0,
            deliver_at_ms=row.get("deliverTimeMs") or 0,
            msg_id=row.get("msgId"),
            born_at_ms=_milliseconds(row.get("bornTimestamp")),
        )
        message = self._checked(message)
        queue_id, broker_name = row.get("queueId"), row.get("brokerName")
        if (queue_id is None) != (broker_name is None):
            raise RowRefused(self.rows, topic, "one of brokerName and queueId is null: both choose a queue, or none")
        if message.topic != topic:  # a dead letter: its topic may have other queues, and needs no order
            return Outgoing(message, self.rows)
        queue = None if queue_id is None else MessageQueue(topic, str(broker_name), queue_id)
        return Outgoing(message, self.rows, queue, row.get("shardingKey"))

    def _properties(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Names that clients and brokers set are left out: what was read from a topic can be written to another."""
        given = dict(row.get("properties") or ())
        kept = {name: value for name, value in given.items() if name not in SYSTEM_PROPERTIES and name != UNIQ_KEY}
        if self.options.idempotence_key:
            kept[SPARK_ID] = f"{self.identity}:{self.rows}"
        return kept

    def _checked(self, message: Message) -> Message:
        """The message, or its substitute for the dead letter topic. Raises RowRefused."""
        options = self.options
        if len(message.body) > options.message_size_max and options.dead_letter_topic is not None:
            reason = f"the body has {len(message.body)} bytes, allowed are {options.message_size_max}"
            origin = {"ORIGIN_TOPIC": message.topic, "ORIGIN_SIZE": str(len(message.body)), "ORIGIN_REASON": reason}
            sample = message.body[: min(SAMPLE_BYTES, options.message_size_max)]
            properties = {**message.properties, **origin}
            return attrs.evolve(message, topic=options.dead_letter_topic, body=sample, properties=properties)
        try:
            check_message(message, options.message_size_max)
        except (MessageInvalid, AttributeError, TypeError) as error:
            raise RowRefused(self.rows, message.topic, str(error)) from error
        return message


def _is_plain_text(text: str, pairs: int, tags: str | None, keys: Any) -> bool:
    """Return True if encoded properties have tags and keys as sending would encode and accept them."""
    return (
        text.count(NAME_VALUE_SEPARATOR) == pairs
        and text.count(PROPERTY_SEPARATOR) == pairs - 1
        and "||" not in (tags or "")
        and (not keys or (keys.__class__ is str and KEY_SEPARATOR.join(_keys(keys)) == keys))
    )


def _in_milliseconds(column: Any) -> Any:
    """Times as ms since 1970, if all are in the years 1970 to 9999: a datetime of each takes ten times as long."""
    if column.type != TIMESTAMP:
        return column
    times = column.cast(pa.int64())
    ends = pc.min_max(times)
    if not ends["min"].is_valid or ends["min"].as_py() < 0 or ends["max"].as_py() >= YEAR_10000_US:
        return column
    return pc.divide(times, 1000)


def _milliseconds(value: datetime | int | None) -> int:
    """A time as ms since 1970; 0 for none."""
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(milliseconds=1)
    return value or 0


def _keys(value: str | list[str] | None) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(key for key in value.split(KEY_SEPARATOR) if key)
    return tuple(value or ())
