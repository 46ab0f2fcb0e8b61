"""Rules of retries: when a failed send is repeated, and for how long. Values and functions without clocks or sockets.

One time budget covers all attempts of a send. After a broker that hangs there is no time for another; only fast
failures are retried.
Source: RocketMQ 4.9 `DefaultMQProducerImpl#sendDefaultImpl`.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from rocketpy.errors import BrokerError, RocketError, TransportError


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
        remaining_s = self.remaining_s(now_s)
        if self.attempts >= self.attempts_max or remaining_s <= 0:
            return None
        self.attempts += 1
        return remaining_s

    def remaining_s(self, now_s: float) -> float:
        return self.started_s + self.timeout_s - now_s

    @property
    def is_exhausted_by_time(self) -> bool:
        return self.attempts < self.attempts_max
