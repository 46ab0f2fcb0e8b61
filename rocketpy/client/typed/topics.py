"""A topic with a type: what is sent to it and what handlers get are values, checked by mypy and by its serializer.

    ORDERS = TypedTopic("Orders", PydanticSerializer(Order))

    async with Producer("shop") as producer:
        await TypedProducer(producer, ORDERS).send(Order(number=7), keys="7")

    async def bill(order: Order, message: ReceivedMessage) -> None: ...

    async with TypedConsumer("billing", ORDERS, bill, retry=RetryPolicy(attempts=5)): ...

`TypedTopic.message` and `TypedTopic.handler` do the same for any other client: transactions, requests, several topics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypedDict, TypeVar, Unpack

import attrs

from ..consuming.handler import MessageHandler, is_async
from ..consuming.subscription import Sql92
from ..messages import Message, ReceivedMessage
from ..options import PushOptions
from ..producer import Producer
from ..push_consumer import PushConsumer
from ..results import ConsumeResult, SendResult
from ..sending.handles import SendHandle
from .retry import BodyUndecodable, RetryPolicy, with_policy
from .serializers import JSON, Serializer

T = TypeVar("T")
CONTENT_TYPE = "content-type"
TypedHandler = Callable[[T, ReceivedMessage], ConsumeResult | Awaitable[ConsumeResult | None] | None]


class MessageFields(TypedDict, total=False):
    """Fields of `Message` beside topic and body."""

    tags: str | None
    keys: str | Iterable[str]
    properties: Mapping[str, str]
    delay_level: int
    delay_ms: int
    deliver_at_ms: int
    wait_store: bool
    order_key: str | int | None


@attrs.frozen
class TypedTopic(Generic[T]):
    """The name of a topic, and the serializer of its values (JSON)."""

    name: str
    serializer: Serializer[T] = JSON

    def message(self, value: T, **fields: Unpack[MessageFields]) -> Message:
        """Return the message of a value; the property `content-type` says how to read it. Raises what encoding does."""
        fields["properties"] = {CONTENT_TYPE: self.serializer.content_type, **fields.get("properties", {})}
        return Message(self.name, self.serializer.encode(value), **fields)

    def decode(self, message: ReceivedMessage) -> T:
        """Return the value of a message. A message without `content-type` is read as well.

        Raises:
            BodyUndecodable: it has another content type, or its body is no value of this type.
        """
        expected, given = self.serializer.content_type, message.properties.get(CONTENT_TYPE)
        if given is not None and _media_type(given) != _media_type(expected):
            raise BodyUndecodable(f"message {message.msg_id} of topic {self.name} is {given}, expected is {expected}")
        try:
            return self.serializer.decode(message.body)
        except Exception as error:
            raise BodyUndecodable(
                f"cannot decode the {len(message.body)} bytes of message {message.msg_id} of topic {self.name} as "
                f"{expected}: {' '.join(str(error).split())}"
            ) from error

    def handler(self, function: TypedHandler[T], retry: RetryPolicy | None = None) -> MessageHandler:
        """Return the handler of a consumer of this topic; use it with the policy's `options`."""

        def consume(message: ReceivedMessage) -> ConsumeResult | Awaitable[ConsumeResult | None] | None:
            return function(self.decode(message), message)

        return with_policy(consume, retry or RetryPolicy(), in_loop=is_async(function))

    def consumption(
        self, function: TypedHandler[T], retry: RetryPolicy, options: PushOptions
    ) -> tuple[MessageHandler, PushOptions]:
        """Return handler and options of a consumer of this topic."""
        return self.handler(function, retry), retry.options(options)


@attrs.frozen
class TypedProducer(Generic[T]):
    """Sends values to one topic with a producer, which may serve other topics as well."""

    producer: Producer
    topic: TypedTopic[T]

    async def send(self, value: T, **fields: Unpack[MessageFields]) -> SendResult:
        """As `Producer.send`."""
        return await self.producer.send(self.topic.message(value, **fields))

    async def send_batch(self, values: Iterable[T], **fields: Unpack[MessageFields]) -> SendResult:
        """As `Producer.send_batch`; all messages have the same `fields`."""
        return await self.producer.send_batch([self.topic.message(value, **fields) for value in values])

    async def send_soon(self, value: T, **fields: Unpack[MessageFields]) -> SendHandle:
        """As `Producer.send_soon`."""
        return await self.producer.send_soon(self.topic.message(value, **fields))


class TypedConsumer(PushConsumer, Generic[T]):
    """A PushConsumer of one topic whose handler gets values.

    Args:
        handler: gets the value and its message; plain functions run in threads.
        retry: what happens when it raises, or when the body is no value of the topic.
        tags: the subscription, `TagA || TagB` or Sql92(...).
        group, options: as of PushConsumer.
    """

    def __init__(
        self,
        group: str,
        topic: TypedTopic[T],
        handler: TypedHandler[T],
        *,
        retry: RetryPolicy | None = None,
        tags: str | Sql92 = "*",
        options: PushOptions | None = None,
    ) -> None:
        function, chosen = topic.consumption(handler, retry or RetryPolicy(), options or PushOptions())
        super().__init__(group, {topic.name: tags}, function, options=chosen)


def _media_type(text: str) -> str:
    return text.partition(";")[0].strip().lower()
