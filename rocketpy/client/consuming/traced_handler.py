"""A handler whose calls are traced: a record for each message before the call, and one after it.

Source: RocketMQ 4.9 `ConsumeMessageTraceHookImpl`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from rocketpy.message import properties as names
from rocketpy.message.trace import ContextCode, SubAfter, SubBefore

from ..messages import ReceivedMessage
from ..results import acknowledged_count
from ..tracing import TraceWriter
from .handler import Handled, Handler

DEFAULT_REGION = "DefaultRegion"


@attrs.frozen
class TracedHandler:
    """Takes the place of `handler`. `next_id` makes the ids that the two records of a call have in common."""

    group: str
    handler: Handler
    traces: TraceWriter
    next_id: Callable[[], str]
    now_ms: Callable[[], int]

    async def handle(self, messages: Sequence[ReceivedMessage]) -> Handled:
        request_id = self.next_id()
        self.traces.write(self._before(message, request_id) for message in messages if is_traced(message))
        handled = await self.handler.handle(messages)
        done = acknowledged_count(handled.result, len(messages))
        self.traces.write(
            self._after(message, request_id, handled, len(messages), is_success=index < done)
            for index, message in enumerate(messages)
            if is_traced(message)
        )
        return handled

    def _before(self, message: ReceivedMessage, request_id: str) -> SubBefore:
        return SubBefore(
            timestamp_ms=self.now_ms(),
            region_id=message.properties.get(names.MSG_REGION, DEFAULT_REGION),
            group=self.group,
            request_id=request_id,
            msg_id=message.msg_id,
            retry_times=message.reconsume_times,
            keys=names.KEY_SEPARATOR.join(message.keys),
        )

    def _after(
        self, message: ReceivedMessage, request_id: str, handled: Handled, count: int, *, is_success: bool
    ) -> SubAfter:
        failed = ContextCode.EXCEPTION if handled.error is not None else ContextCode.FAILED
        return SubAfter(
            request_id=request_id,
            msg_id=message.msg_id,
            cost_ms=round(handled.spent_s * 1000 / count),
            is_success=is_success,
            keys=names.KEY_SEPARATOR.join(message.keys),
            context_code=ContextCode.SUCCESS if is_success else failed,
            timestamp_ms=self.now_ms(),
            group=self.group,
        )


def is_traced(message: ReceivedMessage) -> bool:
    """A broker with traceOn=false marks what is pulled from it."""
    return message.properties.get(names.TRACE_ON) != "false"
