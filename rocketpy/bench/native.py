"""The native generator: one scenario through the C driver, which sends what it has encoded before.

Each master has loads of its own: one with all producers and the first group, one more for each further group. The
producers of all topics use all queues in turn. Groups pull from where they are; they register nowhere, so that no
rebalance of theirs is measured.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from rocketpy import aio

from . import cold
from .cluster import BenchFailed, Cluster, find, numeric
from .driver import OPENSSL, has_header
from .encoding import CONSUMER_GROUP, NO_MORE
from .idle import Tally, idle_clients, sum_of
from .load import Load, Mode, Workload, to_hdr
from .own_broker import OwnBroker, wait_ready
from .result import PERCENTILES, Figures, Run, Tick, latency_figures
from .scenario import KINDS_OF_MESSAGES, Scenario

LEVELS_S = (0, 1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)  # of delays, unless a broker has others
INTERVAL_S = 1.0
SENDS, END_TO_END = 0, 1  # histograms of a load
FILL_S_MAX = 3600.0
FILL_ROUNDS = 5
RECOVERY_S_MAX = 120.0
FILLERS, FILL_IN_FLIGHT = 16, 16


def delay_ms(scenario: Scenario) -> int:
    return scenario.delay_millis or LEVELS_S[scenario.delay_level] * 1000


def kinds(scenario: Scenario) -> tuple[Mapping[str, str], ...]:
    """Return the properties in which messages differ, for filters."""
    if not scenario.filter_expression:
        return (NO_MORE,)
    return tuple({"TAGS": f"Tag{number % 10}", "number": str(number)} for number in range(KINDS_OF_MESSAGES))


def delay_properties(scenario: Scenario) -> dict[str, str]:
    if scenario.delay_level:
        return {"DELAY": str(scenario.delay_level)}
    return {"TIMER_DELAY_MS": str(scenario.delay_millis)} if scenario.delay_millis else {}


@attrs.define
class Totals:
    """Counters of all loads together."""

    messages: int = 0
    received: int = 0
    passed: int = 0  # places of queues that consumers are over with; without a filter: received
    failed: int = 0
    bytes_received: int = 0
    histograms: list[list[int]] = attrs.field(factory=lambda: [[], []])

    @property
    def work(self) -> int:
        """Return how many messages share the CPU time: stored or read, or those that a load of consumers passed."""
        return self.messages or self.passed

    @classmethod
    def of(cls, loads: Sequence[Load]) -> Totals:
        found = cls()
        for load in loads:
            stats = load.stats()
            found.messages += stats.messages_ok
            found.received += stats.messages_received
            found.passed += stats.units_passed
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
            "passed_per_s": round((self.passed - last.passed) / seconds, 1),
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
            if scenario.cold_reads:
                return self._read_cold(scenario, topics, backlog)
            if scenario.random_reads:
                return self._read(scenario, topics)
            with self._idle(scenario) as idle, self._open(self._loads(scenario, topics)) as loads:
                run = self._measure(scenario, loads, backlog)
            if scenario.kill_after:
                run.figures["recovery_s"] = self._recover(scenario, topics)
            return with_heartbeats(run, idle)

    def _read(self, scenario: Scenario, topics: Sequence[str]) -> Run:
        """Read pages of the backlog at random, from the page cache."""
        with self._open(self._reads(scenario, topics)) as loads:
            return self._measure(scenario, loads, 0)

    def _read_cold(self, scenario: Scenario, topics: Sequence[str], backlog: int) -> Run:
        """Drop the store from memory; then read pages of the backlog at random, or drain it."""
        broker = self._own("coldReads")
        is_random = scenario.random_reads
        makers = self._reads(scenario, topics) if is_random else self._loads(scenario, topics)
        self.tick("drop the store from memory", 0.0, 0, 0)
        cold.cool(broker)
        wait_ready(broker, lambda: find(self.cluster.access))
        cached = cold.cached_share(broker.store / "commitlog")  # a start reads some of it
        with self._open(makers) as loads:
            before = broker.disk_reads()
            at_once = attrs.evolve(scenario, warmup_duration_minutes=0)
            run = self._measure(at_once, loads, 0 if is_random else backlog)
            totals = Totals.of(loads)
            reads = (totals.messages if is_random else totals.received) / scenario.pull_batch_size
            run.figures.update(cold.figures(before, broker.disk_reads(), reads, totals.bytes_received))
        run.figures["cached_share"] = round(cached, 3)
        self.tick("read without a broker", 0.0, 0, 0)
        run.figures["raw_reads_per_s"] = cold.raw_reads_per_s(broker.store / "commitlog")
        return run

    def _own(self, key: str) -> OwnBroker:
        if self.broker is None:
            raise BenchFailed(f"{key} is for brokers that are started here: leave out -n")
        return self.broker

    def _recover(self, scenario: Scenario, topics: Sequence[str]) -> float:
        """Kill the broker; return the seconds from its start to the first acknowledged send."""
        broker = self._own("killAfter")
        broker.kill_and_restart()
        started_s = time.monotonic()
        workload = attrs.evolve(self._base(scenario), connections=1, in_flight=1, rate=0.0, requests_max=1)
        address = next(iter(self.cluster.masters.values()))
        while time.monotonic() < started_s + RECOVERY_S_MAX:
            broker.guard()
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
            kinds=kinds(scenario),
            stamp_shift_ms=delay_ms(scenario),
            rate=scenario.producer_rate / scenario.batch_size / len(self.cluster.masters),
            account=(credentials.access_key, credentials.secret_key) if credentials else None,
        )

    def _loads(self, scenario: Scenario, topics: Sequence[str]) -> list[Callable[[], Load]]:
        """Return what opens the loads: of each master the producers with the first group, then the other groups. With a
        filter the producers are a load of their own, for it has more kinds of messages than queues."""
        base = self._base(scenario)
        follow = attrs.evolve(base, mode=Mode.END_TO_END, consumers=scenario.consumer_per_subscription, rate=0.0)
        alone = attrs.evolve(
            follow,
            connections=0,
            kinds=(NO_MORE,),
            expression=scenario.filter_expression,
            expression_type=scenario.filter_type,
        )
        groups = [
            attrs.evolve(alone, group=f"{CONSUMER_GROUP}_{number}")
            for number in range(scenario.subscriptions_per_topic)
        ]
        if not scenario.subscriptions_per_topic:
            workloads = [base]
        elif not scenario.filter_expression:
            workloads = [attrs.evolve(follow, rate=base.rate), *groups[1:]]
        else:
            workloads = [attrs.evolve(base, is_stamped=True)] * bool(base.connections) + groups
        queues = scenario.partitions_per_topic
        return [
            lambda address=address, one=one: self._load(address, one, topics, queues, ())  # type: ignore[misc]
            for address in self.cluster.masters.values()
            for one in workloads
        ]

    def _reads(self, scenario: Scenario, topics: Sequence[str]) -> list[Callable[[], Load]]:
        """Return functions that open the loads which read pages of the backlog at random: connections are consumers.

        Of a cold store they read a small part: the disk's read-ahead around the pages makes it warm.
        """
        ends = aio.run(self.cluster.ends, topics, scenario.partitions_per_topic)
        workload = attrs.evolve(
            self._base(scenario),
            mode=Mode.PULL,
            connections=scenario.consumer_per_subscription * scenario.subscriptions_per_topic,
            random_pages=True,
            rate=0.0,
        )

        def opened(address: str) -> Load:
            pages = sum(end // scenario.pull_batch_size for end in ends[address])
            reads_max = max(1, pages // cold.WARM_FROM) if scenario.cold_reads else 0
            limited = attrs.evolve(workload, requests_max=reads_max)
            return self._load(address, limited, topics, scenario.partitions_per_topic, ends[address])

        return [functools.partial(opened, address) for address in self.cluster.masters.values()]

    def _fill(self, scenario: Scenario, topics: Sequence[str]) -> int:
        """Send the backlog, and return its number of messages. Sends that a busy broker refuses are repeated."""
        wanted = int(scenario.consumer_backlog_size_gb * 1e9 / scenario.message_size)
        stored, errors = 0, dict[str, int]()
        for _ in range(FILL_ROUNDS):
            requests = -(-(wanted - stored) // scenario.batch_size // len(self.cluster.masters))
            workload = attrs.evolve(
                self._base(scenario), connections=FILLERS, in_flight=FILL_IN_FLIGHT, rate=0.0, requests_max=requests
            )
            makers = [
                functools.partial(self._load, address, workload, topics, scenario.partitions_per_topic, ())
                for address in self.cluster.masters.values()
            ]
            with self._open(makers) as loads:
                run_together(loads, FILL_S_MAX, functools.partial(self._filled, loads))
                stored += Totals.of(loads).messages
                errors = self._errors(loads, 1.0)
            if stored >= wanted:
                return stored
        raise BenchFailed(f"the broker took {stored} of the {wanted} messages of the backlog: {errors}")

    def _filled(self, loads: Sequence[Load], at_s: float) -> bool:
        return self._tick("fill the backlog", at_s, Totals.of(loads))

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
            return bool(backlog) and now.passed >= (backlog + now.messages) * groups

        cpu_s, broker_cpu_s = time.process_time(), self._broker_cpu_s()
        seconds = run_together(loads, scenario.test_duration_minutes * 60, sample)
        cpu_s, broker_cpu_s = time.process_time() - cpu_s, self._broker_cpu_s() - broker_cpu_s
        run = self._result(scenario, loads, seconds, rows)
        if self.broker is not None:
            run.figures["broker_cpu_us"] = round(broker_cpu_s * 1e6 / Totals.of(loads).work, 3)
            run.figures["broker_pss_mib"] = self.broker.pss_mib()
        run.figures["generator_cores"] = round(cpu_s / seconds, 3)
        if backlog:
            if seen[-1].passed < backlog * groups:
                raise BenchFailed(
                    f"the groups did not drain the backlog in testDurationMinutes: {seen[-1].passed} of "
                    f"{backlog * groups} messages"
                )
            run.figures["drain_s"] = round(seconds, 3)
        return run

    def _broker_cpu_s(self) -> float:
        return self.broker.cpu_s() if self.broker is not None else 0.0

    def _result(self, scenario: Scenario, loads: list[Load], seconds: float, rows: list[Figures]) -> Run:
        totals, largest = Totals.of(loads), maxima(loads)
        if not totals.work:
            raise BenchFailed(
                f"the broker acknowledged no message: {self._errors(loads, seconds) or 'it did not answer'}"
            )
        figures: Figures = {}
        if scenario.random_reads:
            figures["reads_per_s"] = round(totals.messages / scenario.pull_batch_size / seconds, 1)
            figures["read_messages_per_s"] = round(totals.messages / seconds, 1)
            figures["read_mib_per_s"] = round(totals.bytes_received / seconds / 2**20, 1)
        elif scenario.producers_per_topic:
            figures["messages_per_s"] = round(totals.messages / seconds, 1)
            figures["mib_per_s"] = round(totals.messages * scenario.message_size / seconds / 2**20, 1)
        if totals.received:
            figures["consumed_per_s"] = round(totals.received / seconds, 1)
        if scenario.filter_expression:
            figures["passed_per_s"] = round(totals.passed / seconds, 1)
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
