"""An error that a program has seen is freed at once, with the message and the frames of its traceback.

An error that is kept among the locals of a frame of its own traceback is a cycle of objects. Only a full collection
frees it, and Python begins one after as many new objects as a fourth of all old ones: after minutes of failed sends,
whose memory the process keeps then.

Short: the modules whose errors these are have tests of their own.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import trio

from rocketpy import aio
from rocketpy.client import Message, Producer, ReceivedMessage
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import ConnectFailed, RequestTimeout, RocketError
from rocketpy.remoting.command import RemotingCommand
from rocketpy.transport.client import RemotingClient, open_remoting_client
from rocketpy.transport.connector import connect
from tests.support.clients import producer, push_consumer
from tests.support.cluster import FakeBroker, FakeCluster, run
from tests.support.loops import settled
from tests.support.push_consumers import store

MESSAGE = Message("T", b"x")
SENDS = 3
Trouble = Callable[[FakeBroker], None]


@contextmanager
def no_error_in_a_cycle() -> Iterator[None]:
    """Fails if the block leaves errors to the collector."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert [one for one in gc.garbage if isinstance(one, BaseException)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def unreachable(broker: FakeBroker) -> None:
    broker.unreachable = True


def refusing(broker: FakeBroker) -> None:
    broker.refuse(RequestCode.SEND_MESSAGE_V2, *[ResponseCode.SYSTEM_ERROR] * 100)
    broker.refuse(RequestCode.SEND_BATCH_MESSAGE, *[ResponseCode.SYSTEM_ERROR] * 100)


def mute(broker: FakeBroker) -> None:
    broker.mute |= {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}


def without_topic(broker: FakeBroker) -> None:
    broker.topics.clear()


async def send(sender: Producer) -> None:
    with pytest.raises(RocketError):
        await sender.send(MESSAGE)


async def send_soon(sender: Producer) -> None:
    with pytest.raises(RocketError):
        await (await sender.send_soon(MESSAGE))  # a handle among the locals would have the error


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("linger", [0.0, 0.01])
@pytest.mark.parametrize("trouble", [unreachable, refusing, mute, without_topic])
@pytest.mark.parametrize("work", [send, send_soon])
def test_of_failed_sends(trouble: Trouble, work: Callable[[Producer], Awaitable[None]], linger: float) -> None:
    async def main(cluster: FakeCluster) -> None:
        trouble(cluster.add_broker(T=2))
        async with producer(cluster, linger=linger) as sender:
            await work(sender)
            with no_error_in_a_cycle():
                for _ in range(SENDS):
                    await work(sender)
                await settled()

    run(main)


@pytest.mark.usefixtures("backend")
def test_of_failed_pulls() -> None:
    async def handle(message: ReceivedMessage) -> None: ...

    async def main(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with push_consumer(cluster, handle) as consumer:
            while not consumer.assignment:
                await aio.sleep(1)
            broker.refuse(RequestCode.PULL_MESSAGE, *[ResponseCode.SYSTEM_ERROR] * 100)
            await aio.sleep(60)
            with no_error_in_a_cycle():
                await aio.sleep(10)

    run(main)


@pytest.mark.usefixtures("backend")
def test_of_failed_handlers() -> None:
    async def fail(message: ReceivedMessage) -> None:
        raise ValueError("of a program")

    async def main(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with push_consumer(cluster, fail) as consumer:
            while not consumer.assignment:
                await aio.sleep(1)
            with no_error_in_a_cycle():
                store(broker, b"1")
                while not broker.sent_back:
                    await aio.sleep(1)
                await settled()

    run(main)


@pytest.mark.usefixtures("backend")
def test_of_requests_that_were_sent_together() -> None:
    async def main(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.mute.add(RequestCode.GET_MAX_OFFSET)

        async def ask(remoting: RemotingClient) -> None:
            requests = [RemotingCommand.request(RequestCode.GET_MAX_OFFSET) for _ in range(2)]
            with pytest.raises(RequestTimeout):
                await remoting.invoke_all(broker.address, requests, 1.0)

        async with open_remoting_client(connector=cluster.connect) as remoting:
            await ask(remoting)
            with no_error_in_a_cycle():
                await ask(remoting)

    run(main)


def test_of_failed_connections() -> None:
    """Fault: Ten tasks and scopes of trio were left by each connection that was refused."""

    async def refused() -> None:
        with pytest.raises(ConnectFailed):
            await connect("127.0.0.1:1")

    async def main() -> None:
        await refused()
        with no_error_in_a_cycle():
            await refused()
            await aio.sleep(0)

    trio.run(main)
