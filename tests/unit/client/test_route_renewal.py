"""Clients ask for routes at once when a broker is not the master any more, and not too often."""

from __future__ import annotations

import pytest

from rocketpy import aio
from rocketpy.client.cluster.route_renewal import PAUSE_MAX_S, RouteRenewal, tells_of_change
from rocketpy.client.messages import Message
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, ClientError, ConnectFailed, ConnectionLost, RocketError, TooManyRequests
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import PASSED_ON_FIELD
from tests.support import loops
from tests.support.clients import producer, push_consumer
from tests.support.cluster import FakeCluster, run
from tests.support.former_master import HOW, QUEUE, SEND, fail_over

pytestmark = pytest.mark.usefixtures("backend")

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


@pytest.mark.parametrize("why", ["answers 14", "is gone"])
@pytest.mark.parametrize("how", HOW)
def test_a_send_that_meets_a_former_master_reaches_the_new_one(how: str, why: str) -> None:
    """With `queue=` it never did."""

    async def scenario(cluster: FakeCluster) -> None:
        old = cluster.add_broker(T=4)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"m"), **HOW[how])
            await aio.sleep(7)
            new = cluster.brokers["broker-a"] = fail_over(cluster, old, why)
            began_s = aio.now_s()
            result = await sender.send(Message("T", b"m"), **HOW[how])
            assert aio.now_s() < began_s + 1.0
            assert len(new.got(SEND)) == 1 and result.queue.broker_name == "broker-a"

    run(scenario)


@pytest.mark.parametrize("how", HOW)
def test_sends_follow_within_a_second_of_the_route_and_ask_for_it_about_once_a_second(how: str) -> None:
    """Fault: Producers found a new master only after up to 30 s."""

    async def scenario(cluster: FakeCluster) -> None:
        old = cluster.add_broker(T=4)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"m"), **HOW[how])
            new, asked = fail_over(cluster, old, "is gone"), len(cluster.name_server.got(ROUTE))
            began_s = aio.now_s()
            while aio.now_s() < began_s + 10:
                with pytest.raises(RocketError):
                    await sender.send(Message("T", b"m"), **HOW[how])
                await aio.sleep(0.002)
            took_s = aio.now_s() - began_s
            assert len(cluster.name_server.got(ROUTE)) - asked <= took_s / PAUSE_MAX_S + 5
            cluster.brokers["broker-a"] = new
            changed_s = aio.now_s()
            while not new.got(SEND):
                try:
                    await sender.send(Message("T", b"m"), **HOW[how])
                except RocketError:
                    await aio.sleep(0.002)
            assert aio.now_s() < changed_s + 1.0

    run(scenario)


def test_a_send_that_a_former_master_has_passed_on_moves_the_client_to_the_master() -> None:
    """Its connection stays open and its sends succeed: nothing else tells it."""

    async def scenario(cluster: FakeCluster) -> None:
        old = cluster.add_broker(T=4)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"m"))
            new = cluster.brokers["broker-a"] = fail_over(cluster, old, "answers 14")
            fields = {"queueId": "1", "queueOffset": "7", "msgId": "", PASSED_ON_FIELD: "true"}
            old.answers[SEND] = lambda request, channel: RemotingCommand(code=0, flag=1, ext_fields=dict(fields))
            assert (await sender.send(Message("T", b"m"))).passed_on
            await aio.sleep(0.5)
            assert not (await sender.send(Message("T", b"m"))).passed_on
            assert len(new.got(SEND)) == 1

    run(scenario)


def test_a_queue_that_only_queue_sends_name_is_refreshed_with_the_others() -> None:
    """Fault: A producer with `queue=` never found the new master after a failover."""

    async def scenario(cluster: FakeCluster) -> None:
        old = cluster.add_broker(T=4)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"m"), queue=QUEUE)
            new = cluster.brokers["broker-a"] = fail_over(cluster, old, "answers 14")
            await aio.sleep(31)
            await sender.send(Message("T", b"m"), queue=QUEUE)
            assert (len(old.got(SEND)), len(new.got(SEND))) == (1, 1)

    run(scenario)


def test_a_send_in_the_background_to_one_queue_is_not_repeated_there() -> None:
    """Later ones may be under way, and would be overtaken by nothing but it."""

    async def scenario(cluster: FakeCluster) -> None:
        old = cluster.add_broker(T=4)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"m"), queue=QUEUE)
            cluster.brokers["broker-a"] = fail_over(cluster, old, "answers 14")
            handle = await sender.send_soon(Message("T", b"m"), queue=QUEUE)
            with pytest.raises(BrokerError):
                await handle

    run(scenario)


def test_a_consumer_follows_within_a_second_of_the_route() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        old = cluster.add_broker(T=1)
        got: list[float] = []

        async def handler(message: object) -> None:
            got.append(aio.now_s())

        async with push_consumer(cluster, handler), producer(cluster) as sender:
            await aio.sleep(5)
            await sender.send(Message("T", b"m"))
            await aio.sleep(1)
            assert len(got) == 1
            new = fail_over(cluster, old, "is gone")
            for channel in {channel for members in old.members.values() for channel in members.values()}:
                channel.close()
            await aio.sleep(8)
            new.records |= old.records
            cluster.brokers["broker-a"] = new
            changed_s = aio.now_s()
            while len(got) < 2:
                with aio.move_on_after(0.1):
                    await sender.send(Message("T", b"m"))
                await aio.sleep(0.1)
            assert got[1] < changed_s + 1.5

    run(scenario)


@pytest.mark.parametrize(
    ("error", "tells"),
    [
        (ConnectFailed("x"), True),
        (ConnectionLost("x"), True),
        (BrokerError(ResponseCode.SERVICE_NOT_AVAILABLE, "x"), True),
        (BrokerError(ResponseCode.MESSAGE_ILLEGAL, "x"), False),
        (TooManyRequests("x"), False),
        (ClientError("x"), False),
    ],
)
def test_errors_that_tell_of_a_change(error: RocketError, tells: bool) -> None:
    assert tells_of_change(error) is tells


def test_a_round_that_fails_or_is_slow_wakes_all_the_same() -> None:
    asked: list[str] = []

    async def update(topic: str) -> None:
        asked.append(topic)
        await aio.sleep(0.5)
        raise ConnectFailed("no name server")

    async def main() -> None:
        renewal = RouteRenewal(update)
        async with aio.open_nursery() as nursery:
            renewal.start(nursery)
            one = renewal.doubt("A")
            await aio.sleep(0.1)
            two = renewal.doubt("A")
            assert not one.is_set() and two is not one, "what was asked before the doubt does not count"
            await one.wait()
            assert asked == ["A"]
            await two.wait()
            assert asked == ["A", "A"]
            nursery.cancel()

    loops.run(main)
