"""ClusterState: brokers, topics and groups as the poller, which writes it, saw them last. Pages and alarms read it.

A broker that is gone from the name servers stays for GONE_MS, so that its end is visible. Numbers of brokers, topics,
groups and histories are bounded; names beyond a bound are counted and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from rocketpy.admin.statistics import first_number
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import DLQ_PREFIX, RETRY_PREFIX
from rocketpy.message.numbers import long_or
from rocketpy.remoting.bodies.broker import HaStatus
from rocketpy.remoting.bodies.offset import OffsetWrapper
from rocketpy.remoting.bodies.route import MASTER_ID, ClusterInfo

from .health import BrokerHealth
from .history import History

BROKERS_MAX = 256
TOPICS_MAX = 200_000
GROUPS_MAX = 20_000
WATCHED_MAX = 50  # groups that are sampled often, with a history for each queue
WATCH_MS = 15 * 60_000  # after the last look at the page of the group
QUEUES_MAX = 500  # of one watched group, whose offsets are kept
QUEUE_HISTORIES_MAX = 64  # of one watched group
GONE_MS = 24 * 3_600_000


@attrs.define(eq=False)
class BrokerState:
    """One broker process: its address, and its last answers.

    `error` is empty while it answers; `answered_ms` 0: it never did. `is_listed`: the name servers know it.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    seen_ms: float = attrs.field(init=False, default=0)
    is_listed: bool = attrs.field(init=False, default=True)
    figures: Mapping[str, str] = attrs.field(init=False, factory=dict)
    ha: HaStatus | None = attrs.field(init=False, default=None)
    answered_ms: float = attrs.field(init=False, default=0)
    error: str = attrs.field(init=False, default="")
    refuses: bool = attrs.field(init=False, default=False)  # it answers, but not to the account of the console
    answer_ms: float = attrs.field(init=False, default=0)  # the time that the last answer took
    rates_in: History = attrs.field(init=False, factory=History)
    rates_out: History = attrs.field(init=False, factory=History)
    latencies: History = attrs.field(init=False, factory=History)  # ms, 99 % of puts; of brokers that tell it
    health: BrokerHealth = attrs.field(init=False, factory=BrokerHealth)
    _totals: tuple[float, int, int] | None = attrs.field(init=False, default=None)

    @property
    def label(self) -> str:
        """Return name and address: masters and slaves share the name."""
        return f"{self.name} {self.address}"

    @property
    def is_master(self) -> bool:
        """Return True if it takes messages: by its own word, or else by its id."""
        return self.ha.master if self.ha is not None and self.ha.role else self.broker_id == MASTER_ID

    @property
    def is_up(self) -> bool:
        return self.is_listed and self.answered_ms > 0 and (self.refuses or not self.error)

    def answered(self, now_ms: float, took_ms: float, figures: Mapping[str, str], ha: HaStatus | None) -> None:
        """Take an answer. Rates are messages per second between this answer and the one before."""
        totals = (
            now_ms,
            long_or(figures.get("msgPutTotalTodayNow"), 0),
            long_or(figures.get("msgGetTotalTodayNow"), 0),
        )
        before, self._totals = self._totals, totals
        rates = first_number(figures.get("putTps")), first_number(figures.get("getTransferedTps"))
        if before is not None and now_ms > before[0] and totals[1] >= before[1] and totals[2] >= before[2]:
            seconds = (now_ms - before[0]) / 1000
            rates = (totals[1] - before[1]) / seconds, (totals[2] - before[2]) / seconds
        self.rates_in.add(now_ms, rates[0])
        self.rates_out.add(now_ms, rates[1])
        if "putLatency99" in figures:
            self.latencies.add(now_ms, first_number(figures["putLatency99"]))
        self.health.take(now_ms, took_ms, figures)
        self.figures, self.ha, self.answered_ms, self.answer_ms, self.error = figures, ha, now_ms, took_ms, ""
        self.refuses = False

    def failed(self, error: str, refused_ms: float | None = None) -> None:
        """Take a failure. `refused_ms`: the time of an answer that refuses the request: the broker lives."""
        self.error, self._totals, self.refuses = error, None, refused_ms is not None
        self.answered_ms = refused_ms or self.answered_ms

    @property
    def disk_percent(self) -> float | None:
        """Return the share of the disk of the CommitLog that is in use; None: not told."""
        ratio = self.figures.get("commitLogDiskRatio")
        return None if ratio is None else 100 * first_number(ratio)


@attrs.define(eq=False)
class GroupState:
    """A group's backlog at its last sample. `sampled_ms` 0: not sampled yet. `asked_ms`: the last try.

    `age_ms` is the time for which the oldest message has waited that is not consumed; None: not asked for. `offsets`
    are kept of watched groups alone, at most QUEUES_MAX of `queue_count`.
    """

    name: str
    sampled_ms: float = attrs.field(init=False, default=0)
    asked_ms: float = attrs.field(init=False, default=0)
    error: str = attrs.field(init=False, default="")
    lag: int = attrs.field(init=False, default=0)
    queue_count: int = attrs.field(init=False, default=0)
    offsets: Mapping[MessageQueue, OffsetWrapper] = attrs.field(init=False, factory=dict)
    has_queues: Mapping[str, bool] = attrs.field(init=False, factory=dict)  # by broker name, at its last answer
    consume_tps: float = attrs.field(init=False, default=0)
    age_ms: float | None = attrs.field(init=False, default=None)
    lags: History = attrs.field(init=False, factory=History)
    ages: History = attrs.field(init=False, factory=History)
    queue_lags: dict[MessageQueue, History] = attrs.field(init=False, factory=dict)

    def sampled(
        self,
        now_ms: float,
        offsets: Mapping[MessageQueue, OffsetWrapper],
        consume_tps: float,
        age_ms: float | None,
        *,
        with_queues: bool,
    ) -> None:
        """Take a sample. `with_queues`: the group is watched."""
        self.sampled_ms, self.error = now_ms, ""
        self.consume_tps, self.age_ms = consume_tps, age_ms
        self.lag, self.queue_count = sum(offset.lag for offset in offsets.values()), len(offsets)
        self.lags.add(now_ms, self.lag)
        if age_ms is not None:
            self.ages.add(now_ms, age_ms)
        kept = sorted(offsets)[:QUEUES_MAX] if with_queues else []
        self.offsets = {queue: offsets[queue] for queue in kept}
        self.queue_lags = {queue: self.queue_lags.get(queue) or History() for queue in kept[:QUEUE_HISTORIES_MAX]}
        for queue, history in self.queue_lags.items():
            history.add(now_ms, offsets[queue].lag)


@attrs.define(eq=False)
class ClusterState:
    """All that is known. `error` says why the name servers did not answer last; `listed_ms` when they did.

    `has_names`: topics and groups have been listed once. `names_error` says why the last list of them is not complete.
    """

    brokers: dict[tuple[str, str], BrokerState] = attrs.field(init=False, factory=dict)  # by name and address
    topics: tuple[str, ...] = attrs.field(init=False, default=())  # sorted; without retry and dead letter topics
    dead_letter_topics: tuple[str, ...] = attrs.field(init=False, default=())
    groups: dict[str, GroupState] = attrs.field(init=False, factory=dict)
    listed_ms: float = attrs.field(init=False, default=0)
    error: str = attrs.field(init=False, default="")
    has_names: bool = attrs.field(init=False, default=False)
    names_error: str = attrs.field(init=False, default="")
    names_left_out: int = attrs.field(init=False, default=0)
    _looked: dict[str, float] = attrs.field(init=False, factory=dict)  # the time by group, the last one at the end

    # --- brokers ------------------------------------------------------------------------------------------------------

    def list_brokers(self, info: ClusterInfo, now_ms: float) -> None:
        """Take the brokers that the name servers know."""
        clusters = {name: cluster for cluster, names in info.cluster_addr_table.items() for name in names}
        listed = {
            (name, address): (clusters.get(name) or data.cluster, broker_id)
            for name, data in info.broker_addr_table.items()
            for broker_id, address in data.broker_addrs.items()
        }
        for key, (cluster, broker_id) in sorted(listed.items()):
            broker = self.brokers.get(key)
            if broker is None:
                if len(self.brokers) >= BROKERS_MAX:
                    self._forget_a_gone_broker()
                if len(self.brokers) >= BROKERS_MAX:
                    continue
                broker = self.brokers[key] = BrokerState(cluster, key[0], broker_id, key[1])
            broker.cluster, broker.broker_id, broker.seen_ms = cluster, broker_id, now_ms
        for key, broker in list(self.brokers.items()):
            broker.is_listed = key in listed
            if now_ms - broker.seen_ms > GONE_MS:
                del self.brokers[key]
        self.listed_ms, self.error = now_ms, ""

    def _forget_a_gone_broker(self) -> None:
        gone = [(broker.seen_ms, key) for key, broker in self.brokers.items() if not broker.is_listed]
        if gone:
            del self.brokers[min(gone)[1]]

    def sorted_brokers(self) -> list[BrokerState]:
        return sorted(self.brokers.values(), key=lambda one: (one.cluster, one.name, one.broker_id, one.address))

    def masters(self) -> list[BrokerState]:
        """List the masters that answer."""
        return [broker for broker in self.sorted_brokers() if broker.is_up and broker.is_master]

    def without_master(self) -> list[tuple[str, str]]:
        """List (cluster, broker name) of each name under which no master answers."""
        names = {(broker.cluster, broker.name) for broker in self.brokers.values()}
        return sorted(names - {(broker.cluster, broker.name) for broker in self.masters()})

    def knows_address(self, address: str) -> bool:
        return any(broker.address == address for broker in self.brokers.values())

    # --- names --------------------------------------------------------------------------------------------------------

    def name_topics_and_groups(self, topics: Iterable[str], groups: Iterable[str]) -> None:
        """Take the names of all topics, and of groups; a retry topic also names its group. Known groups are kept first,
        so that many new groups do not end the alarms about the known ones."""
        named, dead, known = [], [], set(groups)
        for topic in sorted(set(topics)):
            if topic.startswith(RETRY_PREFIX):
                known.add(topic.removeprefix(RETRY_PREFIX))
            elif topic.startswith(DLQ_PREFIX):
                dead.append(topic)
            else:
                named.append(topic)
        kept = sorted(known, key=lambda name: (name not in self.groups, name))[:GROUPS_MAX]
        self.names_left_out = max(len(named) - TOPICS_MAX, 0) + len(known) - len(kept)
        self.topics, self.dead_letter_topics = tuple(named[:TOPICS_MAX]), tuple(dead[:TOPICS_MAX])
        self.groups = {name: self.groups.get(name) or GroupState(name) for name in kept}
        self.has_names, self.names_error = True, ""

    # --- groups -------------------------------------------------------------------------------------------------------

    def look_at(self, name: str, now_ms: float) -> GroupState | None:
        """Return a group, which is sampled often from now on for a while; None: it is not known."""
        group = self.groups.get(name)
        if group is not None:
            self._looked.pop(name, None)
            self._looked[name] = now_ms
            if len(self._looked) > WATCHED_MAX:
                del self._looked[next(iter(self._looked))]
        return group

    def watched(self, now_ms: float) -> list[GroupState]:
        """List the groups that somebody looked at not long ago, at most WATCHED_MAX."""
        return [
            self.groups[name]
            for name, looked_ms in self._looked.items()
            if now_ms - looked_ms < WATCH_MS and name in self.groups
        ]
