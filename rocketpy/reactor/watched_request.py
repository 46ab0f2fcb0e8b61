"""A send or pull of the slow path whose answer has a line in the request log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import attrs

from rocketpy.logs import NO_VALUE
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import PullRequest, SendRequest
from rocketpy.remoting.request_log import ServedRequest

from .channel import Gateway, RingChannel
from .worker_messages import Origin

R = TypeVar("R", SendRequest, PullRequest)


@attrs.frozen(eq=False)
class WatchedChannel(RingChannel):
    """The channel of one request, of whose answer `on_answer` is told."""

    _opaque: int
    _on_answer: Callable[[RemotingCommand], None] = attrs.field(repr=False)

    def push(self, command: RemotingCommand) -> None:
        super().push(command)
        if command.is_response and command.opaque == self._opaque:
            self._on_answer(command)


def watched(request: R, origin: Origin, gateway: Gateway, now_ns: Callable[[], int] = time.monotonic_ns) -> R:
    """Return the request with a channel that logs its answer. One that is handed back to C has its line from there."""

    def log(answer: RemotingCommand) -> None:
        group, offset = _group_and_offset(request, answer)
        ServedRequest(
            connection=origin.connection,
            opaque=request.opaque,
            name=RemotingCommand(request.code).name,
            peer=origin.peer,
            topic=request.topic,
            group=group,
            queue=request.queue_id,
            offset=offset,
            answer=answer.code,
            duration_ms=(now_ns() - origin.received_ns) / 1e6,
        ).log()

    channel = WatchedChannel(origin.connection, origin.peer, origin.listener != 0, gateway, request.opaque, log)
    return attrs.evolve(request, channel=channel)


def _group_and_offset(request: SendRequest | PullRequest, answer: RemotingCommand) -> tuple[str, int | str]:
    """Return its group, and where a pull begins or the offset that the answer gives to the message of a send."""
    if isinstance(request, PullRequest):
        return request.consumer_group, request.queue_offset
    stored_at = (answer.ext_fields or {}).get("queueOffset")
    return request.producer_group, NO_VALUE if stored_at is None else int(stored_at)
