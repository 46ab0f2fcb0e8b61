"""Traffic of topics and groups, from the brokers' statistics of the last minute, hour and day; and numbers in the texts
of a broker's figures.

Source: RocketMQ 4.9 `StatsAllSubCommand`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.errors import BrokerError
from rocketpy.message.numbers import long_or
from rocketpy.remoting.bodies.broker import BrokerStatsData

from .admin import Admin

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS = "GROUP_GET_NUMS"
NO_CONSUMER = "NO_CONSUMER"
# Numbers of few digits: a broker may send anything. They are negative if its clock was set to before its start.
_UPTIME = re.compile(r"\[ (-?\d{1,9}) days, (-?\d{1,9}) hours, (-?\d{1,9}) minutes, (-?\d{1,9}) seconds \]")


@attrs.frozen
class Traffic:
    """Messages per second over the last minute, and messages in 24 hours."""

    tps: float = 0.0
    day: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.tps + other.tps, self.day + other.day)


@attrs.frozen
class TopicFigures:
    """A topic's traffic in, and out and backlog per group."""

    topic: str
    incoming: Traffic
    groups: tuple[tuple[str, Traffic, int], ...]

    def rows(self, *, active_only: bool) -> list[tuple[object, ...]]:
        """Rows of statsAll, one per group; a topic without groups has one that says so.

        Args:
            active_only: leave out a group whose topic had no message within the day and that consumed none.
        """
        tps, day = f"{self.incoming.tps:.2f}", self.incoming.day
        if not self.groups:
            return [] if active_only and not day else [(self.topic, "", 0, tps, "", day, NO_CONSUMER)]
        return [
            (self.topic, group, backlog, tps, f"{outgoing.tps:.2f}", day, outgoing.day)
            for group, outgoing, backlog in self.groups
            if day or outgoing.day or not active_only
        ]


async def topic_figures(admin: Admin, topic: str) -> TopicFigures:
    """Ask every broker of the topic. Raises RocketError when the topic has no route."""
    masters = list((await admin.masters_of_topic(topic)).values())
    incoming = await _traffic(admin, masters, TOPIC_PUT_NUMS, topic)
    groups = []
    for group in sorted(await admin.who_consumes(topic)):
        outgoing = await _traffic(admin, masters, GROUP_GET_NUMS, f"{topic}@{group}")
        groups.append((group, outgoing, await _backlog(admin, topic, group)))
    return TopicFigures(topic, incoming, tuple(groups))


async def _traffic(admin: Admin, addresses: list[str], name: str, key: str) -> Traffic:
    """The sum over brokers; one that has no such statistics has had no such traffic."""
    total = Traffic()
    for address in addresses:
        try:
            stats = await admin.broker_stats(address, name, key)
        except BrokerError:
            continue
        total += Traffic(stats.stats_minute.tps, day_sum(stats))
    return total


def day_sum(stats: BrokerStatsData) -> int:
    """Return the sum of 24 hours.

    A broker samples the day once an hour and the hour every ten minutes. A figure that is still 0 is taken from the
    next shorter window, as Java's commands do.
    """
    return stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum


def first_number(text: str | None) -> float:
    """The first of several averages separated by spaces; 0 when there is none."""
    words = (text or "").split()
    try:
        return float(words[0]) if words else 0.0
    except ValueError:
        return 0.0


def broker_clock_ms(figures: Mapping[str, str]) -> int | None:
    """Return a broker's time when it answered, less than a second too early; None: it does not tell.

    It tells when it has started, and for how many seconds it has run by the same clock.
    """
    uptime, boot_ms = _UPTIME.fullmatch(figures.get("runtime", "")), long_or(figures.get("bootTimestamp"), -1)
    if uptime is None or boot_ms < 0:
        return None
    days, hours, minutes, seconds = map(int, uptime.groups())
    return boot_ms + 1000 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds)


async def _backlog(admin: Admin, topic: str, group: str) -> int:
    """0 for a group without a retry topic, which has no offsets with brokers."""
    try:
        stats = await admin.consume_stats(group, topic)
    except BrokerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return 0
        raise
    return sum(offset.lag for queue, offset in stats.offset_table.items() if queue.topic == topic)
