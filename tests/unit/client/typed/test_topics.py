"""Typed topics: values are sent and handled, in a loop and without one; another content type is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rocketpy import aio
from rocketpy.client import START_FIRST, Message, PushOptions, ReceivedMessage
from rocketpy.client.cluster import lifetime
from rocketpy.client.typed import BodyUndecodable, RetryPolicy, TypedConsumer, TypedProducer, TypedTopic
from rocketpy.client.typed import sync as typed_sync
from rocketpy.codes import RequestCode
from rocketpy.remoting.headers.send import read_send_header
from tests.support.clients import message, producer
from tests.support.cluster import NAME_SERVER, FakeCluster, run

Order = dict[str, int]
ORDERS = TypedTopic[Order]("T")


@pytest.mark.usefixtures("backend")
def test_values_are_sent_and_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        monkeypatch.setattr(lifetime, "connect", cluster.connect)
        got: list[tuple[Order, str | None, tuple[str, ...]]] = []

        async def handle(order: Order, message: ReceivedMessage) -> None:
            got.append((order, message.tags, message.keys))

        options = PushOptions(name_servers=NAME_SERVER, start=START_FIRST)
        async with producer(cluster) as sender:
            orders = TypedProducer(sender, ORDERS)
            await orders.send({"number": 1}, tags="paid", keys="1", properties={"amount": "7"})
            await orders.send_batch([{"number": 2}, {"number": 3}], tags="new")
            await (await orders.send_soon({"number": 4}, tags="paid"))
        async with TypedConsumer(
            "cg", ORDERS, handle, tags="paid", retry=RetryPolicy(attempts=3), options=options
        ) as c:
            assert c.options.reconsume_times_max == 2
            await aio.sleep(6)
        assert got == [({"number": 1}, "paid", ("1",)), ({"number": 4}, "paid", ())]
        header = read_send_header(broker.got(RequestCode.SEND_MESSAGE_V2)[0])
        assert "content-type\x01application/json" in (header.properties or "")
        assert "amount\x017" in (header.properties or "")

    run(scenario)


def test_values_without_a_loop() -> None:
    got: list[int] = []
    sent: list[Message] = []

    def handle(order: Order, message: ReceivedMessage) -> None:
        got.append(order["number"])

    class Sender:
        def send(self, message: Message) -> None:
            sent.append(message)

    sender: Any = Sender()
    typed_sync.TypedProducer(sender, ORDERS).send({"number": 6}, order_key=6)
    assert (sent[0].topic, sent[0].body, sent[0].order_key) == ("T", b'{"number":6}', 6)
    typed_sync.DeadLetterTopic(sender, "Dead")(message(0, b"x"), ValueError("boom"))
    assert (sent[1].topic, sent[1].properties["DLQ_REASON"]) == ("Dead", "ValueError: boom")
    consumer = typed_sync.TypedConsumer("cg", ORDERS, handle, retry=RetryPolicy(attempts=2))
    assert consumer._client.options.reconsume_times_max == 1
    assert consumer._client._function(message(0, b'{"number":5}')) is None and got == [5]


@pytest.mark.parametrize("given", [None, "application/json", "Application/JSON; charset=utf-8"])
def test_content_types_that_are_read(given: str | None) -> None:
    properties = {} if given is None else {"content-type": given}
    assert ORDERS.decode(message(0, b'{"number": 1}', properties=properties)) == {"number": 1}


def test_another_content_type_is_refused_with_both_names() -> None:
    received = message(3, b'{"number": 1}', properties={"content-type": "application/x-protobuf"})
    with pytest.raises(
        BodyUndecodable, match=r"message [0-9A-F]{32} of topic T is application/x-protobuf, expected is app"
    ):
        ORDERS.decode(received)


def test_an_error_of_the_serializer_is_its_cause() -> None:
    with pytest.raises(BodyUndecodable, match="cannot decode the 2 bytes of message id-0 of topic T") as caught:
        ORDERS.decode(message(0, b"{]"))
    assert isinstance(caught.value.__cause__, ValueError)
