"""Each sample cluster of deploy/clusters runs on one machine: every broker is in the cluster with its role, masters
take messages, slaves get them; Ctrl-C stops all, and so does the end of any of them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.bodies.route import ClusterInfo
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import port_range
from tests.support.pair import log_hashes
from tests.support.wire import Wire, send_request, until

CLUSTERS = Path(__file__).parents[2] / "deploy" / "clusters"
SMALL = {
    "maxMessageSize": "65528",
    "mappedFileSizeCommitLog": str(1 << 20),
    "metricsPort": "0",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
STEP = 10
ENDS_WITHIN_S = 90.0
MODES = {
    "1m": ["broker-a"],
    "2m-noslave": ["broker-a", "broker-b"],
    "2m-2s-async": ["broker-a", "broker-a-slave", "broker-b", "broker-b-slave"],
    "2m-2s-sync": ["broker-a", "broker-a-slave", "broker-b", "broker-b-slave"],
}
LONG = {"2m-noslave": pytest.mark.long, "2m-2s-async": pytest.mark.long}


def free_base() -> int:
    """A port with all that four brokers and a name server need, free now."""
    for base in port_range()[2 + random.randrange(50) * 2 * STEP : -5 * STEP : 2 * STEP]:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for number in range(base - 2, base + 4 * STEP + 1):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", number))
            return base
    raise AssertionError("no free ports")


def command(mode: str, directory: Path, base: int) -> list[str]:
    words = [sys.executable, "-m", "rocketpy", "cluster", str(CLUSTERS / mode), "--store", str(directory)]
    words += ["--port", str(base), "--namesrv-port", str(base + 4 * STEP)]
    for key, value in SMALL.items():
        words += ["--set", f"{key}={value}"]
    return words


@attrs.frozen
class Running:
    process: subprocess.Popen[bytes]
    ports: dict[str, int]  # by file
    namesrv_port: int
    directory: Path
    output: Path

    def info(self) -> dict[str, dict[int, str]]:
        """Addresses by broker name and id, as the name server has them."""
        with Wire.open(self.namesrv_port) as wire:
            answer = wire.ask(RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO))
        table = ClusterInfo.decode(answer.body or b"{}").broker_addr_table
        return {name: dict(data.broker_addrs) for name, data in table.items()}


@contextlib.contextmanager
def running(mode: str, directory: Path) -> Iterator[Running]:
    """The cluster, when its brokers are ready; killed at the end."""
    base = free_base()
    output = directory / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(command(mode, directory, base), stdout=out, stderr=out)
    ports = {name: base + STEP * number for number, name in enumerate(MODES[mode])}
    found = Running(process, ports, base + 4 * STEP, directory, output)
    try:
        until(lambda: process.poll() is not None or b"Ctrl-C" in output.read_bytes(), "the cluster to be ready", 300.0)
        assert process.poll() is None, output.read_text()
        yield found
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(ENDS_WITHIN_S)


def is_refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("mode", [pytest.param(mode, marks=LONG.get(mode, ())) for mode in MODES])
def test_a_mode(mode: str, tmp_path: Path) -> None:
    """Holds: cluster, modes."""
    with running(mode, tmp_path) as cluster:
        expected: dict[str, dict[int, str]] = {}
        for file, port in cluster.ports.items():
            name, is_slave = file.removesuffix("-slave"), file.endswith("-slave")
            expected.setdefault(name, {})[int(is_slave)] = f"127.0.0.1:{port}"
            assert str(port) in cluster.output.read_text()
        until(lambda: cluster.info() == expected, "every broker to be registered")
        for file, port in cluster.ports.items():
            with Wire.open(port) as wire:
                request = send_request("Sample", file.encode())
                if file.endswith("-slave"):
                    assert wire.ask(request).code == ResponseCode.SERVICE_NOT_AVAILABLE
                else:  # until a synchronous master has its slave
                    until(lambda: wire.ask(request).code == ResponseCode.SUCCESS, f"{file} to take messages")  # noqa: B023
        for file in cluster.ports:
            if file.endswith("-slave"):
                stores = tmp_path / file.removesuffix("-slave"), tmp_path / file
                until(lambda: log_hashes(stores[0]) == log_hashes(stores[1]) != {}, f"{file} to have the log")  # noqa: B023
        cluster.process.send_signal(signal.SIGINT)
        assert cluster.process.wait(ENDS_WITHIN_S) == 0, cluster.output.read_text()
        assert all(is_refused(port) for port in [*cluster.ports.values(), cluster.namesrv_port])
        assert not list(tmp_path.glob("*/abort"))


def test_the_end_of_one_ends_all(tmp_path: Path) -> None:
    with running("2m-noslave", tmp_path) as cluster:
        children = Path(f"/proc/{cluster.process.pid}/task/{cluster.process.pid}/children").read_text().split()
        os.kill(int(children[-1]), signal.SIGTERM)
        assert cluster.process.wait(ENDS_WITHIN_S) == 1
        assert "broker-b ended; stopping the others" in cluster.output.read_text()
        assert all(is_refused(port) for port in [*cluster.ports.values(), cluster.namesrv_port])


def test_a_port_in_use_is_named_and_nothing_stays(tmp_path: Path) -> None:
    base = free_base()
    with socket.create_server(("127.0.0.1", base + STEP)):
        ended = subprocess.run(
            command("2m-noslave", tmp_path, base), capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=False
        )
    assert ended.returncode == 1 and "broker-b did not start" in ended.stderr and str(base + STEP) in ended.stderr
    assert "Traceback" not in ended.stderr and is_refused(base) and is_refused(base + 4 * STEP)
