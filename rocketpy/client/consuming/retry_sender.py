"""Sends failed messages back to the broker, and if it refuses, to the group's retry topic.

Source: RocketMQ 4.9 `DefaultMQPushConsumerImpl#sendMessageBack`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs

from rocketpy.errors import RocketError
from rocketpy.message import properties
from rocketpy.message.names import retry_topic

from ..messages import Message, ReceivedMessage
from ..results import SendResult

logger = logging.getLogger(__name__)

RETRY_TIMES_MAX = 16  # default of concurrent consumption
FIRST_RETRY_DELAY_LEVEL = 3


class SendBackRequest(Protocol):
    """CONSUMER_SEND_MSG_BACK (`Brokers` serves it)."""

    async def send_message_back(
        self, group: str, message: ReceivedMessage, delay_level: int, reconsume_times_max: int
    ) -> None: ...


@attrs.frozen
class RetrySender:
    """Sends back for one group; `send` is the inner producer."""

    group: str
    requests: SendBackRequest
    send: Callable[[Message], Awaitable[SendResult]]  # the inner producer
    reconsume_times_max: int = -1

    @property
    def _times_max(self) -> int:
        return RETRY_TIMES_MAX if self.reconsume_times_max == -1 else self.reconsume_times_max

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        try:
            await self.requests.send_message_back(self.group, message, delay_level, self._times_max)
        except RocketError as error:
            logger.warning(
                "group %s: cannot send message %s back: %s; sending it to the retry topic",
                self.group,
                message.msg_id,
                error,
            )
            await self.send_to_retry_topic(message, self._times_max)

    async def send_to_retry_topic(self, message: ReceivedMessage, reconsume_times_max: int) -> None:
        await self.send(retry_message(self.group, message, reconsume_times_max))


def retry_message(group: str, message: ReceivedMessage, reconsume_times_max: int) -> Message:
    """The copy that goes to `%RETRY%group`: it keeps the id of the first delivery and the topic it came from.

    Unlike Java 4.9, ORIGIN_MESSAGE_ID survives, because it is set on the copy's own properties.
    """
    copied, attempts = dict(message.properties), max(0, message.reconsume_times)  # its sender chose the count
    copied.pop(properties.TRAN_MSG, None)
    copied.setdefault(properties.RETRY_TOPIC, message.topic)
    copied.setdefault(properties.ORIGIN_MESSAGE_ID, message.offset_msg_id)
    copied[properties.RECONSUME_TIME] = str(attempts + 1)
    copied[properties.MAX_RECONSUME_TIMES] = str(reconsume_times_max)
    copied[properties.DELAY] = str(FIRST_RETRY_DELAY_LEVEL + attempts)
    return Message(topic=retry_topic(group), body=message.body, properties=copied, flag=message.flag)
