"""Kafka by aiokafka: each send awaits its acknowledgement (acks=all); the broker leaves syncs to the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import attrs

from ..cluster import BenchFailed
from .system import ASSIGNED_S_MAX, STOP_S_MAX, Receive, Send, client_library

POLL_MS = 200


@attrs.frozen
class Kafka:
    """A cluster behind `address`, HOST:PORT."""

    address: str
    admin: Any

    async def describe(self) -> dict[str, Any]:
        from importlib.metadata import version

        settings: dict[str, Any] = {
            "acks": "all",
            "replicas": 1,
            "linger_ms": 0,
            "client": f"aiokafka {version('aiokafka')}",
        }
        return {"system": "kafka", "version": "", "settings": settings}

    async def make_topics(self, topics: Sequence[str], partitions: int) -> None:
        from aiokafka.admin import NewTopic

        reply = await self.admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])
        for topic, code, message, *_ in reply.topic_errors:
            if code:
                raise BenchFailed(f"Kafka cannot create the topic {topic}: {message or 'error'} ({code})")

    async def delete_topics(self, topics: Sequence[str]) -> None:
        await self.admin.delete_topics(list(topics))

    @contextlib.asynccontextmanager
    async def producer(self, partitions: int) -> AsyncIterator[Send]:
        from aiokafka import AIOKafkaProducer

        turns = itertools.cycle(range(partitions))
        producer = AIOKafkaProducer(bootstrap_servers=self.address, acks="all", linger_ms=0)
        async with _started(producer):
            yield lambda topic, body: producer.send_and_wait(topic, body, partition=next(turns))

    @contextlib.asynccontextmanager
    async def consumer(self, group: str, topics: Sequence[str], receive: Receive) -> AsyncIterator[None]:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            *topics, bootstrap_servers=self.address, group_id=group, auto_offset_reset="earliest"
        )

        async def read() -> None:
            while True:
                for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                    for record in records:
                        receive(record.value)

        async with _started(consumer):
            async with asyncio.timeout(ASSIGNED_S_MAX):
                while not consumer.assignment():  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.05)
            reader = asyncio.create_task(read())
            try:
                yield
            finally:
                reader.cancel()
                (outcome,) = await asyncio.gather(reader, return_exceptions=True)
            if isinstance(outcome, Exception):  # not its cancellation
                raise BenchFailed(f"a consumer of Kafka ended: {outcome!r}") from outcome


@contextlib.asynccontextmanager
async def _started(client: Any) -> AsyncIterator[None]:
    """Start a producer or consumer, and stop it within a bound: it would wait for a broker that is gone."""
    try:
        await client.start()
        yield
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S_MAX):
                await client.stop()


@contextlib.asynccontextmanager
async def connect(address: str) -> AsyncIterator[Kafka]:
    """Connect to a bootstrap server. Raises: BenchFailed: none answers there."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a new broker elects coordinators; errors are raised
    admin = client_library("aiokafka.admin", "kafka").AIOKafkaAdminClient(bootstrap_servers=address)
    try:
        try:
            await admin.start()
        except client_library("aiokafka.errors", "kafka").KafkaError as error:
            raise BenchFailed(f"no Kafka answers at {address}: {error}") from error
        yield Kafka(address, admin)
    finally:
        await admin.close()
