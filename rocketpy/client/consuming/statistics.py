"""Statistics of a consumer, in the format that brokers request: rates over a minute, failures over an hour.

Samples are taken every 10 s. A minute of them is kept for the rates; of the hour before only the failures are, which
mostly are none: an hour of samples would take 60 KB per topic.
Source: RocketMQ 4.9 `ConsumerStatsManager`.
"""

from __future__ import annotations

import copy

import attrs

SAMPLE_INTERVAL_S = 10.0
SAMPLES_PER_MINUTE = 7
HOUR_S = 3600.0


@attrs.frozen
class ConsumeStatus:
    pull_rt: float = 0.0  # ms
    pull_tps: float = 0.0
    consume_rt: float = 0.0  # ms
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0  # in the last hour


@attrs.define
class Totals:
    """Plain counters since start."""

    pulls: int = attrs.field(init=False, default=0)
    pull_ms: float = attrs.field(init=False, default=0.0)
    pulled: int = attrs.field(init=False, default=0)
    consumes: int = attrs.field(init=False, default=0)
    consume_ms: float = attrs.field(init=False, default=0.0)
    ok: int = attrs.field(init=False, default=0)
    failed: int = attrs.field(init=False, default=0)


@attrs.define
class TopicCounters:
    """Counts of one topic, the samples taken of them, and failures by the time of the sample that found them."""

    totals: Totals = attrs.field(factory=Totals)
    samples: list[tuple[float, Totals]] = attrs.field(factory=list)
    failures: list[tuple[float, int]] = attrs.field(factory=list)

    def sample(self, now_s: float) -> None:
        last = self.samples[-1][1] if self.samples else self.totals
        if failed := self.totals.failed - last.failed:
            self.failures.append((now_s, failed))
        if self.failures and self.failures[0][0] <= now_s - HOUR_S:
            self.failures = [(when_s, count) for when_s, count in self.failures if when_s > now_s - HOUR_S]
        now = last if last == self.totals and self.samples else copy.copy(self.totals)
        self.samples = [*self.samples[1 - SAMPLES_PER_MINUTE :], (now_s, now)]

    def status(self) -> ConsumeStatus:
        """Rates between the newest sample and the one a minute before it."""
        if len(self.samples) < 2:
            return ConsumeStatus(consume_failed_msgs=self.totals.failed)
        end_s, end = self.samples[-1]
        begin_s, begin = self.samples[0]
        seconds = max(end_s - begin_s, 0.001)
        return ConsumeStatus(
            pull_rt=(end.pull_ms - begin.pull_ms) / max(end.pulls - begin.pulls, 1),
            pull_tps=(end.pulled - begin.pulled) / seconds,
            consume_rt=(end.consume_ms - begin.consume_ms) / max(end.consumes - begin.consumes, 1),
            consume_ok_tps=(end.ok - begin.ok) / seconds,
            consume_failed_tps=(end.failed - begin.failed) / seconds,
            consume_failed_msgs=sum(count for _, count in self.failures),
        )


@attrs.define
class ConsumerStatistics:
    """All topics of one consumer."""

    topics: dict[str, TopicCounters] = attrs.field(factory=dict)
    _sampled_s: float | None = None

    def _of(self, topic: str) -> TopicCounters:
        """The topic's counters; of a new topic all were zero when the others were last sampled."""
        counters = self.topics.get(topic)
        if counters is None:
            counters = self.topics[topic] = TopicCounters()
            if self._sampled_s is not None:
                counters.sample(self._sampled_s)
        return counters

    def pulled(self, topic: str, count: int, spent_s: float) -> None:
        totals = self._of(topic).totals
        totals.pulls += 1
        totals.pull_ms += spent_s * 1000
        totals.pulled += count

    def consumed(self, topic: str, ok: int, failed: int, spent_s: float) -> None:
        totals = self._of(topic).totals
        totals.consumes += 1
        totals.consume_ms += spent_s * 1000
        totals.ok += ok
        totals.failed += failed

    def sample(self, now_s: float) -> None:
        """Take a sample of all counters; called every 10 s."""
        self._sampled_s = now_s
        for counters in self.topics.values():
            counters.sample(now_s)

    def status(self, topic: str) -> ConsumeStatus:
        return self.topics[topic].status() if topic in self.topics else ConsumeStatus()
