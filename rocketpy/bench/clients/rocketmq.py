"""RocketMQ by rocketpy's client: sends await their acknowledgement, consumers get batches."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

import attrs

from rocketpy.client import START_FIRST, Message, Producer, ProducerOptions, PushConsumer, PushOptions, ReceivedMessage

from ..cluster import Cluster
from .system import ASSIGNED_S_MAX, Receive, Send


@attrs.frozen
class RocketMq:
    """A cluster, with its topics."""

    cluster: Cluster
    pull_batch_size: int = 32

    async def describe(self) -> dict[str, Any]:
        return self.cluster.described()

    async def make_topics(self, topics: Sequence[str], partitions: int) -> None:
        await self.cluster.make(topics, partitions)

    async def delete_topics(self, topics: Sequence[str]) -> None:
        await self.cluster.delete(topics)

    @contextlib.asynccontextmanager
    async def producer(self, partitions: int) -> AsyncIterator[Send]:
        options = ProducerOptions(**self.cluster.access.options(), instance_name=_unique())
        async with Producer("bench", options) as producer:
            yield lambda topic, body: producer.send(Message(topic, body))

    @contextlib.asynccontextmanager
    async def consumer(self, group: str, topics: Sequence[str], receive: Receive) -> AsyncIterator[None]:
        async def handle(messages: Sequence[ReceivedMessage]) -> None:
            for message in messages:
                receive(message.body)

        options = PushOptions(
            **self.cluster.access.options(),
            instance_name=_unique(),
            start=START_FIRST,
            batch_size_max=self.pull_batch_size,
            pull_batch_size=self.pull_batch_size,
        )
        async with PushConsumer(group, dict.fromkeys(topics, "*"), batch_handler=handle, options=options) as consumer:
            async with asyncio.timeout(ASSIGNED_S_MAX):
                while not consumer.assignment:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.05)
            yield


def _unique() -> str:
    """Return a name that gives a client connections of its own."""
    return os.urandom(6).hex()


@contextlib.asynccontextmanager
async def connect(cluster: Cluster, pull_batch_size: int) -> AsyncIterator[RocketMq]:
    yield RocketMq(cluster, pull_batch_size)
