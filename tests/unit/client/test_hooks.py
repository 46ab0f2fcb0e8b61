"""Hooks of producers and consumers: their order, what they may change, and what becomes of their errors."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from rocketpy import aio
from rocketpy.client import (
    START_FIRST,
    ConsumeResult,
    Delivery,
    Hook,
    LocalTransactionState,
    Message,
    ProducerOptions,
    PullOptions,
    PushOptions,
    ReceivedMessage,
    Sending,
    SendResult,
    sync,
)
from rocketpy.client.hooks import ConsumeNext, SendNext
from rocketpy.client.results import CONSUMED
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError, ClientError, MessageInvalid
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.record import decode_records
from tests.support.clients import producer, pull_consumer, push_consumer
from tests.support.cluster import FakeBroker, FakeCluster, run
from tests.support.push_consumers import Seen, store
from tests.unit.client.test_requests import Desk, last_request
from tests.unit.client.test_sync import SETTINGS, lifetime
from tests.unit.client.test_transaction_producer import Local, check_of, ends, remember_channel, transactions

pytestmark = pytest.mark.usefixtures("backend")

SEND = RequestCode.SEND_MESSAGE_V2


@attrs.define(eq=False)
class Marking(Hook):
    """Puts its mark behind each body that is sent, and takes it off each one that is received."""

    mark: bytes
    seen: list[Any] = attrs.field(factory=list)

    async def send(self, sending: Sending, call_next: SendNext) -> SendResult | None:
        self.seen.append(sending)
        return await call_next([attrs.evolve(each, body=each.body + self.mark) for each in sending.messages])

    async def consume(self, delivery: Delivery, call_next: ConsumeNext) -> ConsumeResult:
        self.seen.append(delivery)
        for each in delivery.messages:
            if not each.body.endswith(self.mark):
                raise ValueError(f"{each.body!r} has no mark")
        return await call_next([attrs.evolve(each, body=each.body[: -len(self.mark)]) for each in delivery.messages])


@attrs.define(eq=False)
class Watching(Hook):
    """Remembers how calls end; raises, or answers itself, if told so."""

    ends: list[object] = attrs.field(factory=list)
    error: Exception | None = None

    async def send(self, sending: Sending, call_next: SendNext) -> SendResult | None:
        return await self._watch(lambda: call_next(sending.messages))

    async def consume(self, delivery: Delivery, call_next: ConsumeNext) -> ConsumeResult:
        return await self._watch(lambda: call_next(delivery.messages))

    async def _watch(self, go_on: Callable[[], Any]) -> Any:
        if self.error is not None:
            raise self.error
        try:
            self.ends.append(result := await go_on())
        except Exception as error:
            self.ends.append(error)
            raise
        return result


def bodies(broker: FakeBroker, topic: str = "T") -> list[bytes]:
    images = [image for (name, _), images in broker.records.items() if name == topic for image in images]
    return [record.body for image in images for record in decode_records(image)]


def test_hooks_change_messages_in_their_order_and_see_the_result() -> None:
    first, second, watching = Marking(b"-1"), Marking(b"-2"), Watching()

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster, hooks=(watching, first, second)) as sender:
            result = await sender.send(Message("T", b"m", order_key=7))
            await sender.send_batch([Message("T", b"a"), Message("T", b"b")])
            await sender.send_oneway(Message("T", b"o"))
            later = await sender.send_soon(Message("T", b"s"))
            assert (await later).msg_id == later.msg_id
        assert bodies(broker) == [b"m-1-2", b"a-1-2", b"b-1-2", b"o-1-2", b"s-1-2"]
        assert watching.ends[0] is result and watching.ends[2] is None
        sending = first.seen[0]
        assert (sending.group, sending.client_id) == ("pg", "10.1.1.1@p")
        assert [each.msg_id for each in sending.messages] == [result.msg_id]
        assert [each.body for each in second.seen[1].messages] == [b"a-1", b"b-1"]

    run(scenario)


def test_each_message_of_an_automatic_batch_passes_the_hooks() -> None:
    marking = Marking(b"-mark")

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster, hooks=(marking,), linger=0.1, in_flight_max=4) as sender:
            handles = [await sender.send_soon(Message("T", b"%d" % number)) for number in range(4)]
            await sender.flush()
            assert all(handle.is_done for handle in handles)
            await sender.send_batch([Message("T", b"a"), Message("T", b"b")])
            await sender.send(Message("T", b"last"))
            handles += [await sender.send_soon(Message("T", b"more")) for _ in range(9)]
        assert [(await handle).msg_id for handle in handles] == [handle.msg_id for handle in handles]
        assert sorted(bodies(broker)[:4]) == [b"0-mark", b"1-mark", b"2-mark", b"3-mark"]
        assert bodies(broker)[4:7] == [b"a-mark", b"b-mark", b"last-mark"]
        assert len(bodies(broker)) == 16 and len(broker.got(RequestCode.SEND_BATCH_MESSAGE)) < 9

    run(scenario)


def test_a_message_is_checked_after_the_hooks() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster, hooks=(Marking(b"mark"),), message_size_max=5) as sender:
            with pytest.raises(MessageInvalid, match="has 6 bytes"):
                await sender.send(Message("T", b"ab"))
            await sender.send(Message("T", b""))
        assert bodies(broker) == [b"mark"]

    run(scenario)


def test_hooks_get_no_empty_batch() -> None:
    """Fault: The hook for Prometheus raised IndexError; now the batch is refused as without hooks."""
    watching = Watching()

    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1)
        async with producer(cluster, hooks=(watching,)) as sender:
            with pytest.raises(MessageInvalid):
                await sender.send_batch([])
        assert watching.ends == []

    run(scenario)


def test_errors_of_a_send_pass_the_hooks_and_those_of_a_hook_are_the_sends() -> None:
    watching = Watching()

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.refuse(SEND, ResponseCode.MESSAGE_ILLEGAL)
        async with producer(cluster, hooks=(watching,)) as sender:
            with pytest.raises(BrokerError) as caught:
                await sender.send(Message("T", b"m"))
            assert watching.ends == [caught.value]
            watching.error = LookupError("no key")
            for send in (sender.send, sender.send_oneway, sender.request):
                with pytest.raises(LookupError, match="no key"):
                    await send(Message("T", b"m"))
            with pytest.raises(LookupError, match="no key"):
                await sender.send_batch([Message("T", b"m")])
            handle = await sender.send_soon(Message("T", b"m"))
            with pytest.raises(LookupError, match="no key"):
                await handle
            watching.error = None
            await sender.send(Message("T", b"last"))
        assert bodies(broker) == [b"last"]

    run(scenario)


class Wrong(Hook):
    async def send(self, sending: Sending, call_next: SendNext) -> SendResult | None:
        if sending.messages[0].tags == "forget":
            await call_next(sending.messages)
            return None
        return await call_next([*sending.messages, *sending.messages])


@pytest.mark.parametrize("hooks", [Watching(), [Watching()], (Watching,)])
def test_hooks_are_a_tuple_of_objects(hooks: Any) -> None:
    with pytest.raises(ValueError, match="not a tuple of Hook objects"):
        ProducerOptions(hooks=hooks)


def test_what_a_hook_gets_wrong_is_said() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1)
        async with producer(cluster, hooks=(Wrong(),)) as sender:
            with pytest.raises(ClientError, match="no SendResult"):
                await sender.send(Message("T", b"m", tags="forget"))
            with pytest.raises(ClientError, match="passed 2 messages on"):
                await sender.send(Message("T", b"m"))

    run(scenario)


def test_a_request_and_its_reply_pass_the_hooks() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        Desk.beside(broker)
        hooks = (Marking(b"-mark"),)
        async with producer(cluster, hooks=hooks) as asker, producer(cluster, "replies", hooks=hooks) as server:
            handle = await asker.request_soon(Message("T", b"ping"))
            while not bodies(broker):
                await aio.sleep(0.01)
            question = last_request(broker)
            assert question.body == b"ping-mark" and question.msg_id == handle.msg_id
            await server.send(question.reply(b"pong"))
            assert (await handle).body == b"pong"

    run(scenario)


def test_half_messages_and_checks_pass_the_hooks() -> None:
    listener = Local(outcome=LocalTransactionState.UNKNOWN)

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        channels = remember_channel(broker)
        async with transactions(cluster, listener, hooks=(Marking(b"-mark"),)) as sender:
            await sender.send_in_transaction(Message("T", b"half"))
            assert bodies(broker) == [b"half-mark"] and listener.executed[0][0].body == b"half"
            channels[-1].push(check_of(broker))
            while len(ends(broker)) < 2:  # an UNKNOWN, then the check
                await aio.sleep(0.01)
        assert listener.asked[0].body == b"half"

    run(scenario)


def test_a_handler_gets_what_the_hooks_pass_on() -> None:
    inner, outer = Marking(b"-1"), Marking(b"-2")
    seen = Seen()

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"m-1-2")
        async with push_consumer(cluster, seen, start=START_FIRST, hooks=(inner, outer)):
            await seen.wait(1)
        assert seen.bodies == [b"m"]
        assert outer.seen[0].messages[0].body == b"m-1-2" and inner.seen[0].messages[0].body == b"m-1"
        assert (inner.seen[0].group, inner.seen[0].client_id) == ("cg", "10.1.1.1@c1")
        assert broker.offsets["cg", "T", 0] == 1

    run(scenario)


def test_plain_handlers_and_batches_have_hooks() -> None:
    got: list[bytes] = []

    def handle(messages: Any) -> None:
        got.extend(each.body for each in messages)

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1-mark", b"2-mark")
        settings: dict[str, Any] = {"batch": True, "batch_size_max": 8, "start": START_FIRST}
        async with push_consumer(cluster, handle, hooks=(Marking(b"-mark"),), **settings):
            while not got:
                await aio.sleep(0.1)
        assert got == [b"1", b"2"]

    run(scenario)


def test_errors_of_a_handler_pass_the_hooks_and_those_of_a_hook_retry_the_message() -> None:
    watching, failure = Watching(), ValueError("handler")
    seen = Seen(failure)

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"no mark", b"m-1")
        async with push_consumer(cluster, seen, start=START_FIRST, hooks=(watching, Marking(b"-1"))):
            await seen.wait(1)
            while len(broker.got(RequestCode.CONSUMER_SEND_MSG_BACK)) < 2:
                await aio.sleep(0.1)
        assert watching.ends == [failure] and seen.bodies == [b"m"]

    run(scenario)


class Skipping(Hook):
    async def consume(self, delivery: Delivery, call_next: ConsumeNext) -> ConsumeResult:
        wanted = [message for message in delivery.messages if message.body != b"skip"]
        return await call_next(wanted) if wanted else CONSUMED


def test_a_hook_may_skip_messages() -> None:
    seen = Seen()

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"skip", b"m")
        async with push_consumer(cluster, seen, start=START_FIRST, hooks=(Skipping(),)):
            await seen.wait(1)
        assert seen.bodies == [b"m"] and broker.offsets["cg", "T", 0] == 2
        async with pull_consumer(cluster, "reader", start=START_FIRST, hooks=(Skipping(),)) as reader:
            await reader.subscribe("T")
            assert [message.body for message in await reader.poll()] == [b"m"]
            await reader.commit()
        assert broker.offsets["reader", "T", 0] == 2

    run(scenario)


def test_a_poll_that_a_hook_failed_is_repeated_by_the_next_one() -> None:
    marking = Marking(b"-mark")

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1-mark", b"2", b"3-mark")
        async with pull_consumer(cluster, start=START_FIRST, hooks=(marking,)) as reader:
            await reader.subscribe("T")
            assert [each.body for each in await reader.poll(max_messages=1)] == [b"1"]
            for _ in range(2):
                with pytest.raises(ValueError, match="no mark"):
                    await reader.poll(max_messages=1)
            await reader.commit()
            assert broker.offsets["cg", "T", 0] == 1
            marking.mark = b""
            marking.consume = Hook().consume  # type: ignore[method-assign]
            assert [each.body for each in await reader.poll() + await reader.poll()] == [b"2", b"3-mark"]
            await reader.commit()
        assert broker.offsets["cg", "T", 0] == 3
        assert marking.seen[0].is_polled

    run(scenario)


class Slow(Hook):
    async def consume(self, delivery: Delivery, call_next: ConsumeNext) -> ConsumeResult:
        await aio.sleep(10)
        return await call_next(delivery.messages)


def test_hooks_have_time_after_a_polls_timeout_and_a_cancelled_poll_loses_nothing() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"m")
        async with pull_consumer(cluster, start=START_FIRST, hooks=(Slow(),)) as reader:
            await reader.subscribe("T")
            with aio.move_on_after(5):
                await reader.poll(timeout=60)
                raise AssertionError("not reached")
            assert [each.body for each in await reader.poll(timeout=1)] == [b"m"]

    run(scenario)


def test_a_pull_by_hand_has_hooks() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"m-mark")
        async with pull_consumer(cluster, hooks=(Marking(b"-mark"),)) as reader:
            result = await reader.pull(MessageQueue("T", "broker-a", 0), 0)
        assert [each.body for each in result.messages] == [b"m"]

    run(scenario)


def test_blocking_clients_have_hooks_in_the_context_of_the_caller() -> None:
    """So that a span of the caller is the parent of the send's, and the consumption's is current in the handler."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")
    found: list[str] = []

    class Reading(Hook):
        async def send(self, sending: Sending, call_next: SendNext) -> SendResult | None:
            found.append(variable.get())
            return await call_next(sending.messages)

        async def consume(self, delivery: Delivery, call_next: ConsumeNext) -> ConsumeResult:
            variable.set("consumed")
            return await call_next(delivery.messages)

    settings: dict[str, Any] = {**SETTINGS, "hooks": (Reading(),)}
    variable.set("caller")
    with sync.Producer("pg", ProducerOptions(**settings), lifetime=lifetime()) as sender:
        sender.send(Message("T", b"m"))
        sender.send_soon(Message("T", b"m")).result(10)
    assert found == ["caller", "caller"]

    done = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        found.append(variable.get())
        if len(found) == 4:
            done.set()

    options = PushOptions(start=START_FIRST, **settings)
    with sync.PushConsumer("cg", {"T": "*"}, handle, options=options, lifetime=lifetime()):
        assert done.wait(10)
    assert found[2:] == ["consumed", "consumed"]
    with sync.PullConsumer("cg", PullOptions(start=START_FIRST, **settings), lifetime=lifetime()) as reader:
        reader.subscribe("T")
        assert len(reader.poll()) == 2
