"""Automatic batches: which messages share a request, in which order requests leave, and that each sender gets its own
outcome."""

from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Any

import pytest

from rocketpy import aio
from rocketpy.client import Message, Producer, SendHandle, SendResult
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, ClientError, MessageInvalid, RequestTimeout, RocketError
from rocketpy.message.batch import decode_batch
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import decode_record
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import read_send_header
from tests.support.clients import producer
from tests.support.cluster import FakeBroker, FakeCluster, run

pytestmark = pytest.mark.usefixtures("backend")

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
QUEUE = MessageQueue("T", "broker-a", 0)


def requests(broker: FakeBroker) -> list[list[bytes]]:
    """The bodies that each request brought."""
    return [
        [entry.body for entry in decode_batch(request.body or b"")] if request.code == BATCH else [request.body or b""]
        for request in broker.requests
        if request.code in (SEND, BATCH)
    ]


async def send_all(sender: Producer, *messages: Message) -> list[SendResult | RocketError]:
    """Send each message in a task of its own, and return their outcomes."""
    outcomes: dict[int, SendResult | RocketError] = {}

    async def send(number: int) -> None:
        try:
            outcomes[number] = await sender.send(messages[number])
        except RocketError as error:
            outcomes[number] = error

    async with aio.open_nursery() as nursery:
        for number in range(len(messages)):
            nursery.start_soon(send, number)
    return [outcomes[number] for number in range(len(messages))]


def slow(broker: FakeBroker, seconds: float = 1.0) -> list[int]:
    """Answer batches and messages late. Returns: how many were under way when each came."""
    under_way: list[int] = []
    now = 0

    def late(store: Callable[..., RemotingCommand]) -> Callable[..., Awaitable[RemotingCommand]]:
        async def answer(*arguments: object) -> RemotingCommand:
            nonlocal now
            now += 1
            under_way.append(now)
            response = store(*arguments)
            await aio.sleep(seconds)
            now -= 1
            return response

        return answer

    broker.answers |= {SEND: late(broker.send), BATCH: late(broker.send)}
    return under_way


def test_messages_within_the_linger_share_a_request_and_each_send_has_its_own_result() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=4)
        async with producer(cluster, linger=0.01) as sender:
            begin_s = aio.now_s()
            messages = [Message("T", b"%d" % number, tags="A", properties={"x": "1"}) for number in range(5)]
            results = await send_all(sender, *messages)
            assert aio.now_s() - begin_s == pytest.approx(0.01, abs=0.002)
        assert len(broker.got(BATCH)) == 1 and not broker.got(SEND)
        assert len({result.queue for result in results}) == 1
        for message, result in zip(messages, results, strict=True):
            images = broker.records["T", result.queue.queue_id]
            record = decode_record(images[result.queue_offset])
            assert record is not None and record.body == message.body
            properties = decode_properties(record.properties.decode())
            assert properties == {"x": "1", "TAGS": "A", "WAIT": "true", "UNIQ_KEY": result.msg_id}
            assert broker.by_offset[int(result.offset_msg_id[16:], 16)] is images[result.queue_offset]

    run(scenario)


@pytest.mark.parametrize(("limit", "count"), [({"batch_count_max": 3}, 3), ({"batch_bytes_max": 1024}, 2)])
def test_a_full_batch_leaves_at_once(limit: dict[str, int], count: int) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster, linger=5.0, **limit) as sender:
            begin_s = aio.now_s()
            handles = [await sender.send_soon(Message("T", bytes([number]) * 300)) for number in range(7)]
            for handle in handles[:6]:
                await handle
            assert aio.now_s() - begin_s < 1
        assert [len(bodies) for bodies in requests(broker)] == [count] * (6 // count) + [1]
        assert list(chain(*requests(broker))) == [bytes([number]) * 300 for number in range(7)]

    run(scenario)


def test_the_requests_to_a_chosen_queue_leave_one_after_the_other() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=4)
        under_way = slow(broker, 0.1)
        async with producer(cluster, linger=0.01, batch_count_max=2) as sender:
            for number in range(8):
                await sender.send_soon(Message("T", b"%d" % number, order_key="k"))
        assert requests(broker) == [[b"0", b"1"], [b"2", b"3"], [b"4", b"5"], [b"6", b"7"]]
        assert under_way == [1, 1, 1, 1]
        under_way.clear()
        async with producer(cluster, linger=0.01, batch_count_max=2) as sender:
            for number in range(8):
                await sender.send_soon(Message("T", b"%d" % number))
        assert under_way == [1, 2, 3, 4], "without a key they leave together"

    run(scenario)


def test_a_batch_is_repeated_whole() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.refuse(BATCH, ResponseCode.NOT_IN_CURRENT_UNIT)
        async with producer(cluster, linger=0.01) as sender:
            first, second = await send_all(sender, Message("T", b"0"), Message("T", b"1"))
        assert {first.queue_offset, second.queue_offset} == {0, 1}
        brought, again = requests(broker)
        assert brought == again and len(brought) == 2

    run(scenario)


@pytest.mark.parametrize(
    ("message", "shares"),
    [
        (Message("T", b"x", delay_level=3), False),
        (Message("T", b"x", delay_ms=100), False),
        (Message("T", b"x" * 5000), False),
        (Message("T", b"x", wait_store=False), True),
        (Message("T", b"x", born_at_ms=5), True),
    ],
    ids=["delayed", "timer", "large", "wait_store", "born_at_ms"],
)
def test_what_cannot_be_in_the_batch_keeps_its_place_in_the_order(message: Message, shares: bool) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster, linger=0.01) as sender:
            for body in (b"0", b"1"):
                await sender.send_soon(Message("T", body), queue=QUEUE)
            await sender.send_soon(message, queue=QUEUE)
            for body in (b"3", b"4"):
                await sender.send_soon(Message("T", body), queue=QUEUE)
        kinds = [request.code for request in broker.requests if request.code in (SEND, BATCH)]
        assert kinds == [BATCH, BATCH if shares else SEND, BATCH]
        assert [len(bodies) for bodies in requests(broker)] == [2, 1, 2]
        header = read_send_header((broker.got(BATCH) if shares else broker.got(SEND))[1 if shares else 0])
        assert decode_properties(header.properties or "")["WAIT"] == ("true" if message.wait_store else "false")

    run(scenario)


def test_an_error_reaches_every_sender_of_the_batch() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.refuse(BATCH, ResponseCode.SYSTEM_BUSY)
        async with producer(cluster, linger=0.01) as sender:
            outcomes = await send_all(sender, Message("T", b"0"), Message("T", b"1"), Message("T", b""))
            assert [type(outcome) for outcome in outcomes] == [BrokerError, BrokerError, MessageInvalid]
            broker.mute.add(BATCH)
            begin_s = aio.now_s()
            outcomes = await send_all(sender, Message("T", b"0"), Message("T", b"1"))
            assert [type(outcome) for outcome in outcomes] == [RequestTimeout, RequestTimeout]
            assert aio.now_s() - begin_s == pytest.approx(3.0, abs=0.02)

    run(scenario)


def test_a_cancelled_sender_disturbs_no_other() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster, linger=1.0) as sender:
            await sender.queues("T")
            async with aio.open_nursery() as nursery:
                cancelled = nursery.start(sender.send, Message("T", b"0"))
                await aio.sleep(0.1)
                second = await sender.send_soon(Message("T", b"1"))
                cancelled.cancel()
                assert (await second).queue_offset == 1
        assert requests(broker) == [[b"0", b"1"]]

    run(scenario)


def test_senders_wait_for_room_and_keep_their_order() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        under_way = slow(broker)
        async with producer(cluster, linger=0.01, in_flight_max=4) as sender:
            handles = [await sender.send_soon(Message("T", b"%d" % number)) for number in range(10)]
            assert sum(not handle.is_done for handle in handles) <= 4
        assert [len(bodies) for bodies in requests(broker)] == [4, 4, 2]
        assert under_way == [1, 1, 1]
        async with producer(cluster, linger=0.01, in_flight_bytes_max=1 << 20, batch_bytes_max=1 << 22) as sender:
            big = [await sender.send_soon(Message("T", bytes(4000))) for number in range(600)]
            assert sum(not handle.is_done for handle in big) <= (1 << 20) // 4000

    run(scenario)


def test_a_send_without_room_ends_with_its_timeout() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        slow(broker)
        async with producer(cluster, linger=0.01, in_flight_max=1) as sender:
            await sender.send_soon(Message("T", b"0"))
            begin_s = aio.now_s()
            with pytest.raises(RequestTimeout, match="in_flight_max"):
                await sender.send(Message("T", b"1"), timeout=0.5)
            assert aio.now_s() - begin_s == pytest.approx(0.5, abs=0.01)
            assert (await sender.send(Message("T", b"2"))).queue_offset == 1
        assert requests(broker) == [[b"0"], [b"2"]]

    run(scenario)


def test_a_sender_that_is_cancelled_while_it_waits_for_room_gives_its_place_away() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        slow(broker)
        async with producer(cluster, linger=0.01, in_flight_max=1) as sender:
            await sender.send_soon(Message("T", b"0"))
            async with aio.open_nursery() as nursery:
                waiting = nursery.start(sender.send, Message("T", b"1"))
                await aio.sleep(0.1)
                nursery.start_soon(sender.send, Message("T", b"2"))
                await aio.sleep(0.1)
                waiting.cancel()
        assert requests(broker) == [[b"0"], [b"2"]]

    run(scenario)


def test_flush_and_the_end_of_the_block_send_open_batches_at_once() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        begin_s = aio.now_s()
        async with producer(cluster, linger=5.0) as sender:
            first = await sender.send_soon(Message("T", b"0"))
            await sender.flush()
            assert first.is_done
            last = await sender.send_soon(Message("T", b"1"))
        assert (await last).queue_offset == 1
        assert aio.now_s() - begin_s < 1
        assert requests(broker) == [[b"0"], [b"1"]]

    run(scenario)


@pytest.mark.parametrize("queue", [None, QUEUE])
def test_the_end_of_the_block_gives_up_after_the_grace(queue: MessageQueue | None) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.mute.add(BATCH)
        done: list[SendHandle] = []
        begin_s = aio.now_s()
        async with producer(cluster, linger=0.01, batch_count_max=1, shutdown_grace=0.5) as sender:
            for body in (b"0", b"1"):
                await sender.send_soon(Message("T", body), queue=queue, on_done=done.append)
        assert aio.now_s() - begin_s == pytest.approx(0.5, abs=0.05)
        for handle in done:
            with pytest.raises(ClientError, match="closed"):
                await handle
        assert len(done) == 2

    run(scenario)


def test_an_error_of_the_block_gives_open_batches_up() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        handle: SendHandle | None = None
        with pytest.raises(KeyError):
            async with producer(cluster, linger=5.0) as sender:
                handle = await sender.send_soon(Message("T", b"0"))
                raise KeyError
        assert handle is not None and handle.is_done and not requests(broker)

    run(scenario)


@pytest.mark.parametrize("settings", [{}, {"linger": 5.0}, {"linger": 5.0, "batch_count_max": 1}])
@pytest.mark.parametrize("message", [Message("T", b"1"), Message("T", b"1", delay_level=1)])
def test_senders_that_wait_for_room_when_the_block_ends_are_told(settings: dict[str, Any], message: Message) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.mute |= {SEND, BATCH}
        refused: list[RocketError] = []

        async def send() -> None:
            with aio.move_on_after(2000):
                with pytest.raises(ClientError, match=r"closed|not running") as caught:
                    await (await sender.send_soon(message, timeout=1000.0))
                refused.append(caught.value)

        sender = producer(cluster, in_flight_max=1, shutdown_grace=0.5, **settings)
        begin_s = aio.now_s()
        async with aio.open_nursery() as nursery, sender:
            await sender.send_soon(Message("T", b"0"))
            for _ in range(2):
                nursery.start_soon(send)
            await aio.sleep(0.1)
        assert len(refused) == 2 and aio.now_s() - begin_s < 10

    run(scenario)
