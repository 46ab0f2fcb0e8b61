"""Message: what a producer sends. MessageExt: what a consumer gets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import attrs

from rocketpy.errors import MessageInvalid
from rocketpy.units import PhyOffset, QueueOffset

from . import properties as names
from .compression import decompress_body
from .host import Host
from .message_id import encode_offset_message_id
from .numbers import int_or
from .properties import decode_properties, encode_properties
from .record import StoredRecord, decode_records

_NO_QUEUE_OFFSET = QueueOffset(0)
_NO_PHY_OFFSET = PhyOffset(0)


@attrs.define
class Message:
    """A topic, a body of bytes, and properties. Tags, keys and the like are properties with names of their own."""

    topic: str
    body: bytes = b""
    flag: int = 0
    properties: dict[str, str] = attrs.field(factory=dict)
    transaction_id: str | None = None

    @classmethod
    def create(
        cls,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        flag: int = 0,
        delay_level: int = 0,
        wait_store: bool = True,
        properties: dict[str, str] | None = None,
    ) -> Self:
        """A message as users think of it.

        Raises:
            MessageInvalid: one of `properties` has a name that the system reserves.
        """
        message = cls(topic=topic, body=body, flag=flag)
        for name, value in (properties or {}).items():
            message.put_user_property(name, value)
        message.tags = tags
        message.keys = [keys] if isinstance(keys, str) else list(keys or ())
        message.delay_level = delay_level
        message.wait_store = wait_store
        return message

    def put_user_property(self, name: str, value: str) -> None:
        """Set a property of the user's own.

        Raises:
            MessageInvalid: the name is reserved, or name or value is empty (an empty value does not arrive).
        """
        if name in names.SYSTEM_PROPERTIES:
            raise MessageInvalid(f"The Property<{name}> is used by system, input another please")
        if not name.strip() or not value.strip():
            raise MessageInvalid("The name or value of property can not be blank string!")
        self.properties[name] = value

    def _put(self, name: str, value: str | None) -> None:
        if value:
            self.properties[name] = value
        else:
            self.properties.pop(name, None)

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @tags.setter
    def tags(self, tags: str | None) -> None:
        self._put(names.TAGS, tags)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(names.KEYS, "").split()

    @keys.setter
    def keys(self, keys: Iterable[str]) -> None:
        self._put(names.KEYS, names.KEY_SEPARATOR.join(keys))

    @property
    def delay_level(self) -> int:
        """1 to 18, or 0: deliver at once. A property that is no number counts as 0."""
        return max(0, int_or(self.properties.get(names.DELAY), 0))

    @delay_level.setter
    def delay_level(self, level: int) -> None:
        self._put(names.DELAY, str(level) if level > 0 else None)

    @property
    def wait_store(self) -> bool:
        """Whether the sender waits until the message is flushed and replicated as configured."""
        return self.properties.get(names.WAIT, "true").lower() == "true"

    @wait_store.setter
    def wait_store(self, wait: bool) -> None:
        self._put(names.WAIT, None if wait else "false")

    @property
    def unique_id(self) -> str | None:
        """The id that the producing client gave it."""
        return self.properties.get(names.UNIQ_KEY)

    @property
    def encoded_properties(self) -> str:
        return encode_properties(self.properties)


@attrs.define
class MessageExt(Message):
    """A message that is stored: with where and when. The body is as the producer had it, never compressed."""

    broker_name: str = ""
    queue_id: int = 0
    queue_offset: QueueOffset = _NO_QUEUE_OFFSET
    phy_offset: PhyOffset = _NO_PHY_OFFSET
    sys_flag: int = 0
    body_crc: int = 0
    store_size: int = 0  # bytes of the record
    born_timestamp_ms: int = 0
    born_host: Host = ("0.0.0.0", 0)
    store_timestamp_ms: int = 0
    store_host: Host = ("0.0.0.0", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def offset_message_id(self) -> str:
        """The broker's id: where the message is stored."""
        return encode_offset_message_id(self.store_host, self.phy_offset)

    @property
    def message_id(self) -> str:
        """The client's unique id, or the broker's when the sender gave none."""
        return self.unique_id or self.offset_message_id

    @classmethod
    def from_record(cls, record: StoredRecord, *, broker_name: str = "", inflate: bool = True) -> Self:
        """The message of a record; with `inflate` false the body stays as stored.

        Raises:
            CompressionError: the body cannot be inflated here.
        """
        body, sys_flag = decompress_body(record.body, record.sys_flag) if inflate else (record.body, record.sys_flag)
        return cls(
            topic=record.topic,
            body=body,
            flag=record.flag,
            properties=decode_properties(record.properties.decode("utf-8", "replace")),
            broker_name=broker_name,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            phy_offset=record.phy_offset,
            sys_flag=sys_flag,
            body_crc=record.body_crc,
            store_size=record.size,
            born_timestamp_ms=record.born_timestamp_ms,
            born_host=record.born_host,
            store_timestamp_ms=record.store_timestamp_ms,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=record.prepared_transaction_offset,
        )


def decode_messages(body: bytes, *, broker_name: str = "") -> list[MessageExt]:
    """The messages of a pull or query reply.

    Raises:
        RecordCorrupt, CompressionError: a record is damaged or its body cannot be inflated here.
    """
    return [MessageExt.from_record(record, broker_name=broker_name) for record in decode_records(body)]
