"""NATS by nats-py: a JetStream stream on files for each topic, a subject for each partition.

Publishes await the acknowledgement of the stream, which the server gives before it syncs its file (its default). Groups
are durable push consumers with a queue group; they acknowledge nothing, as the other systems only commit offsets.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

import attrs

from .system import Receive, Send, client_library

PENDING_MAX = 1 << 20  # messages that a subscription of the client may keep


@attrs.frozen
class Nats:
    """A connected server; producers and consumers have connections of their own."""

    url: str
    connection: Any

    async def describe(self) -> dict[str, Any]:
        settings = {"storage": "file", "replicas": 1, "ack": "stream, not synced", "client": f"nats-py {_version()}"}
        version = str(self.connection.connected_server_version).strip("<>").removeprefix("nats server ")
        return {"system": "nats", "version": version, "settings": settings}

    async def make_topics(self, topics: Sequence[str], partitions: int) -> None:
        stream = self.connection.jetstream()
        for topic in topics:
            await stream.add_stream(name=topic, subjects=[f"{topic}.*"])

    async def delete_topics(self, topics: Sequence[str]) -> None:
        stream = self.connection.jetstream()
        for topic in topics:
            await stream.delete_stream(topic)

    @contextlib.asynccontextmanager
    async def producer(self, partitions: int) -> AsyncIterator[Send]:
        import nats

        connection = await nats.connect(self.url)
        stream, turns = connection.jetstream(), itertools.cycle(range(partitions))
        try:
            yield lambda topic, body: stream.publish(f"{topic}.{next(turns)}", body)
        finally:
            await connection.close()

    @contextlib.asynccontextmanager
    async def consumer(self, group: str, topics: Sequence[str], receive: Receive) -> AsyncIterator[None]:
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig

        async def handle(message: Any) -> None:
            receive(message.data)

        connection = await nats.connect(self.url, name=f"{group}-{os.urandom(4).hex()}")
        try:
            for topic in topics:
                await connection.jetstream().subscribe(
                    f"{topic}.*",
                    queue=group,
                    durable=group,
                    stream=topic,
                    cb=handle,
                    manual_ack=True,
                    config=ConsumerConfig(ack_policy=AckPolicy.NONE),
                    pending_msgs_limit=PENDING_MAX,
                )
            yield
        finally:
            await connection.close()


def _version() -> str:
    from importlib.metadata import version

    return version("nats-py")


@contextlib.asynccontextmanager
async def connect(url: str) -> AsyncIterator[Nats]:
    """Connect to `nats://HOST:PORT`."""
    connection = await client_library("nats", "nats").connect(url)
    try:
        yield Nats(url, connection)
    finally:
        await connection.close()
