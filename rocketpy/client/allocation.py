"""Allocation of queues to the members of a group: every member computes the same answer from the same two sorted lists.

Nobody assigns queues to members. Each member sorts the topic's queues and the group's client ids, runs the strategy
and takes its own share, so two members agree only if strategy and sort order are exactly the same. The rules here are
those of the Java client; a Java, Go (averaging strategies only) and Python member may share one group.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import attrs

from rocketpy.message.message_queue import MessageQueue

T = TypeVar("T")


class Allocation(Protocol):
    """A strategy. `queues` and `client_ids` arrive sorted; `client_id` is one of `client_ids`."""

    @property
    def name(self) -> str: ...

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]: ...


def java_order(text: str) -> bytes:
    """Sort key with Java's string order: by UTF-16 code unit, which differs from Python's beyond U+FFFF."""
    return text.encode("utf-16-be", "surrogatepass")


def share_of(
    strategy: Allocation, client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
) -> list[MessageQueue]:
    """Sort the inputs as every member does and return this member's share.

    A client that is not in the list gets nothing: its heartbeat has not reached that broker yet, and with a share of
    its own some queues would have two owners.
    Source: RocketMQ 4.9 `RebalanceImpl#rebalanceByTopic` and the guard of every strategy.
    """
    sorted_ids = sorted(client_ids, key=java_order)
    sorted_queues = sorted(queues, key=queue_order)
    if not sorted_queues or client_id not in sorted_ids:
        return []
    return strategy.allocate(client_id, sorted_queues, sorted_ids)


def queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Java's order of queues: topic, broker name, queue id."""
    return (java_order(queue.topic), java_order(queue.broker_name), queue.queue_id)


@attrs.frozen
class Averagely:
    """Consecutive blocks; the first members get the remainder. The default, and the one Go shares."""

    name: str = "AVG"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        index = client_ids.index(client_id)
        remainder = len(queues) % len(client_ids)
        size = max(1, len(queues) // len(client_ids) + (1 if index < remainder else 0))
        start = index * size if index < remainder else index * size + remainder
        return list(queues[start : start + size])


@attrs.frozen
class AveragelyByCircle:
    """Deals the queues out like cards."""

    name: str = "AVG_BY_CIRCLE"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


@attrs.frozen
class ByConfig:
    """The user gives the queues; other members are ignored."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        return list(self.queues)


@attrs.frozen
class ByMachineRoom:
    """Only queues of brokers called `room@name` whose room is ours; blocks first, then one of the tail each."""

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        ours = [queue for queue in queues if self._room(queue) in self.rooms]
        index = client_ids.index(client_id)
        size, remainder = divmod(len(ours), len(client_ids))
        share = ours[index * size : (index + 1) * size]
        if index < remainder:
            share.append(ours[size * len(client_ids) + index])
        return share

    @staticmethod
    def _room(queue: MessageQueue) -> str | None:
        room, at, rest = queue.broker_name.partition("@")
        return room if at and rest and "@" not in rest else None


@attrs.frozen
class NearbyRoom:
    """Queues of a room are shared by that room's consumers; rooms without any consumer are shared by everybody."""

    inner: Allocation
    broker_room: Callable[[MessageQueue], str]
    consumer_room: Callable[[str], str]

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        queues_by_room = group_by(queues, self.broker_room)
        ids_by_room = group_by(client_ids, self.consumer_room)
        my_room = self.consumer_room(client_id)
        share: list[MessageQueue] = []
        if mine := queues_by_room.get(my_room):
            share += self.inner.allocate(client_id, mine, ids_by_room[my_room])
        for room in sorted(queues_by_room, key=java_order):
            if room not in ids_by_room:
                share += self.inner.allocate(client_id, queues_by_room[room], client_ids)
        return share


def group_by(items: Iterable[T], room_of: Callable[[T], str]) -> Mapping[str, list[T]]:
    """Items by room, order kept. An empty room name is the resolver's error and is refused."""
    rooms: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise ValueError(f"the machine room resolver knows no room for {item}")
        rooms.setdefault(room, []).append(item)
    return rooms


def java_text(queue: MessageQueue) -> str:
    """`MessageQueue#toString`, which the consistent hash of a queue is taken of."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def md5_hash(text: str) -> int:
    """The first four bytes of the MD5 of the UTF-8 text, big-endian, unsigned."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


@attrs.frozen
class ConsistentHash:
    """A ring of virtual nodes: a member that comes or goes moves few queues. Not interchangeable with Go's."""

    virtual_nodes: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    hash_function: Callable[[str], int] = md5_hash
    name: str = "CONSISTENT_HASH"

    def allocate(self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
        ring = {
            self.hash_function(f"{member}-{replica}"): member
            for member in client_ids
            for replica in range(self.virtual_nodes)
        }
        points = sorted(ring)
        return [queue for queue in queues if self._owner(queue, ring, points) == client_id]

    def _owner(self, queue: MessageQueue, ring: Mapping[int, str], points: Sequence[int]) -> str:
        at = bisect_left(points, self.hash_function(java_text(queue)))
        return ring[points[at % len(points)]]
