"""Hook: one layer around sends and deliveries; HookChain: the hooks of a client in their order.

The first hook is next to the program, the last one next to the broker, on both ways: a message to send passes them from
the first to the last, a received one from the last to the first. So with `(tracing, encryption)` the spans are of plain
bodies, and what one hook adds last at a producer the same one removes first at a consumer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import attrs

from rocketpy.errors import ClientError

from ..messages import Message, ReceivedMessage
from ..results import CONSUMED, ConsumeResult, SendResult

SendNext = Callable[[Sequence[Message]], Awaitable[SendResult | None]]
ConsumeNext = Callable[[Sequence[ReceivedMessage]], Awaitable[ConsumeResult]]


@attrs.frozen
class Sending:
    """A send under way: one message, or the members of a batch. Each has its id, `msg_id`.

    It covers all attempts, and is checked and compressed only after the last hook.
    """

    messages: tuple[Message, ...]
    group: str  # of the producer
    client_id: str


@attrs.frozen
class Delivery:
    """Messages on their way to the program: to a handler, or as the result of a call.

    `is_polled`: by `poll`, `pull`, as a reply or as a transaction to check; the program works on them after the hooks.
    """

    messages: tuple[ReceivedMessage, ...]
    group: str
    client_id: str
    is_polled: bool = False


class Hook:
    """A layer around sends and deliveries; override one method or both. One hook may serve any number of clients.

    `call_next` goes on with the messages that it gets: the same, or others (`attrs.evolve`). A hook sees the result or
    the exception, and may call it again, or not at all. An exception that a hook raises is the exception of the send or
    poll; with a handler, the messages are retried. A poll that raised returns the same messages next time.
    """

    async def send(self, sending: Sending, call_next: SendNext) -> SendResult | None:
        """Pass a send on. Returns its result; None of `send_oneway`, which has none."""
        return await call_next(sending.messages)

    async def consume(self, delivery: Delivery, call_next: ConsumeNext) -> ConsumeResult:
        """Pass messages on to the handler. Returns its result, SUCCESS if it returned None.

        The result counts for the messages of the delivery: return one without `call_next` to skip the handler.
        """
        return await call_next(delivery.messages)


@attrs.frozen
class HookChain:
    """The hooks of one client."""

    hooks: tuple[Hook, ...]
    group: str
    client_id: str

    @classmethod
    def of(cls, hooks: Sequence[Hook], group: str, client_id: str) -> HookChain | None:
        """The chain; None without hooks, so that they cost nothing then."""
        return cls(tuple(hooks), group, client_id) if hooks else None

    async def send(self, messages: Sequence[Message], send: SendNext) -> SendResult | None:
        """Send messages through the hooks. Raises: errors of `send` and of hooks."""
        for hook in reversed(self.hooks):
            send = partial(self._send_by, hook, send)
        return await send(messages)

    async def _send_by(self, hook: Hook, call_next: SendNext, messages: Sequence[Message]) -> SendResult | None:
        return await hook.send(Sending(tuple(messages), self.group, self.client_id), call_next)

    async def consume(
        self, messages: Sequence[ReceivedMessage], handle: ConsumeNext, *, is_polled: bool = False
    ) -> ConsumeResult:
        """Give messages to a handler through the hooks. Raises: errors of `handle` and of hooks."""
        for hook in self.hooks:
            handle = partial(self._consume_by, hook, handle, is_polled)
        return await handle(messages)

    async def _consume_by(
        self, hook: Hook, call_next: ConsumeNext, is_polled: bool, messages: Sequence[ReceivedMessage]
    ) -> ConsumeResult:
        return await hook.consume(Delivery(tuple(messages), self.group, self.client_id, is_polled), call_next)

    async def received(self, messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Pass messages that a call returns through the hooks. Returns: the messages that all hooks passed on."""
        passed: list[ReceivedMessage] = []

        async def take(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
            passed.extend(messages)
            return CONSUMED

        await self.consume(messages, take, is_polled=True)
        return passed

    async def received_one(self, message: ReceivedMessage) -> ReceivedMessage:
        """As `received`, for a call that needs its message. Raises: ClientError: a hook kept it back."""
        passed = await self.received([message])
        if len(passed) != 1:
            raise ClientError(f"the hooks passed {len(passed)} messages on for message {message.msg_id}")
        return passed[0]
