"""Spans of sends and deliveries, with the semantic conventions for messaging (1.27) and RocketMQ.

    from rocketpy.client.hooks.opentelemetry import OpenTelemetry

    options = ProducerOptions(hooks=(OpenTelemetry(),))

The context of a send travels in the properties of its messages, as the global propagator writes it (`traceparent`). The
span of a handler that gets one message is a child of the send; that of several messages, or of a poll, has links.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

import rocketpy

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
except ImportError as missing:
    raise ImportError("the spans need the extra 'opentelemetry': pip install 'rocketpy-mq[opentelemetry]'") from missing

from ..messages import Message, ReceivedMessage
from ..results import ConsumeAction, ConsumeResult, SendResult
from .layer import ConsumeNext, Delivery, Hook, Sending, SendNext

FAILURES = {ConsumeAction.RETRY, ConsumeAction.SUSPEND, ConsumeAction.ROLLBACK}
Attributes = dict[str, Any]


class OpenTelemetry(Hook):
    """Makes a span of each send and each delivery. Any number of clients may share one.

    Args:
        tracer_provider: makes the tracer; None: the global one.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("rocketpy.client", rocketpy.__version__, tracer_provider)

    async def send(self, sending: Sending, call_next: SendNext) -> SendResult | None:
        topic = sending.messages[0].topic
        attributes = _common("send", sending.client_id, sending.messages) | _of_message(sending.messages)
        with self._span(f"send {topic}", SpanKind.PRODUCER, attributes) as span:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            result = await call_next(
                [attrs.evolve(each, properties={**each.properties, **carrier}) for each in sending.messages]
            )
            if result is not None:
                span.set_attribute("messaging.destination.partition.id", str(result.queue.queue_id))
            return result

    async def consume(self, delivery: Delivery, call_next: ConsumeNext) -> ConsumeResult:
        operation = "receive" if delivery.is_polled else "process"
        messages = delivery.messages
        attributes = _common(operation, delivery.client_id, messages) | {
            "messaging.consumer.group.name": delivery.group,
            "messaging.destination.partition.id": str(messages[0].queue.queue_id),
        }
        senders = [propagate.extract(each.properties) for each in messages]
        is_child = len(messages) == 1 and not delivery.is_polled
        with _current(senders[0] if is_child else None):
            links = () if is_child else tuple(_links(senders))
            name = f"{operation} {messages[0].topic}"
            with self._span(name, SpanKind.CONSUMER, attributes, links) as span:
                result = await call_next(messages)
                if result.action in FAILURES:
                    span.set_attribute("error.type", result.action.value)
                    span.set_status(Status(StatusCode.ERROR, result.action.value))
                return result

    @contextmanager
    def _span(self, name: str, kind: SpanKind, attributes: Attributes, links: Sequence[Link] = ()) -> Iterator[Span]:
        """A current span; an exception is recorded, also as its status."""
        with self._tracer.start_as_current_span(name, kind=kind, attributes=attributes, links=links) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise


@contextmanager
def _current(found: context.Context | None) -> Iterator[None]:
    """A block in which the context of a message is the current one, its baggage included."""
    if found is None:
        yield
        return
    token = context.attach(found)
    try:
        yield
    finally:
        context.detach(token)


def _links(senders: Sequence[context.Context]) -> Iterator[Link]:
    """One link to each send."""
    spans = [trace.get_current_span(sender).get_span_context() for sender in senders]
    return (Link(span) for span in {(span.trace_id, span.span_id): span for span in spans if span.is_valid}.values())


def _common(operation: str, client_id: str, messages: Sequence[Message] | Sequence[ReceivedMessage]) -> Attributes:
    """The attributes of sends and deliveries; those of a single message unless there are several."""
    found: Attributes = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": messages[0].topic,
        "messaging.client.id": client_id,
    }
    if len(messages) > 1:
        return found | {"messaging.batch.message_count": len(messages)}
    (message,) = messages
    return found | _without_none(
        {
            "messaging.message.id": message.msg_id,
            "messaging.message.body.size": len(message.body),
            "messaging.rocketmq.message.tag": message.tags,
            "messaging.rocketmq.message.keys": message.keys or None,
        }
    )


def _of_message(messages: Sequence[Message]) -> Attributes:
    """The attributes that a message has before it is sent."""
    if len(messages) > 1:
        return {}
    (message,) = messages
    group = None if message.order_key is None else str(message.order_key)
    return _without_none(
        {
            "messaging.rocketmq.message.group": group,
            "messaging.rocketmq.message.delay_time_level": message.delay_level or None,
            "messaging.rocketmq.message.delivery_timestamp": message.deliver_at_ms or None,
        }
    )


def _without_none(attributes: Mapping[str, Any]) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}
