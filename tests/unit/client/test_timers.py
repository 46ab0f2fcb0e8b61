"""Timers that a producer cancels or moves: the message goes to the queue, and so to the broker, of the timer."""

from __future__ import annotations

import pytest

from rocketpy.client.messages import Message
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError
from rocketpy.message.properties import decode_properties
from rocketpy.remoting.headers.send import read_send_header
from tests.support.clients import producer
from tests.support.cluster import FakeCluster, run

pytestmark = pytest.mark.usefixtures("backend")

SEND = RequestCode.SEND_MESSAGE_V2


def test_a_timer_is_cancelled_and_moved_by_its_unique_id() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=4)
        async with producer(cluster) as sender:
            for _ in range(3):
                sent = await sender.send(Message("T", b"m", delay_ms=60_000))
            assert await sender.cancel_timer(sent) and await sender.move_timer(sent, 1_700_000_000_123)
        *_, cancellation, move = [read_send_header(request) for request in broker.got(SEND)]
        assert (cancellation.topic, cancellation.queue_id) == (move.topic, move.queue_id) == ("T", sent.queue.queue_id)
        properties = decode_properties(cancellation.properties or "")
        assert properties["TIMER_DEL_UNIQKEY"] == sent.msg_id != properties["UNIQ_KEY"]
        properties = decode_properties(move.properties or "")
        assert properties["TIMER_MOVE_UNIQKEY"] == sent.msg_id
        assert properties["TIMER_DELIVER_MS"] == "1700000000123"

    run(scenario)


def test_a_timer_that_is_not_pending_is_no_error_but_a_refusal_is() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster) as sender:
            sent = await sender.send(Message("T", b"m", delay_ms=60_000))
            broker.refuse(SEND, ResponseCode.QUERY_NOT_FOUND, ResponseCode.QUERY_NOT_FOUND, ResponseCode.SYSTEM_BUSY)
            assert not await sender.cancel_timer(sent) and not await sender.move_timer(sent, 5)
            with pytest.raises(BrokerError, match="SYSTEM_BUSY"):
                await sender.cancel_timer(sent)
        assert len(broker.got(SEND)) == 4, "one attempt each"

    run(scenario)
