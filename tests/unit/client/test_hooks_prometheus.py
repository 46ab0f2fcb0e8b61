"""Counters and histograms of sends and deliveries."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from rocketpy.client import START_FIRST, Message
from rocketpy.client.hooks.prometheus import Prometheus
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError
from tests.support.clients import producer, pull_consumer, push_consumer
from tests.support.cluster import FakeCluster, run
from tests.support.push_consumers import Seen

pytestmark = pytest.mark.usefixtures("backend")


def values(registry: CollectorRegistry, name: str) -> dict[tuple[str, str, str], float]:
    """The samples of a metric by topic, group and result."""
    return {
        (sample.labels["topic"], sample.labels["group"], sample.labels["result"]): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == name
    }


def test_sends_are_counted_by_their_result_and_measured() -> None:
    registry = CollectorRegistry()
    hooks = (Prometheus(registry),)

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        async with producer(cluster, hooks=hooks) as sender:
            await sender.send(Message("T", b"m"))
            await sender.send_batch([Message("T", b"a"), Message("T", b"b")])
            broker.refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL)
            with pytest.raises(BrokerError):
                await sender.send(Message("T", b"m"))
            await sender.send_oneway(Message("T", b"m"))

    run(scenario)
    results = {("T", "pg", "SEND_OK"): 3, ("T", "pg", "ONEWAY"): 1, ("T", "pg", "BrokerError"): 1}
    assert values(registry, "rocketpy_client_sent_messages_total") == results
    assert values(registry, "rocketpy_client_send_seconds_count") == results | {("T", "pg", "SEND_OK"): 2}


def test_deliveries_are_counted_and_handlers_measured() -> None:
    registry = CollectorRegistry()
    hooks = (Prometheus(registry),)
    seen = Seen(ValueError("handler"))

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        for body in (b"1", b"2", b"3"):
            broker.store("T", 0, body)
        async with push_consumer(cluster, seen, start=START_FIRST, hooks=hooks):
            await seen.wait(3)
        async with pull_consumer(cluster, "reader", start=START_FIRST, hooks=hooks) as reader:
            await reader.subscribe("T")
            await reader.poll()

    run(scenario)
    handled = {("T", "cg", "ValueError"): 1, ("T", "cg", "SUCCESS"): 2}
    assert values(registry, "rocketpy_client_handler_seconds_count") == handled
    polled = {("T", "reader", "SUCCESS"): 3}
    assert values(registry, "rocketpy_client_consumed_messages_total") == handled | polled
