"""What happens before and after each pull: flow control, the request's flags, what an answer means. Values only.

Source: RocketMQ 4.9 `DefaultMQPushConsumerImpl#pullMessage`, `PullAPIWrapper`, `RebalancePushImpl`.
"""

from __future__ import annotations

from enum import Enum

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.remoting.headers.pull import PullSysFlag

from .messages import ReceivedMessage
from .process_queue import ProcessQueue


class PullStatus(Enum):
    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


PULL_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


@attrs.frozen
class PullResult:
    """A broker's answer to a pull. `messages` is empty unless FOUND, and may be empty then, after the tag check."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[ReceivedMessage, ...] = ()
    suggest_which_broker_id: int = 0


@attrs.frozen
class FlowLimits:
    """What one queue may hold in memory before its pulls pause. All comparisons are strictly greater."""

    message_count: int
    size: int  # bytes
    span_max: int | None  # newest minus oldest offset; None for ordered consumption

    def blocks(self, queue: ProcessQueue) -> bool:
        if queue.cached_count > self.message_count:
            return True
        if queue.cached_bytes >> 20 > self.size >> 20:
            return True
        return self.span_max is not None and queue.max_span > self.span_max


def limits_for_queue(limits: FlowLimits, owned_queues: int, topic_count: int, topic_size: int) -> FlowLimits:
    """Limits per topic, where set, shared among the queues the consumer owns (of all its topics, as in Java)."""
    if owned_queues <= 0:
        return limits
    count = limits.message_count if topic_count == -1 else max(1, topic_count // owned_queues)
    size = limits.size if topic_size == -1 else max(1 << 20, topic_size // owned_queues)
    return attrs.evolve(limits, message_count=count, size=size)


def push_sys_flag(*, commits: bool, with_subscription: bool) -> PullSysFlag:
    flag = PullSysFlag.SUSPEND
    if commits:
        flag |= PullSysFlag.COMMIT_OFFSET
    if with_subscription:
        flag |= PullSysFlag.SUBSCRIPTION
    return flag
