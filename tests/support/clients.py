"""Clients that live in a FakeCluster: seeded, on the mock clock, over memory streams."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import attrs

from rocketpy import aio
from rocketpy.admin.admin import Admin
from rocketpy.client import Producer, PullConsumer, PushConsumer
from rocketpy.client.cluster.lifetime import Lifetime
from rocketpy.client.cluster.received import decode_messages
from rocketpy.client.consuming.process_queue import ProcessQueue
from rocketpy.client.messages import ReceivedMessage
from rocketpy.client.options import ClientOptions, ProducerOptions, PullOptions, PushOptions
from rocketpy.codes import RequestCode
from rocketpy.message.record import encode_record
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand

from .cluster import NAME_SERVER, FakeBroker, FakeCluster


def now_ms() -> int:
    return round(aio.now_s() * 1000)


def lifetime(cluster: FakeCluster, options: ClientOptions, client_id: str) -> Lifetime:
    return Lifetime(options, client_id, now_ms=now_ms, rng=random.Random(1), connector=cluster.connect)


def producer(cluster: FakeCluster, group: str = "pg", **settings: Any) -> Producer:
    options = ProducerOptions(name_servers=NAME_SERVER, client_ip="10.1.1.1", **settings)
    return Producer(group, options, lifetime=lifetime(cluster, options, "10.1.1.1@p"))


def push_consumer(
    cluster: FakeCluster,
    handler: Any,
    group: str = "cg",
    client: str = "c1",
    topic: str = "T",
    tags: Any = "*",
    batch: bool = False,
    **settings: Any,
) -> PushConsumer:
    options = PushOptions(name_servers=NAME_SERVER, client_ip="10.1.1.1", instance_name=client, **settings)
    kind = {"batch_handler" if batch else "handler": handler}
    return PushConsumer(
        group, {topic: tags}, options=options, lifetime=lifetime(cluster, options, f"10.1.1.1@{client}"), **kind
    )


def pull_consumer(cluster: FakeCluster, group: str = "cg", client: str = "l1", **settings: Any) -> PullConsumer:
    options = PullOptions(name_servers=NAME_SERVER, client_ip="10.1.1.1", instance_name=client, **settings)
    return PullConsumer(group, options, lifetime=lifetime(cluster, options, f"10.1.1.1@{client}@STREAM"))


def admin_client(cluster: FakeCluster) -> Admin:
    options = ProducerOptions(name_servers=NAME_SERVER, client_ip="10.1.1.1")
    return Admin(options=options, lifetime=lifetime(cluster, options, "10.1.1.1@a"))


def message(
    offset: int, body: bytes = b"x", flag: int = 0, reconsume_times: int = 0, **changes: Any
) -> ReceivedMessage:
    """A received message of queue T/0 at `offset`."""
    image = encode_record(
        topic="T",
        queue_id=0,
        body=body,
        properties=b"UNIQ_KEY\x01id-%d" % offset,
        flag=flag,
        reconsume_times=reconsume_times,
        queue_offset=offset,
        phy_offset=offset * 100,
        born_timestamp_ms=0,
        born_host=("127.0.0.1", 1),
        store_timestamp_ms=0,
        store_host=("127.0.0.1", 2),
    )
    (received,) = decode_messages(image, "broker-a")
    return attrs.evolve(received, **changes)


def process_queue(*offsets: int) -> ProcessQueue:
    queue = ProcessQueue(0)
    queue.put([message(offset) for offset in offsets])
    return queue


def remember_channel(broker: FakeBroker) -> list[Channel]:
    """The connections that heartbeats come over."""
    channels: list[Channel] = []
    heartbeat: Callable[[RemotingCommand, Channel], object] = broker.answers[RequestCode.HEART_BEAT]

    def remember(request: RemotingCommand, channel: Channel) -> object:
        channels.append(channel)
        return heartbeat(request, channel)

    broker.answers[RequestCode.HEART_BEAT] = remember  # type: ignore[assignment]
    return channels
