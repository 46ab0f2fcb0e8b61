"""The cost of idle clients: memory and CPU of a broker that serves nothing but their heartbeats."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import attrs

from . import proc
from .cluster import Access, numeric
from .idle import INTERVAL_S, Tally, idle_clients, sum_of
from .own_broker import OwnBroker, own_broker
from .result import Tick
from .scenario import Scenario

SETTLE_S = 5.0  # after the last connection: freed memory goes back to the kernel
USER_BYTES_MAX, CPU_PERCENT_MAX = 10_000, 20.0  # the bars: of each client, and of a core


@attrs.frozen(kw_only=True)
class IdleCost:
    """Figures of a run."""

    clients: int
    seconds: float
    user_bytes: int  # of the broker's processes (PSS), for each client
    kernel_bytes: int  # of buffers of TCP, of both ends
    cpu_percent: float  # of a core
    tally: Tally
    grown_kib: Mapping[str, int]  # by process

    @property
    def cpu_us_per_heartbeat(self) -> float:
        return self.cpu_percent / 100 / (self.clients / INTERVAL_S) * 1e6

    @property
    def lines(self) -> list[str]:
        """Return the figures as text."""
        grown = sorted(self.grown_kib.items(), key=lambda item: -item[1])
        shown = ", ".join(f"{name} {kib / 1024:.1f}" for name, kib in grown if kib >= 100)
        return [
            f"{self.clients} clients for {self.seconds:.0f} s, a heartbeat of each every {INTERVAL_S:g} s",
            f"user memory      {self.user_bytes} bytes each (MiB: {shown})",
            f"kernel memory    {self.kernel_bytes} bytes each, both ends",
            f"CPU              {self.cpu_percent:.1f} % of a core, {self.cpu_us_per_heartbeat:.0f} µs a heartbeat",
            f"heartbeats       p50 {self.tally.quantile_ms(0.5):g} ms, p99 {self.tally.quantile_ms(0.99):g} ms, "
            f"{self.tally.refused} refused, {self.tally.lost} connections lost",
        ]

    def faults(self, *, is_strict: bool) -> list[str]:
        """Return what is wrong; `is_strict`: a missed bar, too."""
        found = [f"{self.tally.refused} heartbeats were refused"] if self.tally.refused else []
        found += [f"{self.tally.lost} connections were lost"] if self.tally.lost else []
        if is_strict and self.user_bytes > USER_BYTES_MAX:
            found.append(f"a client takes {self.user_bytes} bytes of memory, allowed are {USER_BYTES_MAX}")
        if is_strict and self.cpu_percent > CPU_PERCENT_MAX:
            found.append(f"heartbeats take {self.cpu_percent:.1f} % of a core, allowed are {CPU_PERCENT_MAX:g}")
        return found


def measure(clients: int, seconds: float, settings: Mapping[str, str], store: Path | None, tick: Tick) -> IdleCost:
    """Measure a broker of our own, with default settings but for `settings`.

    Raises:
        BenchFailed: the clients are not all connected.
    """
    with own_broker(Scenario(name="idle", broker=settings), store, Access("")) as (broker, cluster):
        _, port = numeric(next(iter(cluster.masters.values())))
        before, kernel_before = _pss_kib(broker), _tcp_bytes()
        tick("connect idle clients", 0.0, 0, 0)
        with idle_clients(port, clients) as tallies:
            _watch(broker, SETTLE_S, "settle", tick)
            cpu_s, began_s = broker.cpu_s(), time.monotonic()
            _watch(broker, seconds, "measure", tick)
            cpu_s, elapsed_s = broker.cpu_s() - cpu_s, time.monotonic() - began_s
            after, kernel = _pss_kib(broker), _tcp_bytes() - kernel_before
    grown = {name: kib - before.get(name, 0) for name, kib in after.items()}
    return IdleCost(
        clients=clients,
        seconds=elapsed_s,
        user_bytes=round(sum(grown.values()) * 1024 / clients),
        kernel_bytes=round(kernel / clients),
        cpu_percent=cpu_s / elapsed_s * 100,
        tally=sum_of(tallies),
        grown_kib=grown,
    )


def _watch(broker: OwnBroker, seconds: float, phase: str, tick: Tick) -> None:
    began_s = time.monotonic()
    while (at_s := time.monotonic() - began_s) < seconds:
        broker.guard()
        tick(phase, at_s, 0, 0)
        time.sleep(min(1.0, seconds - at_s))


def _pss_kib(broker: OwnBroker) -> dict[str, int]:
    """Return the memory of the broker's processes, by their names."""
    found: dict[str, int] = {}
    for pid, kib in proc.pss_kib_by_process([broker.process.pid], [broker.store]).items():
        title = proc.command_name(pid)
        name = title.removeprefix("rocketpy: ") if title.startswith("rocketpy: ") else "supervisor"
        found[name] = found.get(name, 0) + kib
    return found


def _tcp_bytes() -> int:
    """Return the memory of TCP buffers in the kernel, of all processes."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        if line.startswith("TCP:"):
            return int(line.split()[-1]) * 4096
    return 0
