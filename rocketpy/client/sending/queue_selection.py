"""Chooses the queue of a message: round robin or by the user's selector; a retry avoids the last broker."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

import attrs

from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.tags import string_hash

from ..messages import Message

INDEX_MASK = 0x7FFF_FFFF


class QueueSelector(Protocol):
    """Picks the queue for a message; None means that the send fails. Equal keys must give equal queues."""

    def select(self, queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue | None: ...


@attrs.define
class RoundRobin:
    """A counter that starts anywhere, so that producers started together do not march in step."""

    index: int

    @classmethod
    def start_anywhere(cls, rng: random.Random) -> RoundRobin:
        return cls(rng.getrandbits(31))

    def next_index(self) -> int:
        self.index = (self.index + 1) & INDEX_MASK
        return self.index

    def next_queue(self, queues: Sequence[MessageQueue], avoid_broker: str | None = None) -> MessageQueue:
        """The next queue in turn; on a retry the next that lives on another broker, if there is one.

        Source: RocketMQ 4.9 `TopicPublishInfo#selectOneMessageQueue`.
        """
        if avoid_broker is not None:
            for _ in queues:
                queue = queues[self.next_index() % len(queues)]
                if queue.broker_name != avoid_broker:
                    return queue
        self.index = (self.index + 1) & INDEX_MASK
        return queues[self.index % len(queues)]


def java_hash(key: object) -> int:
    """`Object.hashCode()` of what a Java program would pass for the key: text, bool, int (32 bit, else as a Long)."""
    if isinstance(key, str):
        return string_hash(key)
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        if -(1 << 31) <= key < (1 << 31):
            return key
        folded = (key ^ (key >> 32)) & 0xFFFF_FFFF
        return folded - (1 << 32) if folded >= (1 << 31) else folded
    raise TypeError(f"a sharding key is text or an integer, not {type(key).__name__}")


@attrs.frozen
class JavaHashSelector:
    """`SelectMessageQueueByHash`: the absolute value of Java's remainder, which truncates towards zero."""

    def select(self, queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue | None:
        return queues[abs(java_hash(key)) % len(queues)]


def fnv1a_32(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFF_FFFF
    return value


@attrs.frozen
class Fnv1aSelector:
    """The Go client's selector, for a topic whose ordered producers are Go programs too."""

    def select(self, queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue | None:
        return queues[fnv1a_32(str(key).encode()) % len(queues)]


@attrs.frozen
class RandomSelector:
    """Any queue; the key does not matter."""

    rng: random.Random = attrs.field(factory=random.Random)

    def select(self, queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue | None:
        return self.rng.choice(queues)
