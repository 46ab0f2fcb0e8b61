"""Policies of failed messages: what the broker is told, who gets the dead letters, and that no queue stops."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy import aio
from rocketpy.client import START_FIRST, ConsumeResult, Message, PushOptions, ReceivedMessage
from rocketpy.client.typed import DeadLetterTopic, RetryPolicy, TypedTopic, Undecodable
from rocketpy.codes import RequestCode
from rocketpy.message.properties import decode_properties
from rocketpy.remoting.headers.send import read_send_header
from tests.support.clients import message, producer, push_consumer
from tests.support.cluster import FakeCluster, run
from tests.support.push_consumers import store

pytestmark = pytest.mark.usefixtures("backend")

T = TypedTopic[Any]("T")


def consumer_of(cluster: FakeCluster, handler: Any, retry: RetryPolicy, **settings: Any) -> Any:
    """A consumer as TypedConsumer makes it, in the cluster."""
    options = retry.options(PushOptions(**settings))
    settings["reconsume_times_max"] = options.reconsume_times_max
    return push_consumer(cluster, T.handler(handler, retry), start=START_FIRST, **settings)


def failing(kind: str) -> Callable[..., Any]:
    async def fail_async(value: Any, message: ReceivedMessage) -> None:
        raise ValueError(f"no {value}")

    def fail(value: Any, message: ReceivedMessage) -> None:
        raise ValueError(f"no {value}")

    class Fails:
        async def __call__(self, value: Any, message: ReceivedMessage) -> None:
            raise ValueError(f"no {value}")

    def returns_awaitable(value: Any, message: ReceivedMessage) -> Any:
        return fail_async(value, message)

    return {"async": fail_async, "plain": fail, "object": Fails(), "awaitable": returns_awaitable}[kind]


@pytest.mark.parametrize("kind", ["async", "plain", "object", "awaitable"])
def test_the_broker_is_told_attempts_and_delays(kind: str) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")
        store(broker, b"2")
        retry = RetryPolicy(attempts=4, delay_levels=(2, 5))
        async with consumer_of(cluster, failing(kind), retry):
            while len(broker.sent_back) < 2:
                await aio.sleep(1)
        assert [header.delay_level for header in broker.sent_back[:2]] == [2, 2]
        assert {header.max_reconsume_times for header in broker.sent_back} == {3}

    run(scenario)


def test_each_attempt_has_its_delay_and_the_last_none() -> None:
    retry = RetryPolicy(attempts=4, delay_levels=[2, 5])
    levels = [retry.result(message(0, reconsume_times=times), ValueError()).delay_level for times in range(4)]
    assert levels == [2, 5, 5, -1]
    assert RetryPolicy().result(message(0), ValueError()) == ConsumeResult.retry()
    assert RetryPolicy(attempts=1).options(PushOptions()).reconsume_times_max == 0


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"attempts": 0}, "attempts is 0, allowed are 1 to"),
        ({"delay_levels": (3, 19)}, "delay_levels has 19, allowed are 1 to 18"),
    ],
)
def test_a_wrong_policy_names_its_setting(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        RetryPolicy(**wrong)


def test_levels_have_no_effect_on_ordered_consumers_and_are_refused() -> None:
    with pytest.raises(ValueError, match=r"set PushOptions\.suspend_queue"):
        RetryPolicy(delay_levels=(1,)).options(PushOptions(ordered=True))


@pytest.mark.parametrize("ordered", [False, True])
def test_a_body_that_cannot_be_decoded_stops_no_queue(ordered: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"{", b'"good"')
        got: list[Any] = []

        async def handle(value: str, message: ReceivedMessage) -> None:
            got.append(value)

        async with consumer_of(cluster, handle, RetryPolicy(), ordered=ordered):
            await aio.sleep(6)
            assert broker.offsets["cg", "T", 0] == 2
        assert got == ["good"]
        levels = [header.delay_level for header in broker.sent_back]
        assert (levels, len(broker.records["%DLQ%cg", 0])) == (([], 1) if ordered else ([-1], 0))

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "cannot decode the 1 bytes of message" in caplog.text and "as application/json" in caplog.text


def test_undecodable_messages_can_be_skipped_or_retried() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        for undecodable, levels in ((Undecodable.SKIP, []), (Undecodable.RETRY, [4])):
            broker = cluster.add_broker(f"broker-{undecodable.value}", T=1)
            store(broker, b"{")
            retry = RetryPolicy(undecodable=undecodable, delay_levels=(4,))
            async with consumer_of(cluster, failing("async"), retry):
                await aio.sleep(6)
            assert [header.delay_level for header in broker.sent_back[:1]] == levels
            del cluster.brokers[broker.name]

    run(scenario)


@pytest.mark.parametrize(
    ("handler", "dead_letter"), [("async", "async"), ("async", "plain"), ("plain", "plain"), ("awaitable", "plain")]
)
def test_a_handler_of_dead_letters_gets_message_and_error(handler: str, dead_letter: str) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1", b"{")
        dead: list[tuple[bytes, str]] = []

        def bury(message: ReceivedMessage, error: Exception) -> None:
            dead.append((message.body, type(error).__name__))

        async def bury_async(message: ReceivedMessage, error: Exception) -> None:
            bury(message, error)

        retry = RetryPolicy(attempts=1, dead_letter=bury_async if dead_letter == "async" else bury)
        async with consumer_of(cluster, failing(handler), retry):
            while broker.offsets.get(("cg", "T", 0)) != 2:
                await aio.sleep(1)
        assert sorted(dead) == [(b"1", "ValueError"), (b"{", "BodyUndecodable")]
        assert not broker.sent_back

    run(scenario)


def test_a_plain_handler_needs_a_plain_handler_of_dead_letters() -> None:
    async def bury(message: ReceivedMessage, error: Exception) -> None:
        raise AssertionError("never called")

    with pytest.raises(TypeError, match=r"typed\.sync has them"):
        T.handler(failing("plain"), RetryPolicy(dead_letter=bury))


@pytest.mark.parametrize("handler", ["async", "plain", "awaitable"])
def test_a_handler_of_dead_letters_that_fails_leaves_them_to_the_broker(handler: str) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")

        def bury(message: ReceivedMessage, error: Exception) -> None:
            raise OSError("no disk")

        async with consumer_of(cluster, failing(handler), RetryPolicy(attempts=1, dead_letter=bury)):
            while not broker.sent_back:
                await aio.sleep(1)
        assert [header.delay_level for header in broker.sent_back] == [-1]

    run(scenario)


def test_a_topic_of_dead_letters_keeps_the_message_and_says_why() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1, Dead=1)
        async with producer(cluster) as sender:
            await sender.send(Message("T", b"1", tags="paid", keys="k", properties={"amount": "7"}))
            retry = RetryPolicy(attempts=1, dead_letter=DeadLetterTopic(sender, "Dead"))
            async with consumer_of(cluster, failing("async"), retry):
                while not broker.records["Dead", 0]:
                    await aio.sleep(1)
        sent = read_send_header(broker.got(RequestCode.SEND_MESSAGE_V2)[-1])
        properties = decode_properties(sent.properties or "")
        assert sent.topic == "Dead"
        assert (properties["TAGS"], properties["KEYS"], properties["amount"]) == ("paid", "k", "7")
        assert (properties["DLQ_ORIGIN_TOPIC"], properties["DLQ_REASON"]) == ("T", "ValueError: no 1")
        assert properties["DLQ_ORIGIN_MESSAGE_ID"] != properties["UNIQ_KEY"]

    run(scenario)


def test_a_result_that_the_handler_returns_counts() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        store(broker, b"1")

        async def handle(value: Any, message: ReceivedMessage) -> ConsumeResult:
            return ConsumeResult.retry(7)

        async with consumer_of(cluster, handle, RetryPolicy(delay_levels=(1,))):
            while not broker.sent_back:
                await aio.sleep(1)
        assert broker.sent_back[0].delay_level == 7

    run(scenario)
