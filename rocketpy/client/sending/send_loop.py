"""The send loop: choose a queue, send, and retry at another broker within the time budget.

One time budget covers all attempts of a send. After a broker that hangs there is no time for another; only fast
failures are retried. The rules are values and functions without clocks or sockets.
Source: RocketMQ 4.9 `DefaultMQProducerImpl#sendDefaultImpl`, `MQFaultStrategy`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Collection

import attrs

from rocketpy import aio
from rocketpy.errors import BrokerError, RequestTimeout, RocketError, TransportError
from rocketpy.message.message_queue import MessageQueue

from ..cluster.route import PublishInfo
from ..cluster.route_renewal import tells_of_change
from ..options import ProducerOptions
from ..results import SendResult, SendStatus
from .latency_fault import LatencyFaults
from .queue_selection import RoundRobin
from .sender import OutgoingMessage, Sender

logger = logging.getLogger(__name__)


def is_worth_another_attempt(error: RocketError, retry_codes: Collection[int]) -> bool:
    """Transport failures and our own (unknown broker) always; a broker's refusal when its code is in the set."""
    if isinstance(error, BrokerError):
        return error.code in retry_codes
    return True


def is_worth_another_async_attempt(error: RocketError) -> bool:
    """`send_soon` repeats what never reached a broker's answer; an answer is final."""
    return isinstance(error, TransportError)


@attrs.define
class SendBudget:
    """Counts attempts and time. `begin_attempt` is asked before each one."""

    timeout_s: float
    attempts_max: int
    started_s: float
    attempts: int = 0
    last_broker: str | None = None

    def begin_attempt(self, now_s: float) -> float | None:
        """Seconds this attempt may take; None when attempts or time are used up."""
        remaining_s = self.started_s + self.timeout_s - now_s
        if self.attempts >= self.attempts_max or remaining_s <= 0:
            return None
        self.attempts += 1
        return remaining_s

    def remaining_s(self, now_s: float) -> float:
        return self.started_s + self.timeout_s - now_s

    @property
    def is_exhausted_by_time(self) -> bool:
        return self.attempts < self.attempts_max


@attrs.define(eq=False)
class SendLoop:
    """Sends prepared messages of a producer, and messages that a consumer sends back."""

    sender: Sender
    options: ProducerOptions
    rng: random.Random
    faults: LatencyFaults = attrs.field(factory=LatencyFaults)
    _turns: dict[str, RoundRobin] = attrs.field(factory=dict)

    async def publish_info(self, topic: str) -> PublishInfo:
        return await self.sender.instance.publish_info(
            topic, self.options.create_topic_key, self.options.default_topic_queue_nums
        )

    def choose(self, info: PublishInfo, last_broker: str | None) -> MessageQueue:
        """The next queue; after a failure one on another broker; with latency faults on, on an available broker."""
        turn = self._turns.get(info.topic)
        if turn is None:
            turn = self._turns[info.topic] = RoundRobin.start_anywhere(self.rng)
        if self.options.latency_fault_enable:
            return self.faults.select(info.queues, info.write_queue_nums, turn, aio.now_s() * 1000)
        return turn.next_queue(info.queues, last_broker)

    async def send(
        self,
        message: OutgoingMessage,
        budget: SendBudget,
        *,
        queue: MessageQueue | None = None,
        is_async: bool = False,
    ) -> SendResult:
        """Attempts until one succeeds, is not worth repeating, or the budget is used up.

        Args:
            queue: send to this one only; a failed attempt is repeated there if the master seems to have changed.

        Raises:
            RequestTimeout: the time is used up. Otherwise the error of the last attempt.
        """
        clock = self.sender.instance.clock
        result: SendResult | None = None
        failure: RocketError | None = None
        try:
            while (remaining_s := budget.begin_attempt(clock())) is not None:
                try:
                    target = queue
                    if target is None:
                        info = self.sender.instance.known_publish_info(message.topic)
                        if info is None:
                            info = await self._find_route(message.topic, remaining_s)
                            remaining_s = budget.remaining_s(clock())
                        target = self.choose(info, budget.last_broker)
                except RocketError as error:
                    if result is not None:
                        return result
                    if failure is None:
                        raise
                    raise failure from error
                budget.last_broker = target.broker_name
                try:
                    attempt = self._observed_attempt if self.options.latency_fault_enable else self.sender.send_to
                    result = await attempt(target, message, max(remaining_s, 0.001))
                except RocketError as error:
                    failure = error
                    logger.warning("cannot send message %s to queue %s: %s", message.name, target, error)
                    if not (tells_of_change(error) if queue is not None else self._is_worth_another(error, is_async)):
                        break
                    continue
                if result.status is SendStatus.SEND_OK or not self.options.retry_another_broker_when_not_stored_ok:
                    return result
            if result is not None:
                return result
            if failure is not None and (isinstance(failure, BrokerError) or not budget.is_exhausted_by_time):
                raise failure
            timeout = f"its timeout of {budget.timeout_s:.3f} s ended after {budget.attempts} attempts"
            raise RequestTimeout(f"message {message.name}: {timeout}") from failure
        finally:
            del failure  # an error among the locals of its own traceback would be a cycle, which only gc ends

    def _is_worth_another(self, error: RocketError, is_async: bool) -> bool:
        if is_async:
            return is_worth_another_async_attempt(error)
        return is_worth_another_attempt(error, self.options.retry_codes)

    async def _find_route(self, topic: str, within_s: float) -> PublishInfo:
        with aio.move_on_after(within_s):
            return await self.publish_info(topic)
        raise RequestTimeout(f"no route of topic {topic} was found within {within_s:.3f} s")

    async def _observed_attempt(self, queue: MessageQueue, message: OutgoingMessage, timeout_s: float) -> SendResult:
        begin_s = aio.now_s()
        failed = True
        try:
            result = await self.sender.send_to(queue, message, timeout_s)
            failed = False
            return result
        finally:
            now_ms = aio.now_s() * 1000
            self.faults.report(queue.broker_name, now_ms - begin_s * 1000, now_ms, isolate=failed)
