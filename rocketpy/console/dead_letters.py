"""Dead letters: sent again to the retry topic of their group, so that no other group gets them a second time.

Short: pages show dead letters as other messages; here is what they alone can.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy import aio
from rocketpy.admin.core import NotFound
from rocketpy.admin.sending import copy_of, send_loop
from rocketpy.client.messages import Message, ReceivedMessage
from rocketpy.client.results import SendResult
from rocketpy.client.sending.send_loop import SendBudget
from rocketpy.message import properties as names
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import DLQ_PREFIX, dlq_topic, retry_topic

from .message_search import at_place
from .questions import ASK_S, Answer, Questions


def origin_of(properties: Mapping[str, str]) -> str:
    """Return the topic that a dead letter was first sent to; empty: it is not told."""
    return properties.get(names.RETRY_TOPIC) or properties.get(names.REAL_TOPIC) or ""


def copy_for_retry(group: str, message: ReceivedMessage) -> tuple[Message, Mapping[str, str]]:
    """Return the message that the members of the group get as if it had never failed, and its reserved properties.

    It keeps its id, and the id of its first copy: handlers that remember ids recognise it.

    Raises:
        NotFound: its topic is not known.
    """
    topic = origin_of(message.properties)
    if not topic or topic.startswith(DLQ_PREFIX):
        raise NotFound("the message does not tell its topic (RETRY_TOPIC); send it again with mqadmin sendMessage")
    first_id = message.properties.get(names.ORIGIN_MESSAGE_ID) or message.offset_msg_id
    return copy_of(message, retry_topic(group)), {names.RETRY_TOPIC: topic, names.ORIGIN_MESSAGE_ID: first_id}


async def send_again(questions: Questions, group: str, broker: str, queue_id: int, offset: int) -> Answer[SendResult]:
    """Read a dead letter of a group at its place, and send a copy to the group's retry topic, once."""

    async def ask() -> SendResult:
        message = await at_place(questions, MessageQueue(dlq_topic(group), broker, queue_id), offset)
        loop = send_loop(questions.admin)
        outgoing = loop.sender.prepare(*copy_for_retry(group, message))
        return await loop.send(outgoing, SendBudget(questions.admin.timeout_s, 1, aio.now_s()))

    return await questions.one(ask, 2 * ASK_S)
