"""Consumer offsets: in memory, at the broker (clustering) or in a file (broadcasting); and the first one of a queue.

A crash loses the progress since the last `persist` (every 5 s): messages are consumed again, never lost.
Source: RocketMQ 4.9 `RemoteBrokerOffsetStore`, `LocalFileOffsetStore`, `RebalancePushImpl#computePullFromWhere`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

import attrs

from rocketpy import aio
from rocketpy.atomic_file import write_atomically
from rocketpy.errors import ClientError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import is_retry_topic
from rocketpy.remoting.bodies.schema import Body, body, wire

from ..cluster.brokers import Brokers
from ..options import START_FIRST, StartFrom

logger = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """The offset of a queue is that of the next message to consume."""

    async def load(self) -> None: ...

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None: ...

    def in_memory(self, queue: MessageQueue) -> int | None: ...

    async def stored(self, queue: MessageQueue) -> int | None:
        """Load the stored offset into memory and return it; None if the group has none.

        Raises:
            RocketError: the store did not answer, which does not mean "none".
        """

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Store the offsets of `queues`; those of all other queues are dropped."""

    async def persist_one(self, queue: MessageQueue) -> None: ...

    def remove(self, queue: MessageQueue) -> None: ...

    def snapshot(self, topic: str) -> dict[MessageQueue, int]: ...


@attrs.define
class OffsetTable:
    """The offsets in memory, shared by both stores."""

    offsets: dict[MessageQueue, int] = attrs.field(factory=dict)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        if increase_only and offset <= self.offsets.get(queue, -1):
            return
        self.offsets[queue] = offset

    def in_memory(self, queue: MessageQueue) -> int | None:
        return self.offsets.get(queue)

    def remove(self, queue: MessageQueue) -> None:
        self.offsets.pop(queue, None)

    def snapshot(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self.offsets.items() if queue.topic == topic}


class OffsetRequests(Protocol):
    """The two requests a remote store makes (`Brokers` serves them)."""

    async def query_consumer_offset(self, group: str, queue: MessageQueue) -> int | None: ...

    async def update_consumer_offset(self, group: str, queue: MessageQueue, offset: int, *, oneway: bool) -> None: ...


@attrs.define(eq=False)
class RemoteOffsetStore(OffsetTable):
    """Offsets with the broker of each queue."""

    group: str = attrs.field(kw_only=True)
    requests: OffsetRequests = attrs.field(kw_only=True)

    async def load(self) -> None:
        """Nothing to load: offsets are loaded per queue."""

    async def stored(self, queue: MessageQueue) -> int | None:
        offset = await self.requests.query_consumer_offset(self.group, queue)
        if offset is not None:
            self.update(queue, offset, increase_only=False)
        return offset

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        for queue in [queue for queue in self.offsets if queue not in queues]:
            del self.offsets[queue]
        for queue in list(self.offsets):
            await self.persist_one(queue)

    async def persist_one(self, queue: MessageQueue) -> None:
        offset = self.offsets.get(queue)
        if offset is None:
            return
        try:
            await self.requests.update_consumer_offset(self.group, queue, offset, oneway=True)
        except RocketError as error:
            logger.warning("group %s: cannot commit offset %d of queue %s: %s", self.group, offset, queue, error)


@attrs.define(eq=False)
class LocalOffsetStore(OffsetTable):
    """Offsets in `<directory>/<client id>/<group>/offsets.json`, in the Java client's form: both may use one file."""

    path: Path = attrs.field(kw_only=True)
    _writing: aio.Lock = attrs.field(init=False, factory=aio.Lock)  # else two writers would share one temporary file

    async def load(self) -> None:
        """Read the file, or its backup when it is damaged.

        Raises:
            ClientError: both are damaged.
        """
        self.offsets.update(await aio.in_thread(read_offsets, self.path))

    async def stored(self, queue: MessageQueue) -> int | None:
        offsets = await aio.in_thread(read_offsets, self.path)
        if (offset := offsets.get(queue)) is not None:
            self.update(queue, offset, increase_only=False)
        return offset

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        async with self._writing:
            kept = {queue: offset for queue, offset in self.offsets.items() if queue in queues}
            if not kept:
                return
            try:
                await aio.in_thread(write_offsets, self.path, kept)
            except OSError as error:
                logger.warning("cannot write offsets to %s: %s", self.path, error)

    async def persist_one(self, queue: MessageQueue) -> None:
        """The file is written as a whole, by `persist`."""


def read_offsets(path: Path) -> dict[MessageQueue, int]:
    """The table in `path`, else in its backup; empty when there is neither."""
    damaged: Exception | None = None
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            return parse_offsets(candidate.read_bytes())
        except FileNotFoundError:
            continue
        except (RocketError, OSError) as error:
            damaged = error
            logger.warning("cannot read offset file %s: %s", candidate, error)
    if damaged is not None:
        raise ClientError(f"neither {path} nor its backup can be read: {damaged}") from damaged
    return {}


@body
class OffsetFile(Body):
    """The file's content: fastjson with objects as keys, which plain JSON parsers refuse."""

    offset_table: dict[MessageQueue, int] = wire("offsetTable", factory=dict)


def parse_offsets(data: bytes) -> dict[MessageQueue, int]:
    """The table in a file's bytes. Raises BodyInvalid when they hold none."""
    return OffsetFile.decode(data).offset_table


def write_offsets(path: Path, offsets: dict[MessageQueue, int]) -> None:
    """Keep the present file as `.bak`, then replace it in one step."""
    write_atomically(path, OffsetFile(offset_table=offsets).encode())


async def start_offset(queue: MessageQueue, start: StartFrom, store: OffsetStore, brokers: Brokers, group: str) -> int:
    """Return the offset at which consumption of a queue begins: the stored one; without one, that of `start`.

    Unlike Java 4.9, only the broker's "no offset" counts as none. Any other error is raised, and the queue is tried
    again in the next round instead of being read from its end.
    """
    stored = await store.stored(queue)
    if stored is not None:
        return stored
    is_retry = is_retry_topic(queue.topic)
    if start.timestamp_ms is not None:
        if is_retry:
            return await brokers.max_offset(queue)
        return await brokers.offset_since(queue, start.timestamp_ms, group)
    if is_retry or start == START_FIRST:
        return 0
    return await brokers.max_offset(queue)
