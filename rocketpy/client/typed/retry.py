"""The policy for messages whose handler raises: how often they are tried, when, and where they end.

    RetryPolicy(attempts=4, delay_levels=(1, 3, 5))                    after 1 s, 10 s and a minute; then %DLQ%group
    RetryPolicy(attempts=4, dead_letter=DeadLetterTopic(producer, "OrdersFailed"))

The broker counts the attempts and keeps the message meanwhile, so they outlive the consumer: a policy is
`reconsume_times_max` and the delay level of each retry, as in the reference.
Source: RocketMQ 4.9 `setMaxReconsumeTimes`, `ConsumeConcurrentlyContext#setDelayLevelWhenNextConsume`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, cast

import attrs

from rocketpy import aio
from rocketpy.errors import RocketError
from rocketpy.message import properties as names

from ..consuming.handler import MessageHandler, is_async
from ..messages import Message, ReceivedMessage
from ..options import PushOptions, between
from ..producer import Producer
from ..results import CONSUMED, ConsumeResult

logger = logging.getLogger(__name__)

ORIGIN_TOPIC, ORIGIN_ID, REASON = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_REASON"
REASON_LENGTH_MAX = 1000
LEVEL_MAX = 18
DeadLetterHandler = Callable[[ReceivedMessage, Exception], Awaitable[Any] | Any]


class BodyUndecodable(RocketError):
    """A body that is not of the type that its topic has; `__cause__` is the error of the serializer."""


class Undecodable(Enum):
    """The way of a message whose body cannot be decoded."""

    DEAD_LETTER = "DEAD_LETTER"  # at once: no retry would decode it
    RETRY = "RETRY"  # as if the handler had failed, while consumers of a new version are rolled out
    SKIP = "SKIP"  # acknowledged; the log says so


def _are_levels(_: object, attribute: attrs.Attribute[Any], value: tuple[int, ...]) -> None:
    for level in value:
        if not 1 <= level <= LEVEL_MAX:
            raise ValueError(f"{attribute.name} has {level}, allowed are 1 to {LEVEL_MAX}: 1s 5s 10s 30s 1m ... 2h")


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """The number of tries of a message, the waits between them, and the topic of messages that were given up."""

    attempts: int = attrs.field(default=17, validator=between(1, 1 << 20))
    """Calls of the handler for one message, the first included (17, as the reference)."""
    delay_levels: tuple[int, ...] = attrs.field(default=(), converter=tuple, validator=_are_levels)
    """Level of each retry's delay, the last one for all further ones (10 s, 30 s, 1 min and longer)."""
    dead_letter: DeadLetterHandler | None = None
    """Gets the message and the error after the last attempt (the broker moves the message to `%DLQ%group`)."""
    undecodable: Undecodable = Undecodable.DEAD_LETTER
    """The way of a message whose body cannot be decoded (dead letter at once)."""

    def options(self, options: PushOptions) -> PushOptions:
        """Return the options of a consumer with this policy.

        Raises:
            ValueError: an ordered consumer waits in place: `delay_levels` would have no effect.
        """
        if options.ordered and self.delay_levels:
            raise ValueError(
                "delay_levels have no effect on an ordered consumer: set PushOptions.suspend_queue, seconds"
            )
        return attrs.evolve(options, reconsume_times_max=self.attempts - 1)

    def result(self, message: ReceivedMessage, error: Exception) -> ConsumeResult:
        """Return what becomes of a message whose handler raised `error`."""
        is_undecodable = isinstance(error, BodyUndecodable)
        if is_undecodable and self.undecodable is Undecodable.SKIP:
            return CONSUMED
        at_once = is_undecodable and self.undecodable is Undecodable.DEAD_LETTER
        if at_once or message.reconsume_times + 1 >= self.attempts:
            return ConsumeResult.dead_letter()
        if not self.delay_levels:
            return ConsumeResult.retry()
        return ConsumeResult.retry(self.delay_levels[min(message.reconsume_times, len(self.delay_levels) - 1)])


@attrs.frozen
class DeadLetterTopic:
    """Sends dead letters of an async handler to a topic of yours (`typed.sync` has the one of plain handlers).

    The copy has tags, keys and properties as they were, and DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID and DLQ_REASON.
    """

    producer: Producer
    topic: str

    async def __call__(self, message: ReceivedMessage, error: Exception) -> None:
        await self.producer.send(dead_letter(self.topic, message, error))


def dead_letter(topic: str, message: ReceivedMessage, error: Exception) -> Message:
    """Return the copy of a message that goes to a topic of dead letters."""
    kept = {name: text for name, text in message.properties.items() if name not in names.SYSTEM_PROPERTIES}
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:REASON_LENGTH_MAX]
    kept |= {ORIGIN_TOPIC: message.topic, ORIGIN_ID: message.msg_id, REASON: reason}
    return Message(topic, message.body, message.tags, message.keys, kept, message.flag)


def with_policy(function: MessageHandler, policy: RetryPolicy, *, in_loop: bool) -> MessageHandler:
    """Return a handler that follows the policy when `function` raises; its error does not reach the consumer.

    Args:
        in_loop: `function` is async, and so is the handler. A plain `dead_letter` then runs in a thread.
    Raises:
        TypeError: `function` is plain, which runs in a thread, and `dead_letter` is async.
    """
    bury: Any = policy.dead_letter
    if bury is not None and is_async(bury) and not in_loop:
        raise TypeError(
            "the handler is a plain function, so RetryPolicy.dead_letter has to be one: typed.sync has them"
        )

    async def decided(message: ReceivedMessage, error: Exception) -> ConsumeResult:
        if (result := _decide(policy, message, error)) is not None:
            return result
        try:
            await (bury(message, error) if is_async(bury) else aio.in_thread(bury, message, error))
        except Exception:
            return _not_buried(message)
        return CONSUMED

    async def awaited(awaitable: Awaitable[Any], message: ReceivedMessage) -> Any:
        try:
            return await awaitable
        except Exception as error:
            return await decided(message, error)

    async def consume_async(message: ReceivedMessage) -> Any:
        try:
            awaitable = cast(Awaitable[Any], function(message))
        except Exception as error:
            return await decided(message, error)
        return await awaited(awaitable, message)

    def consume(message: ReceivedMessage) -> Any:
        try:
            result = function(message)
        except Exception as error:
            if (result := _decide(policy, message, error)) is not None:
                return result
            try:
                bury(message, error)
            except Exception:
                return _not_buried(message)
            return CONSUMED
        return awaited(result, message) if inspect.isawaitable(result) else result

    return consume_async if in_loop else consume


def _decide(policy: RetryPolicy, message: ReceivedMessage, error: Exception) -> ConsumeResult | None:
    """Log the failure. None: the message is a dead letter for the policy's handler."""
    result = policy.result(message, error)
    is_undecodable = isinstance(error, BodyUndecodable)
    logger.warning(
        "the message handler failed on message %s, attempt %d of %d: %s",
        message.msg_id,
        message.reconsume_times + 1,
        policy.attempts,
        error if is_undecodable else repr(error),
        exc_info=None if is_undecodable else error,
    )
    return None if result.delay_level < 0 and policy.dead_letter is not None else result


def _not_buried(message: ReceivedMessage) -> ConsumeResult:
    logger.warning("the handler of dead letters failed on message %s", message.msg_id, exc_info=True)
    return ConsumeResult.dead_letter()
