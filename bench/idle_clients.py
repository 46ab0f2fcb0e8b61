"""Measures the cost of clients that only send heartbeats.

    python -m bench.idle_clients --clients 50000 --seconds 90

Opens that many connections to a fresh broker, from several loopback addresses since one has too few ports, and sends
each one's heartbeat every 30 s: all are producers, each fifth is a member of a consumer group of 20 besides. The limit
of open files holds for each process: there are as many processes of clients, and selectors of the broker, as it takes.
Prints JSON: memory (PSS of the broker's processes, and of the kernel's TCP buffers) and CPU per client, how long
heartbeats took, and whether any was refused or any connection lost.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from rocketpy.bench import proc
from rocketpy.bench.idle import DESCRIPTORS_KEPT, Crowd, Tally, raised_limit, sum_of

from .brokers import Broker, running


def tcp_kib() -> int:
    """Memory of TCP buffers in the kernel, all processes."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        if line.startswith("TCP:"):
            return int(line.split()[-1]) * 4
    return 0


def by_process(broker: Broker) -> dict[str, int]:
    """PSS in KiB by the name of the process."""
    found: dict[str, int] = {}
    for pid, kib in proc.pss_kib_by_process(broker.roots, []).items():
        name = (Path("/proc") / str(pid) / "comm").read_text().strip()
        found[name] = found.get(name, 0) + kib
    return found


def play(port: int, first: int, count: int, seconds: float, parent: Connection) -> None:
    """A process of clients: connects, tells, waits for the word, heartbeats for `seconds`, tells."""
    crowd = Crowd(port, first, count)
    crowd.connect()
    crowd.run(5.0)
    parent.send(crowd.tally)
    while not parent.poll():
        crowd.run(0.1)
    crowd.tally = Tally()
    crowd.spread()
    crowd.run(seconds)
    parent.send(crowd.tally)


def measure(broker: Broker, count: int, seconds: float, processes: int) -> dict[str, object]:
    before, tcp_before = by_process(broker), tcp_kib()
    started_s, cpu_before_s = time.monotonic(), broker.cpu_s()
    share, crowds = -(-count // processes), []
    for first in range(0, count, share):
        ours, theirs = multiprocessing.Pipe()
        size = min(share, count - first)
        process = multiprocessing.Process(target=play, args=(broker.port, first, size, seconds, theirs), daemon=True)
        process.start()
        crowds.append(ours)
    at_start = sum_of([crowd.recv() for crowd in crowds])
    connected_s, cpu_connect_s = time.monotonic() - started_s, broker.cpu_s() - cpu_before_s
    started_s, cpu_before_s = time.monotonic(), broker.cpu_s()
    for crowd in crowds:
        crowd.send("go")
    tally = sum_of([crowd.recv() for crowd in crowds])
    cpu_s, elapsed_s = broker.cpu_s() - cpu_before_s, time.monotonic() - started_s
    after = by_process(broker)
    grown = sum(after.values()) - sum(before.values())
    return {
        "clients": count,
        "selectors": processes,
        "connect_s": round(connected_s, 1),
        "connect_cpu_s": round(cpu_connect_s, 1),
        "pss_mib": round(sum(after.values()) / 1024, 1),
        "pss_bytes_per_client": round(grown * 1024 / count),
        "pss_kib_by_process": {name: kib - before.get(name, 0) for name, kib in sorted(after.items())},
        "tcp_bytes_per_client": round((tcp_kib() - tcp_before) * 1024 / count),
        "seconds": round(elapsed_s, 1),
        "heartbeats": tally.heartbeats,
        "heartbeats_per_s": round(tally.heartbeats / elapsed_s),
        "cpu_cores": round(cpu_s / elapsed_s, 3),
        "cpu_us_per_heartbeat": round(cpu_s / max(1, tally.heartbeats) * 1e6, 1),
        "heartbeat_p50_ms": tally.quantile_ms(0.5),
        "heartbeat_p99_ms": tally.quantile_ms(0.99),
        "refused": at_start.refused + tally.refused,
        "lost": at_start.lost + tally.lost,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=90.0, help="of heartbeats, once all are connected")
    arguments = parser.parse_args()
    processes = -(-arguments.clients // (raised_limit() - DESCRIPTORS_KEPT))
    with running("rocketpy", settings={"selectorWorkers": str(processes)}) as broker:
        found = measure(broker, arguments.clients, arguments.seconds, processes)
    print(json.dumps(found, indent=1))
    return int(bool(found["lost"] or found["refused"]))


if __name__ == "__main__":
    sys.exit(main())
