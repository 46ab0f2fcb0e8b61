"""The native generator: one scenario through the C driver, which sends what it has encoded before.

Each master has loads of its own: one with all producers and the first group, one more for each further group. The
producers of all topics use all queues in turn. Groups pull from where they are; they register nowhere, so that no
rebalance of theirs is measured.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import attrs

from .cluster import BenchFailed, Cluster, numeric
from .driver import OPENSSL, has_header
from .encoding import CONSUMER_GROUP
from .idle import Tally, idle_clients, sum_of
from .load import Load, Mode, Workload, to_hdr
from .own_broker import OwnBroker
from .result import PERCENTILES, Figures, Run, Tick, latency_figures
from .scenario import Scenario

LEVELS_S = (0, 1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)  # of delays, unless a broker has others
INTERVAL_S = 1.0
SENDS, END_TO_END = 0, 1  # histograms of a load
FILL_S_MAX = 3600.0
RECOVERY_S_MAX = 120.0
FILLERS, FILL_IN_FLIGHT = 16, 16


def delay_ms(scenario: Scenario) -> int:
    return scenario.delay_millis or LEVELS_S[scenario.delay_level] * 1000


def delay_properties(scenario: Scenario) -> dict[str, str]:
    if scenario.delay_level:
        return {"DELAY": str(scenario.delay_level)}
    return {"TIMER_DELAY_MS": str(scenario.delay_millis)} if scenario.delay_millis else {}


@attrs.define
class Totals:
    """Counters of all loads together."""

    messages: int = 0
    received: int = 0
    failed: int = 0
    bytes_received: int = 0
    histograms: list[list[int]] = attrs.field(factory=lambda: [[], []])

    @classmethod
    def of(cls, loads: Sequence[Load]) -> Totals:
        found = cls()
        for load in loads:
            stats = load.stats()
            found.messages += stats.messages_ok
            found.received += stats.messages_received
            found.failed += stats.requests_failed + stats.timeouts + stats.bad_replies + stats.requests_lost
            found.bytes_received += stats.bytes_received
        for which in (SENDS, END_TO_END):
            found.histograms[which] = [
                sum(column) for column in zip(*(load.counts(which) for load in loads), strict=True)
            ]
        return found

    def since(self, last: Totals, at_s: float, seconds: float, max_ns: Sequence[int]) -> Figures:
        """Return the row of an interval that began with `last`."""
        row = {
            "at_s": round(at_s, 3),
            "messages_per_s": round((self.messages - last.messages) / seconds, 1),
            "consumed_per_s": round((self.received - last.received) / seconds, 1),
            "errors": self.failed - last.failed,
        }
        for which, prefix in ((SENDS, "send"), (END_TO_END, "end_to_end")):
            counts = [new - old for new, old in zip(self.histograms[which], last.histograms[which], strict=True)]
            row |= latency_figures(to_hdr(counts, max_ns[which]), prefix, ("p50", "p99", "max"))
        return row


def maxima(loads: Sequence[Load]) -> list[int]:
    """Return the largest value of each histogram."""
    return [max(load.max_ns(which) for load in loads) for which in (SENDS, END_TO_END)]


def run_together(loads: Sequence[Load], seconds: float, tick: Callable[[float], bool]) -> float:
    """Run all loads at once and call `tick` each second; it returns True to end them early.

    Returns: seconds that they ran.
    Raises:
        BenchFailed: a load failed.
    """
    failures: list[Exception] = []

    def work(load: Load) -> None:
        try:
            load.run(seconds)
        except (OSError, ConnectionError) as error:
            failures.append(error)
            for other in loads:
                other.stop()

    threads = [threading.Thread(target=work, args=(load,), name="load") for load in loads]
    started_s = time.monotonic()
    for thread in threads:
        thread.start()
    try:
        due_s = started_s + INTERVAL_S
        while any(thread.is_alive() for thread in threads):
            threads[0].join(max(0.0, due_s - time.monotonic()))
            if time.monotonic() >= due_s:
                due_s += INTERVAL_S
                if tick(time.monotonic() - started_s):
                    break
    finally:
        ended_s = time.monotonic()
        for load in loads:
            load.stop()
        for thread in threads:
            thread.join()
        for load in loads:
            load.allow()
    if failures:
        raise BenchFailed(f"the load ended early: {failures[0]}")
    return ended_s - started_s


def with_heartbeats(run: Run, idle: Sequence[Tally]) -> Run:
    """Add what the idle clients saw to the figures and errors of a run."""
    if idle:
        tally = sum_of(list(idle))
        run.figures["heartbeat_p50_us"] = tally.quantile_ms(0.5) * 1000
        run.figures["heartbeat_p99_us"] = tally.quantile_ms(0.99) * 1000
        if idle[0].pss_bytes:
            run.figures["broker_idle_connection_bytes"] = idle[0].pss_bytes
        for name, count in (("heartbeats refused", tally.refused), ("idle connections lost", tally.lost)):
            if count:
                run.errors[name] = count
    return run


@attrs.frozen
class NativeGenerator:
    """Runs scenarios against one cluster. `broker`: its only one, if this benchmark has started it."""

    cluster: Cluster
    tick: Tick
    broker: OwnBroker | None = None

    def run(self, scenario: Scenario) -> Run:
        """Return one run of a point, with topics of its own.

        Raises:
            BenchFailed: the load could not run, or nothing was acknowledged.
        """
        self._check(scenario)
        with self.cluster.topics(scenario.topics, scenario.partitions_per_topic) as topics:
            backlog = self._fill(scenario, topics) if scenario.consumer_backlog_size_gb else 0
            if scenario.random_reads:
                with self._open(self._reads(scenario, topics, backlog)) as loads:
                    return self._measure(scenario, loads, 0)
            with self._idle(scenario) as idle, self._open(self._loads(scenario, topics)) as loads:
                run = self._measure(scenario, loads, backlog)
            if scenario.kill_after:
                run.figures["recovery_s"] = self._recover(scenario, topics)
            return with_heartbeats(run, idle)

    def _recover(self, scenario: Scenario, topics: Sequence[str]) -> float:
        """Kill the broker; return the seconds from its start to the first acknowledged send."""
        if self.broker is None:
            raise BenchFailed("killAfter is for brokers that are started here: leave out -n")
        self.broker.kill_and_restart()
        started_s = time.monotonic()
        workload = attrs.evolve(self._base(scenario), connections=1, in_flight=1, rate=0.0, requests_max=1)
        address = next(iter(self.cluster.masters.values()))
        while time.monotonic() < started_s + RECOVERY_S_MAX:
            self.broker.guard()
            with contextlib.suppress(OSError), self._load(address, workload, topics, 1, ()) as load:
                load.run(RECOVERY_S_MAX)
                if load.stats().messages_ok:
                    return round(time.monotonic() - started_s, 3)
            time.sleep(0.002)
        raise BenchFailed(f"the broker acknowledged no send {RECOVERY_S_MAX:g} s after it was killed")

    @contextlib.contextmanager
    def _idle(self, scenario: Scenario) -> Iterator[list[Tally]]:
        """Keep the idle clients of a scenario, on the first master: they come from addresses of this host."""
        if not scenario.idle_connections:
            yield []
            return
        before_mib = self.broker.pss_mib() if self.broker is not None else 0.0
        self.tick("connect idle clients", 0.0, 0, 0)
        host, port = numeric(next(iter(self.cluster.masters.values())))
        if not host.startswith("127."):
            raise BenchFailed(f"idleConnections need a broker on this host, and it is at {host}")
        with idle_clients(port, scenario.idle_connections) as tallies:
            grown_mib = self.broker.pss_mib() - before_mib if self.broker is not None else 0.0
            yield tallies
        tallies[0].pss_bytes = round(grown_mib * 2**20 / scenario.idle_connections)

    def _check(self, scenario: Scenario) -> None:
        access = self.cluster.access
        if access.tls is not None and not has_header(OPENSSL):
            raise BenchFailed(
                "the native generator was built without TLS: install OpenSSL's headers (Debian: libssl-dev)"
            )
        is_single_sends = not scenario.subscriptions_per_topic and scenario.batch_size == 1
        if access.credentials is not None and not is_single_sends:
            raise BenchFailed(
                "the native generator signs single sends alone: set subscriptionsPerTopic: 0 and batchSize: 1, or use "
                "--generator client"
            )

    def _load(
        self, address: str, workload: Workload, topics: Sequence[str], queues: int, offsets: Sequence[int]
    ) -> Load:
        host, port = numeric(address)
        return Load(workload, host=host, port=port, topic=topics, queues=queues, offsets=offsets)

    @contextlib.contextmanager
    def _open(self, makers: Sequence[Callable[[], Load]]) -> Iterator[list[Load]]:
        with contextlib.ExitStack() as stack:
            try:
                yield [stack.enter_context(make()) for make in makers]
            except OSError as error:
                raise BenchFailed(f"the load cannot open its connections: {error}") from error

    def _base(self, scenario: Scenario) -> Workload:
        """Return what all loads of a scenario have in common."""
        credentials = self.cluster.access.credentials
        return Workload(
            Mode.SEND,
            scenario.producers_per_topic * scenario.topics,
            scenario.in_flight_per_producer,
            scenario.message_size,
            batch=scenario.batch_size,
            pull_count=scenario.pull_batch_size,
            is_tls=self.cluster.access.tls is not None,
            in_transactions=scenario.transactions,
            properties=delay_properties(scenario),
            stamp_shift_ms=delay_ms(scenario),
            rate=scenario.producer_rate / scenario.batch_size / len(self.cluster.masters),
            account=(credentials.access_key, credentials.secret_key) if credentials else None,
        )

    def _loads(self, scenario: Scenario, topics: Sequence[str]) -> list[Callable[[], Load]]:
        """Return what opens the loads: of each master the producers with the first group, then the other groups."""
        base = self._base(scenario)
        if scenario.subscriptions_per_topic:
            base = attrs.evolve(base, mode=Mode.END_TO_END, consumers=scenario.consumer_per_subscription)
        others = [
            attrs.evolve(base, connections=0, rate=0.0, group=f"{CONSUMER_GROUP}_{number}")
            for number in range(1, scenario.subscriptions_per_topic)
        ]
        queues = scenario.partitions_per_topic
        return [
            lambda address=address, one=one: self._load(address, one, topics, queues, ())  # type: ignore[misc]
            for address in self.cluster.masters.values()
            for one in (base, *others)
        ]

    def _reads(self, scenario: Scenario, topics: Sequence[str], backlog: int) -> list[Callable[[], Load]]:
        """Return what opens the loads that read pages of the backlog at random: connections are the consumers."""
        workload = attrs.evolve(
            self._base(scenario),
            mode=Mode.PULL,
            connections=scenario.consumer_per_subscription * scenario.subscriptions_per_topic,
            random_pages=True,
            rate=0.0,
        )
        each = backlog // len(self.cluster.masters) // scenario.queues
        return [
            lambda address=address: self._load(  # type: ignore[misc]
                address, workload, topics, scenario.partitions_per_topic, [each] * scenario.queues
            )
            for address in self.cluster.masters.values()
        ]

    def _fill(self, scenario: Scenario, topics: Sequence[str]) -> int:
        """Send the backlog; returns its messages."""
        wanted = int(scenario.consumer_backlog_size_gb * 1e9 / scenario.message_size)
        requests = -(-wanted // scenario.batch_size // len(self.cluster.masters))
        workload = attrs.evolve(
            self._base(scenario), connections=FILLERS, in_flight=FILL_IN_FLIGHT, rate=0.0, requests_max=requests
        )
        queues = scenario.partitions_per_topic
        makers: list[Callable[[], Load]] = [
            lambda address=address: self._load(address, workload, topics, queues, ())  # type: ignore[misc]
            for address in self.cluster.masters.values()
        ]
        with self._open(makers) as loads:
            run_together(loads, FILL_S_MAX, lambda at_s: self._tick("fill the backlog", at_s, Totals.of(loads)))
            stored = Totals.of(loads).messages
        if stored < wanted:
            raise BenchFailed(f"the broker took {stored} of the {wanted} messages of the backlog")
        return stored

    def _tick(self, phase: str, at_s: float, totals: Totals) -> bool:
        if self.broker is not None:
            self.broker.guard()
        self.tick(phase, at_s, totals.messages + totals.received, totals.failed)
        return False

    def _measure(self, scenario: Scenario, loads: list[Load], backlog: int) -> Run:
        """Warm up, forget, run. A backlog is drained instead: the run ends when the groups have caught up."""
        if scenario.warmup_duration_minutes and not backlog:
            seconds = scenario.warmup_duration_minutes * 60
            run_together(loads, seconds, lambda at_s: self._tick("warm up", at_s, Totals.of(loads)))
            for load in loads:
                load.reset()
        rows: list[Figures] = []
        seen = [Totals.of(loads)]
        groups = max(1, scenario.subscriptions_per_topic)

        def sample(at_s: float) -> bool:
            now = Totals.of(loads)
            rows.append(now.since(seen[-1], at_s, at_s - (rows[-1]["at_s"] if rows else 0.0), maxima(loads)))
            seen[:] = [now]
            self._tick("measure", at_s, now)
            return bool(backlog) and now.received >= (backlog + now.messages) * groups

        cpu_s, broker_cpu_s = time.process_time(), self._broker_cpu_s()
        seconds = run_together(loads, scenario.test_duration_minutes * 60, sample)
        cpu_s, broker_cpu_s = time.process_time() - cpu_s, self._broker_cpu_s() - broker_cpu_s
        run = self._result(scenario, loads, seconds, rows)
        if self.broker is not None:
            run.figures["broker_cpu_us"] = round(broker_cpu_s * 1e6 / Totals.of(loads).messages, 3)
            run.figures["broker_pss_mib"] = self.broker.pss_mib()
        run.figures["generator_cores"] = round(cpu_s / seconds, 3)
        if backlog:
            if seen[-1].received < backlog * groups:
                raise BenchFailed(
                    f"the groups did not drain the backlog in testDurationMinutes: {seen[-1].received} of "
                    f"{backlog * groups} messages"
                )
            run.figures["drain_s"] = round(seconds, 3)
        return run

    def _broker_cpu_s(self) -> float:
        return self.broker.cpu_s() if self.broker is not None else 0.0

    def _result(self, scenario: Scenario, loads: list[Load], seconds: float, rows: list[Figures]) -> Run:
        totals, largest = Totals.of(loads), maxima(loads)
        if not totals.messages and not totals.received:
            raise BenchFailed(
                f"the broker acknowledged no message: {self._errors(loads, seconds) or 'it did not answer'}"
            )
        figures: Figures = {}
        if scenario.random_reads:
            figures["reads_per_s"] = round(totals.messages / scenario.pull_batch_size / seconds, 1)
            figures["read_messages_per_s"] = round(totals.messages / seconds, 1)
            figures["read_mib_per_s"] = round(totals.bytes_received / seconds / 2**20, 1)
        else:
            figures["messages_per_s"] = round(totals.messages / seconds, 1)
            figures["mib_per_s"] = round(totals.messages * scenario.message_size / seconds / 2**20, 1)
        if totals.received:
            figures["consumed_per_s"] = round(totals.received / seconds, 1)
        histograms = {}
        is_drain = scenario.consumer_backlog_size_gb > 0 and not scenario.random_reads
        for which, prefix in ((SENDS, "read" if scenario.random_reads else "send"), (END_TO_END, "end_to_end")):
            if which == END_TO_END and is_drain:
                continue  # it would be the age of the backlog
            histogram = to_hdr(totals.histograms[which], largest[which])
            if histogram.get_total_count():
                figures |= latency_figures(histogram, prefix, tuple(PERCENTILES))
                histograms[prefix] = histogram.encode().decode()
        errors = self._errors(loads, seconds)
        return Run(seconds=round(seconds, 3), figures=figures, errors=errors, intervals=rows, histograms=histograms)

    def _errors(self, loads: Sequence[Load], seconds: float) -> dict[str, int]:
        errors: dict[str, int] = {}
        for load in loads:
            for name, count in load.result(seconds, 0.0).errors.items():
                errors[name] = errors.get(name, 0) + count
        return errors
