"""Command lines of mqadmin against a scripted cluster, and what clusters may hold."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketpy import aio
from rocketpy.admin.admin import Admin
from rocketpy.admin.base import Environment
from rocketpy.admin.cli import main
from rocketpy.client.cluster.lifetime import Lifetime
from rocketpy.client.options import ProducerOptions
from rocketpy.codes import LanguageCode, RequestCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.client import (
    Connection,
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    ProcessQueueInfo,
    SubscriptionData,
)
from rocketpy.remoting.bodies.group import GroupList
from rocketpy.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from rocketpy.transport.byte_stream import ByteStream
from tests.support import loops
from tests.support.clients import now_ms
from tests.support.cluster import NAME_SERVER, FakeBroker, FakeCluster

QUEUE = MessageQueue("T", "broker-a", 0)
Script = Callable[[FakeCluster], None]


class Mqadmin:
    """Runs command lines, each in a new cluster that `script` has prepared; `cluster` is the last one."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.cluster: FakeCluster
        self.error = ""

    def __call__(self, *argv: str, script: Script, status: int = 0) -> list[str]:
        """The lines printed. The exit status must be `status`."""

        def make_admin(**settings: Any) -> Admin:
            settings.pop("name_servers")
            options = ProducerOptions(
                name_servers=NAME_SERVER, client_ip="10.1.1.1", credentials=settings.get("credentials")
            )

            async def connect(address: str) -> ByteStream:
                return await self.cluster.connect(address)

            lifetime = Lifetime(options, "a", now_ms=now_ms, rng=random.Random(1), connector=connect)
            return Admin(options=options, lifetime=lifetime, timeout=settings["timeout"])

        def run(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
            async def in_cluster() -> Any:
                async with aio.open_nursery() as nursery:
                    self.cluster = FakeCluster(nursery)
                    script(self.cluster)
                    try:
                        return await function(*arguments)
                    finally:
                        nursery.cancel()

            return loops.run(in_cluster)

        got = main(argv, environment=Environment(make_admin, run))
        captured = self._capsys.readouterr()
        self.error = captured.err
        assert got == status, captured.err
        return captured.out.splitlines()


def with_messages(cluster: FakeCluster) -> FakeBroker:
    broker = cluster.add_broker(T=2)
    broker.now_ms = lambda: 1709288551127
    broker.store("T", 0, b"first", b"UNIQ_KEY\x01AA\x02KEYS\x01k1 k2\x02TAGS\x01A")
    broker.store("T", 1, b"second", b"UNIQ_KEY\x01BB\x02KEYS\x01k11\x02TAGS\x01B")
    broker.answer(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(group_list=[]))
    return broker


def one_broker(cluster: FakeCluster) -> None:
    cluster.add_broker(T=2)


def with_group(cluster: FakeCluster) -> FakeBroker:
    broker = cluster.add_broker(T=2, **{"%RETRY%g": 1})
    broker.answer(
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        ConsumerConnection(
            connection_set=[
                Connection(
                    client_addr="10.0.0.21:51234",
                    client_id="10.0.0.21@4711#8",
                    language=LanguageCode.PYTHON,
                    version=409,
                ),
            ],
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_table={"T": SubscriptionData(topic="T", sub_string="A || B")},
        ),
    )
    table = {
        QUEUE: OffsetWrapper(broker_offset=1520, consumer_offset=1490, last_timestamp_ms=1709288551127),
        MessageQueue("%RETRY%g", "broker-a", 0): OffsetWrapper(broker_offset=2, consumer_offset=2),
    }
    broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats(consume_tps=41.2, offset_table=table))
    info = ConsumerRunningInfo(
        properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMEORDERLY": "false"},
        subscription_set=[SubscriptionData(topic="T")],
        mq_table={QUEUE: ProcessQueueInfo(cached_msg_count=3, last_consume_timestamp_ms=-100_000)},
    )
    broker.answer(RequestCode.GET_CONSUMER_RUNNING_INFO, info)
    return broker


def void(_: object) -> None:
    """For scripts that are lambdas."""
