"""Kafka by aiokafka: each send awaits its acknowledgement (acks=all); the broker leaves syncs to the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import attrs

from .system import Receive, Send, client_library

ASSIGNED_S_MAX = 60.0
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

        await self.admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])

    async def delete_topics(self, topics: Sequence[str]) -> None:
        await self.admin.delete_topics(list(topics))

    @contextlib.asynccontextmanager
    async def producer(self, partitions: int) -> AsyncIterator[Send]:
        from aiokafka import AIOKafkaProducer

        turns = itertools.cycle(range(partitions))
        async with AIOKafkaProducer(bootstrap_servers=self.address, acks="all", linger_ms=0) as producer:
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

        async with consumer:
            async with asyncio.timeout(ASSIGNED_S_MAX):
                while not consumer.assignment():  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.05)
            reader = asyncio.create_task(read())
            try:
                yield
            finally:
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)


@contextlib.asynccontextmanager
async def connect(address: str) -> AsyncIterator[Kafka]:
    """Connect to a bootstrap server."""
    logging.getLogger("aiokafka").setLevel(logging.ERROR)  # it warns many times while a new broker elects coordinators
    admin = client_library("aiokafka.admin", "kafka").AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        yield Kafka(address, admin)
    finally:
        await admin.close()
