"""`python -m bench.transactions`: transactions of rocketpy and of the Java broker, in turn.

Two questions. How many transactions per second pass from half message over commit to the consumer, on 16 connections?
How much of a core do ten thousand open half messages cost, whose producer answers nothing?
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections import defaultdict
from pathlib import Path

import attrs
import click

from rocketpy.bench.encoding import PRODUCER_GROUP, frame
from rocketpy.bench.load import Load, Mode, Workload
from rocketpy.bench.own_broker import HOST

from . import report
from .brokers import TARGETS, Broker, running

TOPIC, QUEUES = "bench_transactions", 16  # the consumer holds a pull per queue
IN_FLIGHT = (1, 16)  # per connection
CONNECTIONS = 16
WARM_UP_S = {"java": 12.0, "rocketpy": 3.0}
OPEN, CHECK_INTERVAL_S, ROUNDS = 10_000, 60, 1
RATIO_BAR, CPU_BAR_PERCENT = 3.0, 5.0
SETTINGS = {"transactionCheckMax": "100000", "transactionTimeOut": "1000"}


@attrs.frozen
class Figures:
    """Of one run: transactions per second that the consumer received, their latency, the broker's CPU for each."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    driver_percent: float  # of a core: taken by the load itself
    errors: dict[str, int]


def open_load(broker: Broker, in_flight: int) -> Load:
    with broker.control() as control:
        offsets = control.max_offsets(TOPIC, QUEUES)
    workload = Workload(Mode.END_TO_END, CONNECTIONS, in_flight, in_transactions=True)
    return Load(
        workload,
        host=HOST,
        port=broker.port,
        topic=TOPIC,
        queues=QUEUES,
        offsets=offsets,
    )


def measure(broker: Broker, in_flight: int, seconds: float) -> Figures:
    with open_load(broker, in_flight) as load:
        load.run(seconds / 4)
        before_s = broker.cpu_s()
        result = load.measure(seconds)
        received, cpu_s = load.received(), broker.cpu_s() - before_s
        load.drain()
    broker.check_alive()
    assert result.end_to_end_us is not None
    latency = result.end_to_end_us
    return Figures(
        round(received / result.seconds, 1),
        round(latency.p50 / 1000, 3),
        round(latency.p99 / 1000, 3),
        round(cpu_s * 1e6 / max(1, received), 1),
        round(result.driver_cpu_s / result.seconds * 100, 1),
        result.errors,
    )


class SilentProducer:
    """Is in the group, reads checks, and answers none."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port))
        body = {"clientID": "silent", "producerDataSet": [{"groupName": PRODUCER_GROUP}], "consumerDataSet": []}
        self._heartbeat = frame(34, {}, json.dumps(body).encode())
        self.received = 0
        self.beat()
        threading.Thread(target=self._read, daemon=True).start()

    def beat(self) -> None:
        self._socket.sendall(self._heartbeat)

    def _read(self) -> None:
        while data := self._socket.recv(1 << 20):
            self.received += len(data)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)


def open_halves(broker: Broker) -> tuple[float, int]:
    """Return (percent of a core, bytes of checks) while OPEN half messages are open, over whole rounds of checks."""
    workload = Workload(Mode.SEND, CONNECTIONS, 4, 1024, requests_max=OPEN, in_transactions=True, commits=False)
    load = Load(workload, host=HOST, port=broker.port, topic=TOPIC, queues=QUEUES)
    with load:
        load.run(60)
    producer = SilentProducer(broker.port)
    time.sleep(CHECK_INTERVAL_S / 2)  # the broker has calmed down
    before_s, begin_s, begin_bytes = broker.cpu_s(), time.monotonic(), producer.received
    for _ in range(ROUNDS * CHECK_INTERVAL_S // 20):
        time.sleep(20)
        producer.beat()
    percent = (broker.cpu_s() - before_s) / (time.monotonic() - begin_s) * 100
    checks = producer.received - begin_bytes
    producer.close()
    return round(percent, 2), checks


def idle_percent(broker: Broker, seconds: float = 20.0) -> float:
    before_s = broker.cpu_s()
    time.sleep(seconds)
    return round((broker.cpu_s() - before_s) / seconds * 100, 2)


def rows(found: dict[tuple[str, int], list[Figures]]) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = []
    for in_flight in IN_FLIGHT:
        ours, java = found["rocketpy", in_flight], found["java", in_flight]
        for metric in ("per_s", "p50_ms", "p99_ms", "cpu_us", "driver_percent"):
            values = report.median_of(ours, metric), report.median_of(java, metric)
            bar = f"at least {RATIO_BAR:g}" if metric == "per_s" and in_flight == 1 else ""
            ratio = values[0] / max(values[1], 1e-9)
            holds = "" if not bar else "holds" if ratio >= RATIO_BAR else "missed"
            name = f"{CONNECTIONS} connections, {in_flight} in flight"
            table.append((name, metric, f"{values[0]:g}", f"{values[1]:g}", f"{ratio:.2f}", bar, holds))
    return table


@click.command()
@click.option("--seconds", default=8.0, help="of each measurement")
@click.option("--repeat", default=3, help="turns of each broker")
@click.option("--open/--no-open", "with_open", default=True, help="measure open half messages, too")
@click.option("--docs", type=click.Path(path_type=Path), help="also write this page of bench/results")
def main(seconds: float, repeat: int, with_open: bool, docs: Path | None) -> None:
    """Compare transactions of both brokers, in turn."""
    found: dict[tuple[str, int], list[Figures]] = defaultdict(list)
    load_average = os.getloadavg()[0]
    for turn in range(repeat):
        for target in TARGETS if turn % 2 == 0 else TARGETS[::-1]:
            with running(target) as broker:
                broker.create_topic(TOPIC, QUEUES)
                with open_load(broker, IN_FLIGHT[-1]) as load:
                    load.run(WARM_UP_S[target])
                    load.drain()
                for in_flight in IN_FLIGHT:
                    figures = measure(broker, in_flight, seconds)
                    found[target, in_flight].append(figures)
                    click.echo(f"turn {turn} {target} {in_flight}: {figures}")
    table = rows(found)
    for line in table:
        click.echo(" | ".join(line))
    cost = ""
    if with_open:
        with running("rocketpy", settings=SETTINGS) as broker:
            broker.create_topic(TOPIC, QUEUES)
            idle = idle_percent(broker)
            percent, checks = open_halves(broker)
        holds = "holds" if percent < CPU_BAR_PERCENT and checks else "missed"
        cost = (
            f"{OPEN} open half messages, each asked about every {CHECK_INTERVAL_S} s: {percent} % of a core "
            f"({idle} % when idle), {checks} bytes of checks; below {CPU_BAR_PERCENT:g} %: {holds}."
        )
        click.echo(cost)
    if docs is not None:
        write_page(docs, table, cost, repeat, seconds, load_average)


def write_page(
    path: Path, table: list[tuple[str, ...]], cost: str, repeat: int, seconds: float, load_average: float
) -> None:
    headings = ("load", "metric", "rocketpy", "Java 4.9.7", "ratio", "bar", "")
    path.write_text(
        f"""{report.page_head("Transactions", "bench.transactions")}
The load generator shares the cores. Both brokers flush asynchronously; Java has a heap of 1 GB. Medians of {repeat}
turns of {seconds:g} s. Load average before the run: {load_average:.1f}.

Each producer connection sends a half message of 1 KiB and commits it (one-way, as official clients do) when it is
acknowledged. One consumer follows all queues by long polling. `per_s` counts messages that it received; latency is from
half message to consumer.

{report.markdown_table(headings, iter(table))}

{cost}
"""
    )


if __name__ == "__main__":
    main()
