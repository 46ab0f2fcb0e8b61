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

from ..cluster import BenchFailed
from .system import Receive, Send, client_library

PENDING_MAX = 1 << 20  # messages that a subscription of the client may keep


@attrs.frozen
class Nats:
    """A connected server; producers and consumers have connections of their own."""

    url: str
    connection: Any

    async def describe(self) -> dict[str, Any]:
        settings = {"storage": "file", "replicas": 1, "client": f"nats-py {_version()}"}
        version = str(self.connection.connected_server_version).strip("<>").removeprefix("nats server ").lstrip("v")
        return {"system": "nats", "version": version, "settings": settings}

    async def make_topics(self, topics: Sequence[str], partitions: int) -> None:
        stream = self.connection.jetstream()
        for topic in topics:
            try:
                await stream.add_stream(name=topic, subjects=[f"{topic}.*"])
            except client_library("nats.errors", "nats").Error as error:
                raise BenchFailed(f"NATS cannot create the stream {topic}: {error} (JetStream needs -js)") from error

    async def delete_topics(self, topics: Sequence[str]) -> None:
        stream = self.connection.jetstream()
        for topic in topics:
            await stream.delete_stream(topic)

    @contextlib.asynccontextmanager
    async def producer(self, partitions: int) -> AsyncIterator[Send]:
        import nats

        connection = await nats.connect(self.url, allow_reconnect=False)
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

        name = f"{group}-{os.urandom(4).hex()}"
        connection = await nats.connect(self.url, name=name, allow_reconnect=False)
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


async def _raised_anyway(error: Exception) -> None:
    """Ignore an error of the connection that makes streams: its calls raise it as well."""


def _version() -> str:
    from importlib.metadata import version

    return version("nats-py")


@contextlib.asynccontextmanager
async def connect(url: str) -> AsyncIterator[Nats]:
    """Connect to `nats://HOST:PORT`. Raises: BenchFailed: no server answers there."""
    library = client_library("nats", "nats")
    try:
        # By default it tries for two minutes.
        options = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}
        connection = await library.connect(url, error_cb=_raised_anyway, **options)
    except (OSError, library.errors.Error) as error:
        raise BenchFailed(f"no NATS server answers at {url}: {error}") from error
    try:
        yield Nats(url, connection)
    finally:
        await connection.close()
