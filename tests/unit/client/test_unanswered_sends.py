"""A send that no machine answers goes to the new master as soon as the route names it."""

from __future__ import annotations

from functools import partial

import pytest

from rocketpy import aio
from rocketpy.client.messages import Message
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from rocketpy.transport.client import RemotingClient
from tests.support.clients import producer
from tests.support.cluster import FakeCluster, run
from tests.support.fake_broker import FakeBroker
from tests.support.former_master import HOW, SEND, fail_over
from tests.support.loops import within

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize("how", HOW)
def test_a_send_leaves_a_machine_that_does_not_answer_when_there_is_another_master(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay open: each send waited there for its whole timeout of 3 s.
    Fault: Sends to a dead machine waited their whole timeout while the route had a new master."""

    async def scenario(cluster: FakeCluster) -> None:
        old = cluster.add_broker(T=4)
        monkeypatch.setattr(RemotingClient, "reaches", lambda self, address: address != old.address)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"m"), **HOW[how])
            new = fail_over(cluster, old, "answers 14")
            old.answers[SEND] = lambda request, channel: None
            began_s = aio.now_s()
            with within(10):
                async with aio.open_nursery() as nursery:
                    nursery.start_soon(partial(sender.send, Message("T", b"m"), **HOW[how]))
                    await aio.sleep(1.7)
                    cluster.brokers["broker-a"] = new
            assert aio.now_s() < began_s + 3.0
            assert len(new.got(SEND)) == 1

    run(scenario)


def test_a_send_waits_for_a_former_master_that_lives() -> None:
    """It passes the message on: another attempt would store it twice."""

    async def scenario(cluster: FakeCluster) -> None:
        old = cluster.add_broker(T=4)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"m"))
            new, answer = fail_over(cluster, old, "answers 14"), FakeBroker.send

            async def passed_on(request: RemotingCommand, channel: Channel) -> RemotingCommand:
                await aio.sleep(2.5)
                return answer(new, request, channel)

            old.answers[SEND] = passed_on
            async with aio.open_nursery() as nursery:
                nursery.start_soon(sender.send, Message("T", b"m"))
                await aio.sleep(1.7)
                cluster.brokers["broker-a"] = new
            assert not new.got(SEND) and len(old.got(SEND)) == 2

    run(scenario)


def test_a_slow_master_keeps_its_time() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=4)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"m"))
            answer = broker.answers[SEND]

            async def slowly(request: RemotingCommand, channel: Channel) -> RemotingCommand:
                await aio.sleep(2.5)
                return answer(request, channel)

            broker.answers[SEND] = slowly
            await sender.send(Message("T", b"m"))
            assert len(broker.got(SEND)) == 2

    run(scenario)
