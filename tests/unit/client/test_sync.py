"""The blocking clients: a thread of their own, the same results, the same errors, whichever loop the thread runs."""

import asyncio
import random
import threading
from typing import Any

import pytest
import trio

from rocketpy import aio, client
from rocketpy.client import START_FIRST, Message, ProducerOptions, PullOptions, PushOptions, ReceivedMessage, sync
from rocketpy.client.cluster.broker_requests import AskedConsumer
from rocketpy.client.cluster.instance import ConsumerMember
from rocketpy.client.cluster.lifetime import Lifetime
from rocketpy.client.consuming.pull_loop import PullHost
from rocketpy.client.consuming.rebalance import QueueOwner
from rocketpy.client.options import ClientOptions
from rocketpy.errors import ClientError, MessageInvalid
from tests.support import loops
from tests.support.cases import cases
from tests.support.cluster import NAME_SERVER, FakeCluster

SETTINGS: dict[str, Any] = {"name_servers": NAME_SERVER, "client_ip": "10.1.1.1"}


@pytest.fixture(autouse=True, params=loops.BACKENDS)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is run with either loop in the threads of its clients; users have asyncio there."""
    monkeypatch.setattr(sync.Blocking, "backend", request.param)


class SystemNursery:
    """Runs the cluster's connections beside the client, in its loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    def start_soon(self, function: Any, *args: Any) -> None:
        if aio.running().name == "trio":
            trio.lowlevel.spawn_system_task(function, *args)
        else:
            self._tasks.add(asyncio.ensure_future(function(*args)))


def lifetime() -> Lifetime:
    """A client in a cluster of its own, which holds two messages."""
    cluster = FakeCluster(SystemNursery())  # type: ignore[arg-type] # all that the cluster uses of a nursery
    broker = cluster.add_broker(T=1)
    broker.now_ms = lambda: 0
    for body in (b"1", b"2"):
        broker.store("T", 0, body)
    return Lifetime(ClientOptions(**SETTINGS), "10.1.1.1@s", rng=random.Random(1), connector=cluster.connect)


def test_producer() -> None:
    with sync.Producer("pg", ProducerOptions(**SETTINGS), lifetime=lifetime()) as producer:
        assert producer.send(Message("T", b"3")).queue_offset == 2
        assert producer.send_batch([Message("T", b"4"), Message("T", b"5")]).queue_offset == 3
        producer.send_oneway(Message("T", b"6"))
        futures = [producer.send_soon(Message("T", b"x")) for _ in range(5)]
        producer.flush()
        assert sorted(future.result(0).queue_offset for future in futures) == [6, 7, 8, 9, 10]
        assert len(producer.queues("T")) == 1
        with pytest.raises(MessageInvalid):
            producer.send(Message("T", b""))
    with pytest.raises(ClientError, match="was closed"):
        producer.send(Message("T", b"x"))


def test_a_send_under_way_cannot_be_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    """Fault: Its future said that it was, the message was sent all the same, and its end was logged as an error."""
    with sync.Producer("pg", ProducerOptions(linger=0.05, **SETTINGS), lifetime=lifetime()) as producer:
        future = producer.send_soon(Message("T", b"3"))
        assert not future.cancel()
        producer.flush()
        assert future.result(0).queue_offset == 2
    assert not caplog.records


def test_pull_consumer() -> None:
    with sync.PullConsumer("cg", PullOptions(start=START_FIRST, **SETTINGS), lifetime=lifetime()) as consumer:
        consumer.subscribe("T")
        assert [message.body for message in consumer.poll()] == [b"1", b"2"]
        consumer.commit()
        (queue,) = consumer.assignment
        assert consumer.committed(queue) == 2
        consumer.seek(queue, 1)
        for message in consumer:
            assert message.body == b"2"
            break
        assert consumer.pull(queue, 0, max_messages=1).messages[0].body == b"1"


def test_push_consumer_calls_plain_functions() -> None:
    seen: list[bytes] = []

    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if len(seen) == 2:
            done.set()

    done = threading.Event()
    options = PushOptions(start=START_FIRST, **SETTINGS)
    with sync.PushConsumer("cg", {"T": "*"}, handle, options=options, lifetime=lifetime()) as consumer:
        assert done.wait(10)
        consumer.pause()
        consumer.resume()
    assert sorted(seen) == [b"1", b"2"]


def test_a_start_that_fails_raises_here() -> None:
    with (
        pytest.raises(ClientError, match="holds no tag"),
        sync.PushConsumer("cg", {"T": "||"}, print, options=PushOptions(**SETTINGS), lifetime=lifetime()),
    ):
        pass


def test_a_client_that_was_not_started_says_so() -> None:
    with pytest.raises(ClientError, match="within `with`"):
        sync.Producer("pg", ProducerOptions(**SETTINGS), lifetime=lifetime()).send(Message("T", b"x"))


@cases("name", ["Producer", "TransactionProducer", "PushConsumer", "PullConsumer"])
def test_blocking_clients_offer_what_users_of_the_async_ones_have(name: str) -> None:
    """Holds: client, layers."""
    called_by_ourselves = set().union(*map(public_methods, (QueueOwner, PullHost, AskedConsumer, ConsumerMember)))
    missing = public_methods(getattr(client, name)) - public_methods(getattr(sync, name))
    assert missing <= called_by_ourselves


def public_methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
