"""Messages as programs see them: what is sent and what is received. Text is `str`, bodies are `bytes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import attrs

from rocketpy.errors import MessageInvalid
from rocketpy.message import properties as names
from rocketpy.message.host import Host
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import NOT_ALLOWED_SEND_TOPICS, is_retry_topic, reply_topic, topic_fault
from rocketpy.message.numbers import int_or, long_or

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


@attrs.frozen
class ReceivedMessage:
    """A message as a consumer gets it. A retried message shows the topic it was first sent to.

    `properties` holds everything, TAGS and KEYS included. `msg_id` is the producer's id and survives retries;
    `offset_msg_id` names this copy on this broker.
    """

    topic: str
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")
    properties: Mapping[str, str]
    queue: MessageQueue
    queue_offset: int
    phy_offset: int
    msg_id: str
    offset_msg_id: str
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    born_host: Host
    store_host: Host
    reconsume_times: int
    body_crc: int
    store_size: int
    prepared_transaction_offset: int = 0

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
    if fault := topic_fault(message.topic):
        raise MessageInvalid(fault)
    if message.topic in NOT_ALLOWED_SEND_TOPICS:
        raise MessageInvalid(f"sending to the system topic {message.topic} is forbidden")
    if not message.body:
        raise MessageInvalid("the message body is empty")
    if len(message.body) > size_max:
        raise MessageInvalid(f"the message body has {len(message.body)} bytes, allowed are {size_max}")
    if message.tags is not None and "||" in message.tags:
        raise MessageInvalid(f"a message can have one tag only; {message.tags!r} is a subscription expression")
    for key in message.keys:
        if not key or names.KEY_SEPARATOR in key:
            raise MessageInvalid(f"the key {key!r} is empty or holds a space")
    if min(message.delay_ms, message.deliver_at_ms, message.born_at_ms) < 0:
        raise MessageInvalid("delay_ms, deliver_at_ms and born_at_ms cannot be negative")
    if sum(map(bool, (message.delay_level, message.delay_ms, message.deliver_at_ms))) > 1:
        raise MessageInvalid("a message has at most one of delay_level, delay_ms and deliver_at_ms")
    if message.msg_id is not None and not message.msg_id.strip():
        raise MessageInvalid("msg_id is blank: leave it out, and sending makes one")
    for name, value in message.properties.items():
        if not name.strip() or not value.strip():
            raise MessageInvalid(f"the property {name!r}={value!r} has a blank name or value")
        if name in names.SYSTEM_PROPERTIES:
            raise MessageInvalid(f"the property name {name} is reserved")


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
    """Cut messages into batches of about `max_bytes` encoded bytes each; a larger message travels alone."""
    batch: list[Message] = []
    batch_bytes = 0
    for message in messages:
        size = BATCH_ENTRY_OVERHEAD + len(message.body)
        size += 2 + sum(len(name.encode()) + len(value.encode()) + 2 for name, value in message.to_properties().items())
        size += 2 + len(names.UNIQ_KEY) + 32  # the id that sending adds
        if batch and batch_bytes + size > max_bytes:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(message)
        batch_bytes += size
    if batch:
        yield batch
