"""Spans of sends and deliveries: names, kinds, attributes, and the way from a send to its handler."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rocketpy import aio
from rocketpy.client import START_FIRST, ConsumeResult, Message
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError
from tests.support.clients import producer, pull_consumer, push_consumer
from tests.support.cluster import FakeCluster, run
from tests.support.push_consumers import Seen

pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")

from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from rocketpy.client.hooks.opentelemetry import OpenTelemetry

pytestmark = pytest.mark.usefixtures("backend")


class Spans:
    """A hook, and the spans that it has ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.hooks = (OpenTelemetry(self.provider),)

    def of_kind(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.kind is kind]


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    yield found
    found.provider.shutdown()


def context_of(span: ReadableSpan) -> tuple[int, int]:
    found = span.get_span_context()
    assert found is not None
    return found.trace_id, found.span_id


def test_a_handler_continues_the_trace_of_the_send(spans: Spans) -> None:
    current: list[Any] = []

    class Reading(Seen):
        async def __call__(self, message: Any) -> ConsumeResult | None:
            current.append((trace.get_current_span().get_span_context().span_id, baggage.get_baggage("user")))
            return await super().__call__(message)

    seen = Reading(ConsumeResult.retry())

    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1)
        token = context.attach(baggage.set_baggage("user", "7"))
        async with producer(cluster, hooks=spans.hooks) as sender:
            result = await sender.send(Message("T", b"body", tags="A", keys=("k1", "k2"), order_key="o", delay_level=2))
        context.detach(token)
        async with push_consumer(cluster, seen, start=START_FIRST, hooks=spans.hooks):
            await seen.wait(1)
            await aio.sleep(1)
        (sent,), (consumed,) = spans.of_kind(SpanKind.PRODUCER), spans.of_kind(SpanKind.CONSUMER)
        common = {
            "messaging.system": "rocketmq",
            "messaging.destination.name": "T",
            "messaging.destination.partition.id": "0",
            "messaging.message.id": result.msg_id,
            "messaging.message.body.size": 4,
            "messaging.rocketmq.message.tag": "A",
            "messaging.rocketmq.message.keys": ("k1", "k2"),
        }
        assert sent.name == "send T" and dict(sent.attributes or {}) == common | {
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.client.id": "10.1.1.1@p",
            "messaging.rocketmq.message.group": "o",
            "messaging.rocketmq.message.delay_time_level": 2,
        }
        assert consumed.name == "process T" and dict(consumed.attributes or {}) == common | {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.client.id": "10.1.1.1@c1",
            "messaging.consumer.group.name": "cg",
            "error.type": "RETRY",
        }
        assert consumed.parent is not None and consumed.status.status_code is StatusCode.ERROR
        assert (consumed.parent.trace_id, consumed.parent.span_id) == context_of(sent)
        assert current == [(context_of(consumed)[1], "7")]

    run(scenario)


def test_batches_and_polls_have_links(spans: Spans) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1)
        async with producer(cluster, hooks=spans.hooks) as sender:
            await sender.send_batch([Message("T", b"1"), Message("T", b"2")])
            await sender.send(Message("T", b"3"))
        async with pull_consumer(cluster, start=START_FIRST, hooks=spans.hooks) as reader:
            await reader.subscribe("T")
            assert len(await reader.poll()) == 3
        batch, single = spans.of_kind(SpanKind.PRODUCER)
        (polled,) = spans.of_kind(SpanKind.CONSUMER)
        attributes = dict(batch.attributes or {})
        assert attributes["messaging.batch.message_count"] == 2 and "messaging.message.id" not in attributes
        assert polled.name == "receive T" and polled.parent is None
        linked = {(link.context.trace_id, link.context.span_id) for link in polled.links}
        assert linked == {context_of(batch), context_of(single)}

    run(scenario)


def test_a_failed_send_is_an_error_of_its_span(spans: Spans) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        broker.refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL)
        async with producer(cluster, hooks=spans.hooks) as sender:
            with pytest.raises(BrokerError):
                await sender.send(Message("T", b"m"))
            await sender.send_oneway(Message("T", b"m"))
        failed, oneway = spans.of_kind(SpanKind.PRODUCER)
        assert (failed.attributes or {})["error.type"] == "BrokerError"
        assert failed.status.status_code is StatusCode.ERROR and failed.events[0].name == "exception"
        assert oneway.status.status_code is StatusCode.UNSET

    run(scenario)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rocketpy.client.hooks.opentelemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match=r"rocketpy-mq\[opentelemetry\]"):
        import rocketpy.client.hooks.opentelemetry  # noqa: F401
