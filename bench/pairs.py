"""A slave beside a broker of `brokers.py`: of the same kind, with an empty store, following until it is stopped."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rocketpy.bench.own_broker import HOST, free_ports, python_path, start_process, tail

from .brokers import (
    BROKER_NAME,
    NO_SETTINGS,
    Broker,
    BrokerFailed,
    java_settings,
    start_java_process,
    work_directory,
    write_java_files,
)
from .control import RequestFailed

GROUP_SETTINGS = {"brokerClusterName": "DefaultCluster", "brokerName": BROKER_NAME}  # of a master that gets a slave
FOLLOW_TIMEOUT_S = 120.0
LOOK_S = 0.005


def _start_java(directory: Path, master: Broker, port: int) -> Broker:
    store = directory / "store"
    own = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"{HOST}:{master.port + 1}"}
    write_java_files(directory, java_settings(store, port, master.namesrv_port) | own)
    return Broker("java", directory, port, master.namesrv_port, [start_java_process(directory, "broker")], store)


def _start_rocketpy(directory: Path, master: Broker, port: int, more: Mapping[str, str]) -> Broker:
    store = directory / "store"
    settings = GROUP_SETTINGS | {
        "brokerRole": "SLAVE",
        "brokerId": "1",
        "brokerIP1": HOST,
        "listenPort": str(port),
        "storePathRootDir": str(store),
        "metricsPort": "0",
        **more,
    }
    words = [sys.executable, "-m", "rocketpy", "broker", "-n", f"{HOST}:{master.namesrv_port}"]
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    process = start_process(words, directory, "rocketpy.log", PYTHONPATH=python_path())
    return Broker("rocketpy", directory, port, master.namesrv_port, [process], store)


@contextlib.contextmanager
def slave_of(master: Broker, parent: Path | None = None, settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[Broker]:
    """Run a slave, stopped and removed at the end. `settings`: more properties, of rocketpy."""
    with work_directory(f"{master.target}-slave", parent) as directory:
        (port,) = free_ports(1)
        if master.target == "java":
            slave = _start_java(directory, master, port)
        else:
            slave = _start_rocketpy(directory, master, port, settings)
        try:
            yield slave
        finally:
            slave.stop()


def extent(broker: Broker) -> tuple[int, int]:
    """Return begin and end of its log, in bytes; (0, 0): no answer, or a fault: Java has one when its tables change."""
    broker.check_alive()
    try:
        return broker.log_extent()
    except (OSError, RequestFailed, KeyError):
        return 0, 0


def wait_until_copied(master: Broker, slave: Broker) -> list[tuple[float, int]]:
    """Wait until the slave has all that the master has now. Times (monotonic, s) and bytes that it had, as they grew.

    Raises:
        BrokerFailed: it has not in time.
    """
    wanted = 0
    seen: list[tuple[float, int]] = []
    deadline_s = time.monotonic() + FOLLOW_TIMEOUT_S
    while time.monotonic() < deadline_s:
        wanted = wanted or extent(master)[1]
        begin, end = extent(slave)
        if end > begin and (not seen or end - begin > seen[-1][1]):
            seen.append((time.monotonic(), end - begin))
        if wanted and end >= wanted:
            return seen
        time.sleep(LOOK_S)
    raise BrokerFailed(f"the slave has no copy up to {wanted} after {FOLLOW_TIMEOUT_S} s\n{tail(slave.directory)}")
