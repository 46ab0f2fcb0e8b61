"""Messages as programs see them: what is sent and what is received. Text is `str`, bodies are `bytes`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import attrs

from rocketpy.errors import MessageInvalid
from rocketpy.message import properties as names
from rocketpy.message.batch import ENTRIES_MAX
from rocketpy.message.host import Host, unpack_host
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import NOT_ALLOWED_SEND_TOPICS, is_retry_topic, reply_topic, topic_fault
from rocketpy.message.numbers import int_or, long_or
from rocketpy.message.record import FixedFields, fixed_fields

BATCH_ENTRY_OVERHEAD = 22  # bytes of lengths, magic, CRC and flag around each member of a batch


def _as_tuple(keys: str | Iterable[str]) -> tuple[str, ...]:
    return (keys,) if isinstance(keys, str) else tuple(keys)


def _is_bytes(_: object, attribute: attrs.Attribute[bytes], value: object) -> None:
    if not isinstance(value, bytes):
        raise MessageInvalid(f"{attribute.name} must be bytes, not {type(value).__name__}: encode text yourself")


@attrs.frozen
class Message:
    """A message to send.

    Args:
        tags: exactly one tag; `||` belongs to subscriptions.
        keys: business keys for queries; joined by spaces, so none may hold one.
        delay_level: 1..18 by default (1s 5s 10s 30s 1m ... 2h); 0 for no delay.
        delay_ms: deliver it so many milliseconds after the broker has it; 0 for no delay. For rocketpy and RocketMQ 5;
            4.x brokers deliver at once. A message has at most one of delay_level, delay_ms and deliver_at_ms.
        deliver_at_ms: deliver it at this time, ms since 1970; as delay_ms.
        order_key: messages with equal keys go to one queue.
        born_at_ms: its born timestamp, ms since 1970; 0: the time at which it is sent.
        msg_id: its id (UNIQ_KEY), of a message that is sent again or copied; None: sending makes one.
    """

    topic: str
    body: bytes = attrs.field(validator=_is_bytes, repr=lambda body: f"<{len(body)} bytes>")
    tags: str | None = None
    keys: tuple[str, ...] = attrs.field(default=(), converter=_as_tuple)
    properties: Mapping[str, str] = attrs.field(factory=dict)
    flag: int = 0
    delay_level: int = 0
    wait_store: bool = True
    order_key: str | int | None = None
    delay_ms: int = 0
    deliver_at_ms: int = 0
    born_at_ms: int = 0
    msg_id: str | None = None

    @property
    def is_delayed(self) -> bool:
        return bool(self.delay_level or self.delay_ms or self.deliver_at_ms)

    @property
    def chooses_queue(self) -> bool:
        """Return True if the queue follows from the message itself."""
        return self.order_key is not None

    def to_properties(self) -> dict[str, str]:
        """All properties under their wire names, well-known ones included."""
        wire = dict(self.properties)
        if self.tags:
            wire[names.TAGS] = self.tags
        if self.keys:
            wire[names.KEYS] = names.KEY_SEPARATOR.join(self.keys)
        if self.delay_level:
            wire[names.DELAY] = str(self.delay_level)
        if self.delay_ms:
            wire[names.TIMER_DELAY_MS] = str(self.delay_ms)
        if self.deliver_at_ms:
            wire[names.TIMER_DELIVER_MS] = str(self.deliver_at_ms)
        if self.msg_id:
            wire[names.UNIQ_KEY] = self.msg_id
        wire[names.WAIT] = "true" if self.wait_store else "false"
        return wire


@attrs.frozen
class Reply(Message):
    """The reply to a request, made by `ReceivedMessage.reply`. Sent as any message, by any producer.

    Args:
        request_properties: the properties by which the requester finds it.
        broker_name: the broker that has the request; the requester is connected to it, so the reply goes there if it
            can be written to.
    """

    request_properties: Mapping[str, str] = attrs.field(factory=dict)
    broker_name: str = ""

    @property
    def chooses_queue(self) -> bool:
        return True

    def to_properties(self) -> dict[str, str]:
        return super().to_properties() | dict(self.request_properties)


def _properties_of(properties: bytes | Mapping[str, str]) -> Mapping[str, str]:
    if isinstance(properties, bytes):
        return names.decode_properties(properties.decode("utf-8", "replace"))
    return properties


def _fields_of(record: bytes | FixedFields) -> FixedFields:
    return fixed_fields(record) if isinstance(record, bytes) else record


_host_of = functools.lru_cache(maxsize=1024)(unpack_host)


@attrs.define
class ReceivedMessage:
    """A message as a consumer gets it; to be read only. A retried message shows the topic it was first sent to.

    `properties` holds everything, TAGS and KEYS included. `msg_id` is the producer's id and survives retries;
    `offset_msg_id` names this copy on this broker. Properties, ids and hosts are decoded when they are looked at: that
    takes as long as everything else that a consumer does.

    `_record` has the fixed fields of its broker's record, encoded until one is looked at; the phy_offset is -1 if it
    comes from no log.
    """

    topic: str
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")
    queue: MessageQueue
    queue_offset: int
    _properties: bytes | Mapping[str, str] = attrs.field(eq=_properties_of, repr=False)
    _record: bytes | FixedFields = attrs.field(eq=_fields_of, repr=False)

    @property
    def _fields(self) -> FixedFields:
        if isinstance(self._record, bytes):
            self._record = fixed_fields(self._record)
        return self._record

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties by their wire names."""
        if isinstance(self._properties, bytes):
            self._properties = _properties_of(self._properties)
        return self._properties

    @property
    def msg_id(self) -> str:
        """The id that its producer gave it; `offset_msg_id` if that gave none."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        """The id that its broker gave it; empty if it comes from no log."""
        return "" if self.phy_offset < 0 else encode_offset_message_id(self.store_host, self.phy_offset)

    @property
    def reconsume_times(self) -> int:
        """The number of earlier deliveries."""
        return self._fields.reconsume_times

    def tried_again(self) -> ReceivedMessage:
        """Return the message with one more attempt counted."""
        return attrs.evolve(self, record=self._fields._replace(reconsume_times=self.reconsume_times + 1))

    @property
    def stored_size(self) -> int:
        """Bytes of its body as its broker stored it, which may be compressed."""
        return self._fields.body_size

    def without_body(self) -> ReceivedMessage:
        """Return the message without its body, for lists of many; `stored_size` stays."""
        return attrs.evolve(self, body=b"")

    @property
    def phy_offset(self) -> int:
        """Its offset in the CommitLog of its broker."""
        return self._fields.phy_offset

    @property
    def flag(self) -> int:
        """A number of its producer's."""
        return self._fields.flag

    @property
    def sys_flag(self) -> int:
        """Bits for compression, transactions and addresses, as stored."""
        return self._fields.sys_flag

    @property
    def born_timestamp_ms(self) -> int:
        """The time of its send, ms since 1970."""
        return self._fields.born_timestamp_ms

    @property
    def store_timestamp_ms(self) -> int:
        """The time at which it was stored, ms since 1970."""
        return self._fields.store_timestamp_ms

    @property
    def born_host(self) -> Host:
        """Address and port of its producer."""
        return _host_of(self._fields.born_host)

    @property
    def store_host(self) -> Host:
        """Address and port of its broker."""
        return _host_of(self._fields.store_host)

    @property
    def body_crc(self) -> int:
        """CRC-32 of the stored body, 31 bits."""
        return self._fields.body_crc

    @property
    def store_size(self) -> int:
        """Bytes of its record in the CommitLog."""
        return self._fields.size

    @property
    def prepared_transaction_offset(self) -> int:
        """The offset of its half message in the CommitLog; 0 for none."""
        return self._fields.prepared_transaction_offset

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for key in self.properties.get(names.KEYS, "").split(names.KEY_SEPARATOR) if key)

    @property
    def delay_level(self) -> int:
        """1 to 18, or 0: not delayed. A property that is no number counts as 0."""
        return max(0, int_or(self.properties.get(names.DELAY), 0))

    @property
    def deliver_at_ms(self) -> int:
        """The time of a timer (`Message.delay_ms`, `deliver_at_ms`), ms since 1970; 0 if it was none."""
        return max(0, long_or(self.properties.get(names.TIMER_OUT_MS), 0))

    @property
    def is_request(self) -> bool:
        """Its sender waits for a reply."""
        return names.REPLY_TO_CLIENT in self.properties and names.CORRELATION_ID in self.properties

    def reply(self, body: bytes) -> Reply:
        """The message that answers this request: send it with a producer.

        Raises:
            MessageInvalid: this message is no request, or its broker gave it no cluster.
        Source: RocketMQ 4.9 `MessageUtil#createReplyMessage`.
        """
        if not self.is_request:
            raise MessageInvalid(f"message {self.msg_id} is no request: its sender does not wait for a reply")
        cluster = self.properties.get(names.CLUSTER)
        if cluster is None:
            raise MessageInvalid(f"message {self.msg_id} cannot be replied to: its broker gave it no CLUSTER")
        kept = (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL)
        copied = {name: self.properties[name] for name in kept if name in self.properties}
        return Reply(
            reply_topic(cluster),
            body,
            request_properties=copied | {names.MSG_TYPE: names.MSG_TYPE_REPLY},
            broker_name=self.queue.broker_name,
        )

    @property
    def born_time(self) -> datetime:
        return datetime.fromtimestamp(self.born_timestamp_ms / 1000, UTC)

    @property
    def store_time(self) -> datetime:
        return datetime.fromtimestamp(self.store_timestamp_ms / 1000, UTC)


def check_message(message: Message, size_max: int) -> None:
    """Check a message before it is sent. Refuses what every broker would refuse.

    Raises:
        MessageInvalid: says what is wrong.
    Source: RocketMQ 4.9 `Validators#checkMessage`, `Message#putUserProperty`.
    """
    if fault := _send_fault(message.topic):
        raise MessageInvalid(fault)
    if not 0 < len(message.body) <= size_max:
        if not message.body:
            raise MessageInvalid("the message body is empty")
        raise MessageInvalid(f"the message body has {len(message.body)} bytes, allowed are {size_max}")
    if not -1 << 31 <= message.flag < 1 << 31:
        raise MessageInvalid(f"the flag {message.flag} does not fit 32 bits")
    if message.tags is not None and "||" in message.tags:
        raise MessageInvalid(f"a message can have one tag only; {message.tags!r} is a subscription expression")
    for key in message.keys:
        if not key or names.KEY_SEPARATOR in key:
            raise MessageInvalid(f"the key {key!r} is empty or holds a space")
    if message.delay_level or message.delay_ms or message.deliver_at_ms or message.born_at_ms:
        _check_times(message)
    if message.msg_id is not None and not message.msg_id.strip():
        raise MessageInvalid("msg_id is blank: leave it out, and sending makes one")
    if message.properties:
        _check_properties(message.properties)


@functools.lru_cache(maxsize=1024)
def _send_fault(topic: str) -> str | None:
    """Return why no message can be sent to the topic, or None. Remembered: a check takes longer than a send may."""
    if topic in NOT_ALLOWED_SEND_TOPICS:
        return f"sending to the system topic {topic} is forbidden"
    return topic_fault(topic)


def _check_properties(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if not name.strip() or not value.strip():
            raise MessageInvalid(f"the property {name!r}={value!r} has a blank name or value")
        if name in names.SYSTEM_PROPERTIES:
            raise MessageInvalid(f"the property name {name} is reserved")


def _check_times(message: Message) -> None:
    if min(message.delay_ms, message.deliver_at_ms, message.born_at_ms) < 0:
        raise MessageInvalid("delay_ms, deliver_at_ms and born_at_ms cannot be negative")
    if sum(map(bool, (message.delay_level, message.delay_ms, message.deliver_at_ms))) > 1:
        raise MessageInvalid("a message has at most one of delay_level, delay_ms and deliver_at_ms")


def check_batch(messages: Sequence[Message]) -> None:
    """Check that a batch is not empty, mixed, delayed or for a retry topic. Raises MessageInvalid."""
    if not messages:
        raise MessageInvalid("a batch needs at least one message")
    first = messages[0]
    for message in messages:
        if message.topic != first.topic:
            raise MessageInvalid(
                f"all messages of a batch must have the same topic, not {first.topic} and {message.topic}"
            )
        if message.wait_store != first.wait_store:
            raise MessageInvalid("the messages of a batch must have the same wait_store")
        if message.born_at_ms != first.born_at_ms:
            raise MessageInvalid("the messages of a batch must have the same born_at_ms")
        if message.is_delayed:
            raise MessageInvalid("messages of a batch cannot be delayed")
    if is_retry_topic(first.topic):
        raise MessageInvalid("a batch cannot go to a retry topic")


def split_batches(messages: Iterable[Message], max_bytes: int = 1 << 20) -> Iterable[list[Message]]:
    """Cut messages into batches of about `max_bytes` encoded bytes, and of 32 768 messages at most.

    A larger message travels alone.
    """
    batch: list[Message] = []
    batch_bytes = 0
    for message in messages:
        size = BATCH_ENTRY_OVERHEAD + len(message.body)
        size += 2 + sum(len(name.encode()) + len(value.encode()) + 2 for name, value in message.to_properties().items())
        size += 2 + len(names.UNIQ_KEY) + 32  # the id that sending adds
        if batch and (batch_bytes + size > max_bytes or len(batch) == ENTRIES_MAX):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(message)
        batch_bytes += size
    if batch:
        yield batch
