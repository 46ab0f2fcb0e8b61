"""Shared by concurrent and ordered consumption: their collaborators, and the restoring of topic names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from rocketpy import aio
from rocketpy.message import properties
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import retry_topic, without_namespace

from ..messages import ReceivedMessage
from ..options import ConsumeMode, PushOptions
from .handler import Handled
from .offset_store import OffsetStore
from .process_queue import ProcessQueue
from .statistics import ConsumerStatistics


class SendBack(Protocol):
    """Returns messages to the broker (`RetrySender`)."""

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Ask the broker to deliver the message again later, or to store it as a dead letter.

        Raises:
            RocketError: neither the broker nor the fallback accepted it.
        """

    async def send_to_retry_topic(self, message: ReceivedMessage, reconsume_times_max: int) -> None:
        """Send a copy to the group's retry topic; after too many retries the broker makes it a dead letter."""


class ConsumeHandler(Protocol):
    """Calls the user's handler (`Handler`, `TracedHandler`)."""

    async def handle(self, messages: Sequence[ReceivedMessage]) -> Handled:
        """Raises only cancellation: an error of the handler is part of the result."""


@attrs.frozen
class ConsumeContext:
    """The collaborators of a consume service."""

    group: str
    namespace: str  # empty: none
    options: PushOptions
    handler: ConsumeHandler
    offsets: OffsetStore
    retries: SendBack
    statistics: ConsumerStatistics
    now_ms: Callable[[], int]

    def restored(self, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        """The messages, of one queue, as the user knows them."""
        if not self.namespace and messages[0].topic != retry_topic(self.group):
            return messages
        return [restore_topic(message, self.group, self.namespace) for message in messages]

    @property
    def is_clustering(self) -> bool:
        return self.options.mode is ConsumeMode.CLUSTERING


class ConsumeService(Protocol):
    """Passes pulled messages to the handler and moves the offset."""

    def submit(self, queue: MessageQueue, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Consume messages that were pulled into the process queue."""

    def start(self, nursery: aio.Nursery) -> None:
        """Begin to call handlers, in tasks of the nursery."""

    async def stop(self, grace_s: float) -> None:
        """Start no more handlers; wait for running ones, at most `grace_s`."""


def restore_topic(message: ReceivedMessage, group: str, namespace: str) -> ReceivedMessage:
    """A retried message under the topic it was first sent to, without the namespace: users never see `%RETRY%group`.

    Source: RocketMQ 4.9 `DefaultMQPushConsumerImpl#resetRetryAndNamespace`.
    """
    topic, origin = message.topic, message.properties.get(properties.RETRY_TOPIC)
    if origin is not None and topic == retry_topic(group):
        topic = origin
    if namespace:
        topic = without_namespace(topic, namespace)
    return message if topic == message.topic else attrs.evolve(message, topic=topic)
