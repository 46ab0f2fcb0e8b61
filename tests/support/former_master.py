"""A client's scenes in which broker-a gets another master: how messages are sent, and how the former one behaves."""

from __future__ import annotations

from typing import Any

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from tests.support.cluster import FakeBroker, FakeCluster, no

SEND = RequestCode.SEND_MESSAGE_V2
QUEUE = MessageQueue("T", "broker-a", 1)
HOW: dict[str, dict[str, Any]] = {"plain": {}, "keyed": {"key": "order-1"}, "queue": {"queue": QUEUE}}
"""The arguments of a send, by kind."""


def gone(request: RemotingCommand, channel: Channel) -> None:
    channel.close()


def fail_over(cluster: FakeCluster, old: FakeBroker, why: str) -> FakeBroker:
    """Make another address the master of broker-a. Returns: the new one, which is in no route yet."""
    if why == "answers 14":
        old.answers[SEND] = lambda request, channel: no(ResponseCode.SERVICE_NOT_AVAILABLE)
    else:
        old.answers |= {SEND: gone, RequestCode.PULL_MESSAGE: gone}
        old.unreachable = True
    new = FakeBroker("10.0.0.9:10911", name="broker-a", now_ms=old.now_ms)
    new.topics |= old.topics
    return new
