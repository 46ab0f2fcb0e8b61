"""Run the C driver and turn its counters into a result.

The driver's thread runs with the GIL released for the whole measurement; progress is drawn by the calling thread from
two counters, so that drawing never stops the load.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]  # hdrhistogram ships no types

from .driver import load_driver
from .encoding import (
    CONSUMER_GROUP,
    NO_MORE,
    OFFSET_DIGITS_MAX,
    Serialize,
    Template,
    batch_template,
    end_template,
    pull_template,
    send_template,
    unique_key_prefix,
)
from .result import LATENCY_MAX_NS

_driver = load_driver()
ffi: Any = _driver.ffi
lib: Any = _driver.lib


class Mode(enum.Enum):
    SEND = 0
    PULL = 1
    END_TO_END = 2
    FILTERED = 3  # pulls of what CONSUMER_GROUP has subscribed to


@attrs.frozen
class Workload:
    """The requests of a load, independent of the broker."""

    mode: Mode
    connections: int
    in_flight: int
    body_size: int = 1024
    batch: int = 1  # messages per send request
    serialize: Serialize = Serialize.JSON
    rate: float = 0.0  # requests per second of all connections; 0: closed loop
    pull_count: int = 32
    requests_max: int = 0
    reconnect: bool = False
    is_tls: bool = False  # needs OpenSSL's headers when the driver is built (Debian: libssl-dev)
    record_acks: bool = False
    consumers: int = 1  # end to end: connections that share the queues
    stamp_shift_ms: int = 0  # end to end: added to the due time, for delayed messages
    properties: Mapping[str, str] = NO_MORE  # of single messages, beside those that every producer sets
    random_pages: bool = False  # pulls: pages in random order, each once before any comes again
    is_stamped: bool = False  # sends: bodies begin with their due time, for consumers of another load
    kinds: Sequence[Mapping[str, str]] = (NO_MORE,)  # properties of messages that differ; each queue gets them in turn
    expression: str = ""  # end to end: of the group's subscription; empty: all messages
    timeout_s: float = 5.0
    in_transactions: bool = False  # each send is a half message
    commits: bool = True  # half messages are committed when they are acknowledged, else left open
    account: tuple[str, str] | None = None  # single sends: access key and secret; without, they are not signed
    group: str = CONSUMER_GROUP
    expression_type: str = "TAG"  # of the group's subscription


@attrs.frozen
class Latency:
    """Microseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


@attrs.frozen
class Result:
    """The outcome of a load in a run."""

    seconds: float
    messages: int
    units: int  # of filtered pulls: queue offsets that they have passed
    messages_per_s: float
    requests_per_s: float
    latency_us: Latency
    end_to_end_us: Latency | None
    mebibytes_per_s: float  # of message records pulled
    errors: dict[str, int]  # replies by code; also timeouts, lost, bad, short
    gap_max_ms: float
    driver_cpu_s: float

    @property
    def is_clean(self) -> bool:
        """Nothing failed; short pull replies are the broker's right."""
        return not {name for name in self.errors if name != "short"}


@attrs.frozen
class Ack:
    """A send that the broker acknowledged: the message, and its place by the answer."""

    key: int
    queue_id: int
    queue_offset: int


Progress = Callable[[float, int, int], None]  # seconds so far, messages so far, errors so far


def summarize(histogram: HdrHistogram) -> Latency:
    at = [histogram.get_value_at_percentile(percent) / 1000 for percent in (50, 90, 99, 99.9, 100)]
    return Latency(histogram.get_total_count(), *(round(value, 1) for value in at))


def to_hdr(counts: Sequence[int], max_ns: int) -> HdrHistogram:
    """Return the driver's buckets as an HdrHistogram of ns (three digits), each at its middle; the maximum exact."""
    histogram = HdrHistogram(1, LATENCY_MAX_NS, 3)
    for bucket, count in enumerate(counts):
        if count:
            low, end = lib.load_bucket_low(bucket), lib.load_bucket_low(bucket + 1)
            histogram.record_value(max(1, min((low + end) // 2, max_ns, LATENCY_MAX_NS)), count)
    return histogram


Destination = tuple[str, int, Mapping[str, str]]  # topic, queue id, properties of the kind of message


def encode(
    workload: Workload, destinations: Sequence[Destination], prefix: str
) -> tuple[list[Template], list[Template]]:
    """Return the send and the pull requests of a workload: one send per destination, one pull per destination and
    number of digits."""
    born_timestamp_ms = int(time.time() * 1000)
    sends: list[Template] = []
    pulls: list[Template] = []
    for topic, queue_id, kind in destinations:
        if workload.mode not in (Mode.PULL, Mode.FILTERED) and workload.connections:
            sends.append(_send_template(workload, topic, queue_id, kind, prefix, born_timestamp_ms))
        if workload.mode is not Mode.SEND:
            pulls += [_pull_template(workload, topic, queue_id, n) for n in range(1, OFFSET_DIGITS_MAX + 1)]
    return sends, pulls


def _send_template(
    workload: Workload, topic: str, queue_id: int, kind: Mapping[str, str], prefix: str, born_timestamp_ms: int
) -> Template:
    is_stamped = workload.is_stamped or workload.mode is Mode.END_TO_END
    if workload.batch > 1:
        return batch_template(
            topic,
            queue_id,
            workload.body_size,
            workload.batch,
            prefix=prefix,
            born_timestamp_ms=born_timestamp_ms,
            serialize=workload.serialize,
            stamped=is_stamped,
        )
    return send_template(
        topic,
        queue_id,
        workload.body_size,
        prefix=prefix,
        born_timestamp_ms=born_timestamp_ms,
        serialize=workload.serialize,
        stamped=is_stamped,
        is_half=workload.in_transactions,
        account=workload.account,
        more={**workload.properties, **kind},
    )


def _pull_template(workload: Workload, topic: str, queue_id: int, digits: int) -> Template:
    return pull_template(
        topic,
        queue_id,
        workload.pull_count,
        digits,
        serialize=workload.serialize,
        suspend_ms=15000 if workload.mode is Mode.END_TO_END else 0,
        group=workload.group,
        subscribed=workload.expression_type if workload.mode is Mode.FILTERED else None,
        expression=workload.expression or "*",
        expression_type=workload.expression_type,
    )


class Load:
    """An open load: connected, and busy only inside `run` and `drain`."""

    def __init__(
        self,
        workload: Workload,
        *,
        host: str,
        port: int,
        topic: str | Sequence[str],
        queues: int,
        offsets: Sequence[int] = (),
    ) -> None:
        """Encode the requests of a load.

        Args:
            queues: of each topic.
            offsets: of each queue: for pulls where it ends, end to end where it begins.
        """
        self.workload = workload
        self.prefix = unique_key_prefix()  # of the ids of its messages
        topics = (topic,) if isinstance(topic, str) else topic
        destinations = [(name, queue, kind) for kind in workload.kinds for name in topics for queue in range(queues)]
        sends, pulls = encode(workload, destinations, self.prefix)
        self._keep: list[Any] = []  # what the driver borrows
        pulls_alone = workload.mode in (Mode.PULL, Mode.FILTERED)
        consumers = (
            workload.connections if pulls_alone else {Mode.SEND: 0, Mode.END_TO_END: workload.consumers}[workload.mode]
        )
        config = ffi.new("load_config *")
        config.host = self._borrow(ffi.new("char[]", host.encode()))
        config.port = port
        config.mode = workload.mode.value
        config.producers = 0 if pulls_alone else workload.connections
        config.consumers = consumers
        config.in_flight = workload.in_flight
        config.queue_count = len(destinations)
        config.pull_count = workload.pull_count
        config.reconnect = workload.reconnect
        config.is_tls = workload.is_tls
        config.record_acks = workload.record_acks
        config.stamp_shift_ns = workload.stamp_shift_ms * 1_000_000
        config.random_pages = workload.random_pages
        config.is_filtered = bool(workload.expression)
        config.rate = workload.rate
        config.requests_max = workload.requests_max
        config.key_first = 0
        config.timeout_ns = int(workload.timeout_s * 1e9)
        config.send = self._templates(sends)
        config.pull = self._templates(pulls)
        if workload.in_transactions and workload.commits:
            end = end_template()
            config.end.bytes = self._borrow(ffi.from_buffer("uint8_t[]", end.frame))
            config.end.size = len(end.frame)
            config.end.queue_offset_at, config.end.phy_offset_at = end.queue_offset_at, end.phy_offset_at
        config.offsets = self._borrow(ffi.new("uint64_t[]", list(offsets) or [0] * len(destinations)))
        self._load = lib.load_open(config)
        if self._load == ffi.NULL:
            raise OSError(ffi.errno, f"cannot open {workload.connections} connections to {host}:{port}")

    def _borrow(self, value: Any) -> Any:
        self._keep.append(value)
        return value

    def _templates(self, templates: Sequence[Template]) -> Any:
        if not templates:
            return ffi.NULL
        array = self._borrow(ffi.new("load_template[]", len(templates)))
        for entry, template in zip(array, templates, strict=True):
            entry.bytes = self._borrow(ffi.from_buffer("uint8_t[]", template.frame))
            entry.size = len(template.frame)
            entry.opaque_at, entry.opaque_is_binary = template.opaque_at, template.opaque_is_binary
            entry.offset_at, entry.offset_digits = template.offset_at, template.offset_digits
            entry.stamp_at, entry.stamp_step = template.stamp_at, template.stamp_step
            entry.messages = template.messages
            entry.key_count = len(template.key_at)
            entry.key_at = self._borrow(ffi.new("uint32_t[]", template.key_at))
        return array

    def close(self) -> None:
        if self._load != ffi.NULL:
            lib.load_close(self._load)
            self._load = ffi.NULL

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, seconds: float, progress: Progress | None = None, *, drain: bool = False) -> bool:
        """Load the broker for so long; True when there was nothing left to do before that.

        Raises:
            ConnectionError: every connection was lost.
            OSError: the driver failed.
        """
        outcome: list[tuple[int, int]] = []
        start_ns = lib.load_now_ns()

        def work() -> None:
            outcome.append((lib.load_run(self._load, start_ns + int(seconds * 1e9), drain), ffi.errno))

        thread = threading.Thread(target=work, name="load")
        thread.start()
        try:
            while thread.is_alive():
                thread.join(1.0)
                if progress is not None:
                    elapsed_s = (lib.load_now_ns() - start_ns) / 1e9
                    progress(elapsed_s, lib.load_messages(self._load), lib.load_errors(self._load))
        except BaseException:
            self.stop()
            thread.join()
            raise
        code, errno = outcome[0]
        if code == lib.LOAD_DEAD:
            raise ConnectionError("every connection was lost")
        if code < 0:
            raise OSError(errno, "the load driver failed")
        return bool(code == lib.LOAD_DONE)

    def measure(self, seconds: float, *, warm_up_s: float = 0.0, progress: Progress | None = None) -> Result:
        """Warm up, forget, run, and say what happened. What is in flight at the end is drained and not counted."""
        if warm_up_s:
            self.run(warm_up_s)
        lib.load_reset(self._load)
        start_ns, cpu_s = lib.load_now_ns(), time.process_time()
        self.run(seconds, progress)
        elapsed_s = (lib.load_now_ns() - start_ns) / 1e9
        cpu_s = time.process_time() - cpu_s
        result = self.result(elapsed_s, cpu_s)
        self.drain()
        return result

    def drain(self, timeout_s: float = 6.0) -> bool:
        """Wait for what is in flight; True when all of it was answered."""
        return self.run(timeout_s, drain=True)

    def result(self, elapsed_s: float, driver_cpu_s: float) -> Result:
        stats = self.stats()
        errors = {str(stats.codes[i]): int(stats.code_counts[i]) for i in range(stats.code_count)}
        named = {
            "timeouts": stats.timeouts,
            "connections_lost": stats.connections_lost,
            "requests_lost": stats.requests_lost,
            "bad": stats.bad_replies,
            "short": stats.short_replies,
        }
        errors |= {name: int(count) for name, count in named.items() if count}
        end_to_end = self.histogram(1) if self.workload.mode is Mode.END_TO_END else None
        return Result(
            seconds=round(elapsed_s, 3),
            messages=int(stats.messages_ok),
            units=int(stats.units_passed),
            messages_per_s=round(stats.messages_ok / elapsed_s, 1),
            requests_per_s=round(stats.requests_ok / elapsed_s, 1),
            latency_us=summarize(self.histogram(0)),
            end_to_end_us=summarize(end_to_end) if end_to_end is not None else None,
            mebibytes_per_s=round(stats.bytes_received / elapsed_s / 2**20, 1),
            errors=errors,
            gap_max_ms=round(stats.gap_max_ns / 1e6, 3),
            driver_cpu_s=round(driver_cpu_s, 3),
        )

    def stats(self) -> Any:
        """Return the driver's counters (`load_stats`), also while it runs."""
        stats = ffi.new("load_stats *")
        lib.load_stats_get(self._load, stats)
        return stats

    def reset(self) -> None:
        """Forget counters and histograms; what is in flight stays."""
        lib.load_reset(self._load)

    def stop(self) -> None:
        """Have `run` return, from any thread, until `allow`."""
        lib.load_stop(self._load, 1)

    def allow(self) -> None:
        lib.load_stop(self._load, 0)

    def max_ns(self, which: int) -> int:
        return int(lib.load_histogram_max_ns(self._load, which))

    def counts(self, which: int) -> list[int]:
        """Return the buckets of a histogram, also while the driver runs: 0 requests, 1 end to end."""
        return list(ffi.unpack(lib.load_histogram(self._load, which), lib.load_bucket_count()))

    def histogram(self, which: int) -> HdrHistogram:
        return to_hdr(self.counts(which), self.max_ns(which))

    def received(self) -> int:
        """Return how many messages the consumer has, end to end, since the warm-up."""
        return int(self.stats().messages_received)

    def acks(self) -> list[Ack]:
        count = ffi.new("uint64_t *")
        acks = lib.load_acks(self._load, count)
        return [Ack(acks[i].key, acks[i].queue, acks[i].queue_offset) for i in range(count[0])]

    def connection_gaps_ms(self) -> list[tuple[float, int]]:
        """Per connection: longest time between two successes, and how often it was lost."""
        stats = ffi.new("load_connection_stats *")
        gaps = []
        for index in range(self.workload.connections):
            lib.load_connection_stats_get(self._load, index, stats)
            gaps.append((stats.gap_max_ns / 1e6, int(stats.lost)))
        return gaps
