"""Detects a topic that was deleted and made again since a query or an archive run read it.

On brokers of RocketMQ the new topic counts its offsets from 0, so the positions of a query may be inside of it. Brokers
of rocketpy continue the offsets of the old topic, and a query simply goes on. A checkpoint, and a commit of an archive,
keeps the offset and the store time of one message of each topic and broker, the first one of a queue. While the broker
has that offset, its message must have been stored at that time. When retention has deleted it, the first message that
is left takes its place.

A deleted topic loses all of its queues on a broker, so one message for all of them is enough, and costs one pull
whenever queues are looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Protocol

import attrs

from rocketpy.client.cluster.time_search import StoredAt
from rocketpy.message.message_queue import MessageQueue

from .cluster import Bounds
from .offsets import Firsts

Place = tuple[str, str]
"""A topic and a broker."""


class Looker(Protocol):
    """The part of a cluster that reads store times."""

    def stored(self, queues: Mapping[MessageQueue, int], group: str) -> dict[MessageQueue, StoredAt | None]: ...


@attrs.frozen
class Comparison:
    """The first messages now, and the places whose topic was made again since others were kept."""

    firsts: Firsts = attrs.field(factory=dict)
    remade: frozenset[Place] = frozenset()

    def is_remade(self, queue: MessageQueue) -> bool:
        return place_of(queue) in self.remade


def place_of(queue: MessageQueue) -> Place:
    return queue.topic, queue.broker_name


def compare(kept: Firsts, bounds: Mapping[MessageQueue, Bounds], cluster: Looker, group: str) -> Comparison:
    """Compare the first messages in a checkpoint or archive with the first messages on the brokers.

    Args:
        kept: of the checkpoint or the archive; those of a topic or a broker that is away stay as they are.
        group: its pulls read the messages.
    Raises:
        RocketError: a broker cannot be asked.
    """
    old = {queue: first for queue, first in kept.items() if queue in bounds}
    there = {queue: first.offset for queue, first in old.items() if _has(bounds[queue], first.offset)}
    now = cluster.stored(there, group) if there else {}
    same = {queue: old[queue] for queue, found in now.items() if found is None or _is_same(found, old[queue])}
    ended = {queue for queue, first in old.items() if bounds[queue].max_offset <= first.offset}
    remade = frozenset(place_of(queue) for queue in ended | (there.keys() - same.keys()))
    valid = {queue: first for queue, first in same.items() if place_of(queue) not in remade}
    wanted = dict(_to_look_at(bounds, {place_of(queue) for queue in valid}))
    new = cluster.stored(wanted, group) if wanted else {}
    present = {place_of(queue) for queue in bounds}
    away = {queue: first for queue, first in kept.items() if place_of(queue) not in present}
    found_now = {queue: found for queue, found in new.items() if found is not None}
    return Comparison({**away, **valid, **found_now}, remade)


def _has(bound: Bounds, offset: int) -> bool:
    return bound.min_offset <= offset < bound.max_offset


def _is_same(found: StoredAt, first: StoredAt) -> bool:
    """A message with another offset is behind one that cannot be read: nothing is known then."""
    return found.offset != first.offset or found.time_ms == first.time_ms


def _to_look_at(bounds: Mapping[MessageQueue, Bounds], known: set[Place]) -> Iterator[tuple[MessageQueue, int]]:
    """For each place that is not known, its first queue with messages, and where they begin."""
    queues = sorted((queue for queue, bound in bounds.items() if bound.min_offset < bound.max_offset), key=_order)
    for place, of_place in groupby(queues, key=place_of):
        if place not in known:
            queue = next(of_place)
            yield queue, bounds[queue].min_offset


def _order(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id
