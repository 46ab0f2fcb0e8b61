"""Conditions of a broker that answers: its figures that are beyond their limits now.

alarms.py has those of groups, disks and brokers that do not answer, and says when each is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import attrs

from .alarm_file import BrokerLimits
from .cluster import BrokerState
from .health import BrokerHealth

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


@attrs.frozen
class Condition:
    """Something beyond its limit: now, by these numbers."""

    kind: str  # backlog, age, disk, no_master, no_answer, or one of OF_HEALTH
    subject: str  # the group or broker
    text: str
    value: float
    limit: float
    page: str  # path of the console

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.subject


def broker_page(name: str) -> str:
    return f"/broker?name={quote(name, safe='')}"


OF_GROUPS = frozenset({"backlog", "age"})
OF_HEALTH = frozenset({"worker", "failed_sends", "refused_connections", "unread_connections", "certificate", "clock"})


def conditions_of_health(broker: BrokerState, limits: BrokerLimits, now_ms: float) -> Iterator[Condition]:
    """Yield what is wrong with a broker that answers."""
    health = broker.health
    for kind, text, value, limit in (
        *_workers(health, limits, now_ms),
        *_counts(health, limits, now_ms),
        *_certificate(health, limits, now_ms),
        *_clock(health, limits),
    ):
        subject = broker.label
        yield Condition(kind, subject, f"broker {subject}: {text}", value, limit, broker_page(broker.name))


Found = tuple[str, str, float, float]  # kind, text, value, limit


def _workers(health: BrokerHealth, limits: BrokerLimits, now_ms: float) -> Iterator[Found]:
    faults = []
    for worker in health.workers.values():
        if worker.silent_ms > limits.worker_silent_seconds * 1000:
            faults.append(f"worker {worker.name} has not moved for {worker.silent_ms / 1000:.0f} s")
        times = worker.restarts.within(now_ms, limits.window_minutes * MINUTE_MS)
        if times > limits.worker_restarts:
            often = "once" if times == 1 else f"{times} times"
            faults.append(f"worker {worker.name} was replaced {often} within {limits.window_minutes:g} min")
    if faults:
        yield "worker", "; ".join(faults), len(faults), 0


def _counts(health: BrokerHealth, limits: BrokerLimits, now_ms: float) -> Iterator[Found]:
    unread = "connections closed whose clients left answers unread"
    for kind, counter, limit, events in (
        ("failed_sends", health.failed_sends, limits.failed_sends, "sends answered with an error"),
        ("refused_connections", health.refused_connections, limits.refused_connections, "connections refused"),
        ("unread_connections", health.unread_connections, limits.unread_connections, unread),
    ):
        count = counter.within(now_ms, limits.window_minutes * MINUTE_MS)
        if count > limit:
            yield kind, f"{count} {events} within {limits.window_minutes:g} min, limit {limit}", count, limit


def _certificate(health: BrokerHealth, limits: BrokerLimits, now_ms: float) -> Iterator[Found]:
    if health.certificate_ends_ms is None:
        return
    days, limit = (health.certificate_ends_ms - now_ms) / DAY_MS, limits.certificate_days
    if days < limit:
        when = f"expires in {days:.1f} days" if days > 0 else f"expired {-days:.1f} days ago"
        yield "certificate", f"its certificate {when}, limit {limit:g} days", round(days, 1), limit


def _clock(health: BrokerHealth, limits: BrokerLimits) -> Iterator[Found]:
    seconds, limit = health.clock_ahead_ms / 1000, limits.clock_seconds
    if abs(seconds) > limit:
        way = "ahead of" if seconds > 0 else "behind"
        yield "clock", f"its clock is {abs(seconds):.0f} s {way} that of the console, limit {limit:g} s", seconds, limit
