"""Sends by operators: one message, many, one again, or as a measurement."""

from __future__ import annotations

import attrs

from rocketpy import aio
from rocketpy.client.messages import Message, ReceivedMessage
from rocketpy.client.options import ProducerOptions
from rocketpy.client.results import SendResult
from rocketpy.client.sending.send_loop import SendBudget, SendLoop
from rocketpy.client.sending.sender import Sender
from rocketpy.errors import RocketError
from rocketpy.message import properties as names
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import CLIENT_INNER_PRODUCER_GROUP

from .admin import Admin
from .java_text import send_result_text


def send_loop(admin: Admin) -> SendLoop:
    """A producer's send loop over the admin client's connections, without retries or heartbeats."""
    options = ProducerOptions(name_servers=admin.options.name_servers, retries=0, send_timeout=admin.timeout_s)
    sender = Sender(admin.instance, CLIENT_INNER_PRODUCER_GROUP, options, admin.opened.next_id)
    return SendLoop(sender, options, admin.instance.rng)


async def send(via: SendLoop, message: Message, queue: MessageQueue | None = None, *, attempts: int = 1) -> SendResult:
    """Send to `queue`, once, or to the next one. Raises as Producer.send does."""
    outgoing = via.sender.prepare(message)
    timeout_s = via.options.send_timeout
    if queue is not None:
        await via.publish_info(message.topic)
        return await via.sender.send_to(queue, outgoing, timeout_s)
    return await via.send(outgoing, SendBudget(timeout_s, attempts, aio.now_s()))


async def send_again(admin: Admin, message: ReceivedMessage) -> SendResult:
    """Send a stored message again."""
    return await send(send_loop(admin), copy_of(message, message.topic))


def copy_of(message: ReceivedMessage, topic: str) -> Message:
    """Return a copy to send, with the user's properties, and with the unique id: consumers can recognise it."""
    kept = {name: value for name, value in message.properties.items() if name not in names.SYSTEM_PROPERTIES}
    return Message(
        topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties=kept,
        flag=message.flag,
        msg_id=message.properties.get(names.UNIQ_KEY),
    )


@attrs.frozen
class Timed:
    """One measured send: milliseconds, the broker it went to, and its outcome."""

    rt_ms: float
    broker_name: str | None
    result: SendResult | None
    error: RocketError | None

    @property
    def outcome(self) -> str:
        return f"{type(self.error).__name__}: {self.error}" if self.result is None else send_result_text(self.result)


async def timed_send(via: SendLoop, message: Message) -> Timed:
    """Send and measure; a failure is an outcome."""
    begin_s = aio.now_s()
    try:
        result = await send(via, message)
    except RocketError as error:
        return Timed((aio.now_s() - begin_s) * 1000, None, None, error)
    return Timed((aio.now_s() - begin_s) * 1000, result.queue.broker_name, result, None)
