"""`python -m bench.restart`: what a restart costs clients when systemd keeps the ports open.

A broker with a large store is restarted under an open load of single sends, as `systemctl restart` does with
rocketpy-broker.socket: SIGTERM, and the same sockets for the next one. Reported: how long no connection got an answer
(gap), the parts of it (stop, start), refused connections, and whether each acknowledged message is there once.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
from rich.console import Console

from rocketpy.bench.load import Load, Mode, Workload
from rocketpy.bench.own_broker import HOST, free_ports
from tests.support.handed_over import HandedOver, handed_over
from tests.support.pair import NameServer

from . import report
from .brokers import Broker
from .compare import Screen
from .kill import compare
from .scenarios import QUEUES
from .store_questions import fill

TOPIC = "bench_restart"
BEFORE_S, LOAD_S = 3.0, 12.0  # of load before a restart, and altogether
DIAL_TIMEOUT_S = 60.0


@attrs.frozen
class Restart:
    """One restart under load."""

    stop_s: float  # SIGTERM to the end of the process
    start_s: float  # to its ready line
    gap_s: float  # the longest time without any answer


@attrs.define(eq=False)
class Dialling(threading.Thread):
    """Connects to each port again and again; a connection that is refused counts."""

    ports: Sequence[int]
    connections: int = 0
    refused: int = 0
    _over: threading.Event = attrs.field(factory=threading.Event)

    def __attrs_pre_init__(self) -> None:
        super().__init__(name="dialling")

    def run(self) -> None:
        while not self._over.wait(0.002):
            for port in self.ports:
                try:
                    socket.create_connection((HOST, port), timeout=DIAL_TIMEOUT_S).close()
                except ConnectionRefusedError:
                    self.refused += 1
                self.connections += 1

    def end(self) -> None:
        self._over.set()
        self.join()


def restart_once(broker: HandedOver, load: Load) -> tuple[float, float]:
    """Restart it while the load runs. Returns the seconds of stop and start."""
    found: list[float] = []

    def restart() -> None:
        time.sleep(BEFORE_S)
        begun_s = time.monotonic()
        broker.stop()
        stopped_s = time.monotonic()
        broker.start()
        found.extend((stopped_s - begun_s, time.monotonic() - stopped_s))

    thread = threading.Thread(target=restart, name="restart")
    thread.start()
    load.run(LOAD_S)
    thread.join()
    return found[0], found[1]


def measure(directory: Path, gigabytes: float, restarts: int, rate: float, console: Console) -> dict[str, object]:
    """Fill a store, restart the broker, and read back what was acknowledged."""
    port, namesrv_port = free_ports(2)
    namesrv = NameServer(directory / "namesrv", 0, namesrv_port, directory / "namesrv.log", {})
    try:
        namesrv.start()
        with handed_over(directory, port, namesrv_port) as broker:
            asked = Broker("rocketpy", directory, port, namesrv_port, [], broker.store)
            if gigabytes:
                fill(asked, int(gigabytes * 1e9), Screen(console, "rocketpy"))
            asked.create_topic(TOPIC, QUEUES)
            workload = Workload(Mode.SEND, 16, 4, rate=rate, reconnect=True, record_acks=True, timeout_s=30.0)
            dialling = Dialling((port, port - 2, port + 1))
            dialling.start()
            done: list[Restart] = []
            acks = []
            for number in range(restarts):
                console.print(f"restart {number + 1} of {restarts}", highlight=False)
                with Load(workload, host=HOST, port=port, topic=TOPIC, queues=QUEUES) as load:
                    stop_s, start_s = restart_once(broker, load)
                    load.drain()
                    gap_s = load.result(1.0, 0.0).gap_max_ms / 1000
                    acks.append((load.prefix, load.acks()))
                done.append(Restart(round(stop_s, 3), round(start_s, 3), round(gap_s, 3)))
            dialling.end()
            with asked.control() as control:
                control.wait_for_offsets(TOPIC, QUEUES, sum(len(part) for _, part in acks))
                stored = [message for queue_id in range(QUEUES) for message in control.read_queue(TOPIC, queue_id)]
            lost = dict.fromkeys(("missing", "moved", "repeated"), 0)
            for prefix, part in acks:
                verdict = compare(part, stored, prefix)
                lost = {name: count + verdict[name] for name, count in lost.items()}
            log_bytes = sum(path.stat().st_blocks * 512 for path in (broker.store / "commitlog").iterdir())
            return {
                "log_gb": round(log_bytes / 1e9, 2),
                "gap_s": statistics.median(each.gap_s for each in done),
                "gap_max_s": max(each.gap_s for each in done),
                "stop_s": statistics.median(each.stop_s for each in done),
                "start_s": statistics.median(each.start_s for each in done),
                "acknowledged": sum(len(part) for _, part in acks),
                "connections": dialling.connections,
                "refused": dialling.refused,
                **lost,
                "restarts": [attrs.asdict(each) for each in done],
            }
    finally:
        namesrv.kill_all()


def page(found: Mapping[str, Any], restarts: int, rate: float, gap_s: float) -> str:
    """Return what bench/results says of it."""
    rows = [
        report.Row("gap without any answer, median", found["gap_s"], "s", gap_s),
        report.Row("the longest gap", found["gap_max_s"], "s"),
        report.Row("SIGTERM to the end of the process", found["stop_s"], "s"),
        report.Row("exec to the ready line", found["start_s"], "s"),
        report.Row("connections refused", found["refused"], "", 0),
        *(report.Row(f"acknowledged messages {name}", found[name], "", 0) for name in ("missing", "moved", "repeated")),
    ]
    return f"""{report.page_head("Restarts with open ports", "bench.restart")}
The broker's log holds {found["log_gb"]:g} GB. {restarts} restarts, as `systemctl restart` does them with
rocketpy-broker.socket, under {rate:g} sends a second. Altogether {found["acknowledged"]} sends were acknowledged, and
{found["connections"]} connections were opened to the broker's three ports meanwhile. Times are medians.

{report.markdown_table(("figure", "value", "bar", ""), (row.cells for row in rows))}
"""


@click.command()
@click.option("--gigabytes", type=click.FloatRange(0), default=10, show_default=True, help="Size of the store.")
@click.option("--restarts", type=click.IntRange(1, 255), default=5, show_default=True)
@click.option("--rate", type=click.FloatRange(1), default=2_000, show_default=True, help="Sends per second.")
@click.option("--gap", "gap_s", type=float, default=1.0, show_default=True, help="Bar of the median gap, seconds.")
@click.option("--docs", type=click.Path(path_type=Path), help="Also write this page of bench/results.")
@click.option("--strict", is_flag=True, help="A missed bar is a failure.")
def main(gigabytes: float, restarts: int, rate: float, gap_s: float, docs: Path | None, *, strict: bool) -> None:
    """Restart a broker under load; 1 if something is lost or refused."""
    with tempfile.TemporaryDirectory(prefix="bench-restart-") as directory:
        found = measure(Path(directory), gigabytes, restarts, rate, Console(stderr=True))
    print(json.dumps({"command": report.command_of("bench.restart"), "machine": report.machine()} | found, indent=1))
    if docs is not None:
        docs.write_text(page(found, restarts, rate, gap_s), encoding="utf-8")
    is_safe = not (found["refused"] or found["missing"] or found["moved"] or found["repeated"])
    is_met = float(str(found["gap_s"])) <= gap_s
    sys.exit(0 if is_safe and (is_met or not strict) else 1)


if __name__ == "__main__":
    main()
