"""Offsets of queues: as users write them, and as a streaming query's checkpoint keeps them.

A checkpoint's document, where the offsets of `q` are exclusive ends::

    {"first": {topic: {broker: {"0": [17, 1764000000000]}}}, "from": {topic: {broker: {"0": 17}}},
     "q": {topic: {broker: {"0": 123}}}, "v": 1}

Spark compares documents as text, so keys are sorted at every level. `from` holds where the batch that ends here began
in queues that do not go on from the batch before: all queues of the first batch, later new ones, and those of a topic
that was made again. Without it a restarted query would begin where the queues end by then. `first` has the offset and
the store time (ms) of one message of each topic and broker (first_messages.py); documents of older releases have none.
`init` marks a start that Spark has not written down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from rocketpy.client.cluster.time_search import StoredAt
from rocketpy.errors import ConfigError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.numbers import int_or

EARLIEST, LATEST = -2, -1
VERSION = 1
QUEUE_ID_MAX = 65_535

Offsets = dict[MessageQueue, int]
Firsts = dict[MessageQueue, StoredAt]


def offsets_of(tree: Mapping[str, Any]) -> Offsets:
    """The offsets of `{topic: {broker: {"0": offset}}}`.

    Raises:
        ValueError: of another form.
    """
    offsets: Offsets = {}
    for topic, brokers in tree.items():
        for broker, queues in _object(brokers, topic).items():
            for queue_id, offset in _object(queues, f"{topic}.{broker}").items():
                number = int_or(queue_id, -1)
                if not 0 <= number <= QUEUE_ID_MAX or str(number) != queue_id:
                    raise ValueError(f'names queue "{queue_id[:20]}" of {topic}.{broker}, which is no number')
                if isinstance(offset, bool) or not isinstance(offset, int) or offset < EARLIEST:
                    raise ValueError(f"has {offset!r} for queue {queue_id} of {topic}.{broker}, which is no offset")
                offsets[MessageQueue(topic, broker, number)] = offset
    return offsets


def queues_of(tree: Mapping[str, Any]) -> frozenset[MessageQueue]:
    """The queues of `{topic: {broker: [0, 1]}}`. Raises ValueError."""
    queues = set()
    for topic, brokers in tree.items():
        for broker, numbers in _object(brokers, topic).items():
            for number in numbers if isinstance(numbers, list) else [None]:
                if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= QUEUE_ID_MAX:
                    raise ValueError(f"has {number!r} as a queue of {topic}.{broker}; wanted is a list of numbers")
                queues.add(MessageQueue(topic, broker, number))
    if not queues:
        raise ValueError("names no queue")
    return frozenset(queues)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"has {value!r} for {where}, which is no object")
    return value


def firsts_of(tree: Mapping[str, Any]) -> Firsts:
    """The messages of `{topic: {broker: {"0": [offset, time]}}}`. Raises ValueError."""
    firsts: Firsts = {}
    for topic, brokers in tree.items():
        for broker, queues in _object(brokers, topic).items():
            for queue_id, pair in _object(queues, f"{topic}.{broker}").items():
                if not isinstance(pair, list) or [type(number) for number in pair] != [int, int]:
                    raise ValueError(f"has {pair!r} for queue {queue_id} of {topic}.{broker}: no offset and time")
                firsts[MessageQueue(topic, broker, int_or(queue_id, 0))] = StoredAt(*pair)
    return firsts


def tree_of_firsts(firsts: Firsts) -> dict[str, Any]:
    """Return the document that `firsts_of` reads."""
    return tree_of({queue: [first.offset, first.time_ms] for queue, first in firsts.items()})


def tree_of(offsets: Mapping[MessageQueue, Any]) -> dict[str, Any]:
    """As users and documents write them, sorted."""
    tree: dict[str, Any] = {}
    for queue in sorted(offsets, key=lambda queue: (queue.topic, queue.broker_name, str(queue.queue_id))):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return tree


@attrs.frozen
class Document:
    """The offsets at which a batch ends."""

    ends: Offsets
    begins: Offsets = attrs.field(factory=dict)  # of queues that do not go on from the batch before
    is_initial: bool = False
    firsts: Firsts = attrs.field(factory=dict)

    def encode(self) -> dict[str, Any]:
        """For Spark; the order of keys is part of it."""
        document: dict[str, Any] = {}
        if self.firsts:
            document["first"] = tree_of_firsts(self.firsts)
        if self.begins:
            document["from"] = tree_of(self.begins)
        if self.is_initial:
            document["init"] = True
        document["q"] = tree_of(self.ends)
        document["v"] = VERSION
        return document

    @classmethod
    def decode(cls, document: Mapping[str, Any]) -> Document:
        """Raises ConfigError for a document of another version or source."""
        if document.get("v") != VERSION:
            raise ConfigError(
                f"the checkpoint has offsets of version {document.get('v')!r}, this release reads {VERSION}: go on "
                "with the release that wrote it, or begin with a new checkpointLocation"
            )
        try:
            begins = offsets_of(_object(document.get("from", {}), "from"))
            firsts = firsts_of(_object(document.get("first", {}), "first"))
            return cls(offsets_of(_object(document["q"], "q")), begins, document.get("init") is True, firsts)
        except (KeyError, ValueError) as error:
            raise ConfigError(f"the checkpoint holds no offsets of this source: {error}") from error


def begin_of(queue: MessageQueue, start: Document, end: Document) -> int | None:
    """Return the offset at which a batch begins in a queue; None if neither document has it."""
    return end.begins.get(queue, start.ends.get(queue))
