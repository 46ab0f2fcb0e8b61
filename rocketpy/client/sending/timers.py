"""Cancels and moves timers that were sent before: messages to the broker that has them (docs/adr/0110)."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError
from rocketpy.message import properties as names

from ..messages import Message
from ..results import SendResult
from .sender import Sender


def cancellation(sent: SendResult) -> Mapping[str, str]:
    """The properties that cancel the timer."""
    return {names.TIMER_CANCEL: sent.msg_id}


def move(sent: SendResult, deliver_at_ms: int) -> Mapping[str, str]:
    """The properties that move the timer to another time, ms since 1970."""
    return {names.TIMER_MOVE: sent.msg_id, names.TIMER_DELIVER_MS: str(deliver_at_ms)}


async def change_timer(sender: Sender, sent: SendResult, change: Mapping[str, str], timeout_s: float) -> bool:
    """One attempt. False: the timer is not pending. Raises: as Sender.send_to."""
    outgoing = sender.prepare_unchecked(Message(sent.queue.topic, b""), change)
    try:
        await sender.send_to(sent.queue, outgoing, timeout_s)
    except BrokerError as refusal:
        if refusal.response_code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return False
    return True
