"""Typed clients for programs without an event loop; `TypedTopic` and policies are those of `rocketpy.client.typed`.

with Producer("shop") as producer, TypedConsumer("billing", ORDERS, bill):
    TypedProducer(producer, ORDERS).send(Order(number=7))
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable
from typing import Any, Generic, TypeVar, Unpack

import attrs

from .. import sync
from ..consuming.subscription import Sql92
from ..messages import ReceivedMessage
from ..options import PushOptions
from ..results import SendResult
from .retry import RetryPolicy, dead_letter
from .topics import MessageFields, TypedHandler, TypedTopic

T = TypeVar("T")


@attrs.frozen
class TypedProducer(Generic[T]):
    """`rocketpy.client.typed.TypedProducer`, blocking."""

    producer: sync.BlockingProducer[Any]
    topic: TypedTopic[T]

    def send(self, value: T, **fields: Unpack[MessageFields]) -> SendResult:
        return self.producer.send(self.topic.message(value, **fields))

    def send_batch(self, values: Iterable[T], **fields: Unpack[MessageFields]) -> SendResult:
        return self.producer.send_batch([self.topic.message(value, **fields) for value in values])

    def send_soon(self, value: T, **fields: Unpack[MessageFields]) -> concurrent.futures.Future[SendResult]:
        return self.producer.send_soon(self.topic.message(value, **fields))


class TypedConsumer(sync.PushConsumer, Generic[T]):
    """`rocketpy.client.typed.TypedConsumer`, blocking."""

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


@attrs.frozen
class DeadLetterTopic:
    """`rocketpy.client.typed.DeadLetterTopic`, for plain handlers."""

    producer: sync.BlockingProducer[Any]
    topic: str

    def __call__(self, message: ReceivedMessage, error: Exception) -> None:
        self.producer.send(dead_letter(self.topic, message, error))
