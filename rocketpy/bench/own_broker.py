"""A broker of its own for a benchmark, on free ports of this host, with an empty store.

rocketpy with a name server, on request with a certificate and accounts; or a neighbour, whose server the machine has.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

import attrs

from rocketpy import aio
from rocketpy.client import TlsOptions
from rocketpy.errors import RocketError
from rocketpy.remoting.signature import Credentials

from . import proc
from .cluster import Access, BenchFailed, Cluster, find
from .scenario import Scenario

HOST = "127.0.0.1"
T = TypeVar("T")
PORTS = range(27_002, 31_998)  # the tests that CI runs beside benchmarks have lower ones
BOOT_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
DISK_FREE_MIN = 0.12  # of the file system; a broker deletes and refuses when there is less
TLS = {"tls.server.mode": "permissive", "tls.test.mode.enable": "true"}
CREDENTIALS, BROKER_CREDENTIALS = Credentials("rocketpy-bench", "secret-of-bench"), ("bench-broker", "secret-of-broker")


def free_ports(count: int, *, apart: int = 4) -> list[int]:
    """Return free ports with room around them: a broker also listens on port - 2 and port + 1. They lie below the range
    that the kernel takes the near ends of connections from."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = random.choice(PORTS)
            try:
                for near in range(port - 2, port + 3):
                    stack.enter_context(socket.socket()).bind((HOST, near))
            except OSError:
                continue
            if all(abs(port - other) > apart for other in found):
                found.append(port)
    return found


def start_process(command: Sequence[str], directory: Path, log: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own; it writes to the file `log` of its directory."""
    output: IO[bytes]
    with (directory / log).open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
            start_new_session=True,
        )


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """Stop with SIGTERM, wait, and kill the tree of it only then."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        for pid in proc.tree(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def tail(directory: Path, size: int = 2000) -> str:
    """Return the ends of the logs, for an error message."""
    return "\n".join(
        f"--- {path.name}\n{path.read_text(errors='replace')[-size:]}" for path in sorted(directory.glob("*.log"))
    )


@attrs.define(eq=False)
class OwnBroker:
    """A running server: rocketpy's name server and broker, or a neighbour's."""

    process: subprocess.Popen[bytes]
    directory: Path
    address: str  # of the name server, or of the neighbour
    start: Callable[[], subprocess.Popen[bytes]]  # it again, on the same store

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def cpu_s(self) -> float:
        return proc.cpu_s([self.process.pid])

    def pss_mib(self) -> float:
        return proc.pss_mib([self.process.pid], self.store)

    def disk_reads(self) -> tuple[int, int]:
        """Return bytes that its processes have read from disks, and page faults that waited for one."""
        return proc.read_bytes([self.process.pid]), proc.major_faults([self.process.pid])

    def restart_after(self, work: Callable[[], None]) -> None:
        """Stop it, do some work on its store, and start it again."""
        stop_process(self.process)
        work()
        self.process = self.start()

    def kill_and_restart(self) -> None:
        """Kill every process with SIGKILL at once, and start it again once they are gone."""
        pids = proc.tree(self.process.pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        while any(proc.is_running(pid) for pid in pids):
            time.sleep(0.001)
        self.process = self.start()

    def guard(self) -> None:
        """Raise BenchFailed: it has ended, or the disk of its store is about to be full."""
        if self.process.poll() is not None:
            last = next(iter(reversed((self.directory / "server.log").read_text(errors="replace").splitlines())), "")
            raise BenchFailed(f"the broker ended with status {self.process.returncode}: {last}")
        usage = shutil.disk_usage(self.directory)
        if usage.free < DISK_FREE_MIN * usage.total:
            raise BenchFailed(
                f"{self.directory}: {usage.free >> 30} of {usage.total >> 30} GiB are free, a broker needs "
                f"{DISK_FREE_MIN:.0%}: free some, shorten testDurationMinutes, set a producerRate, or name a larger "
                "disk with --store"
            )


@contextlib.contextmanager
def server(
    command: Callable[[Path, int], Sequence[str]], parent: Path | None, **environment: str
) -> Iterator[OwnBroker]:
    """Start a server in a directory of its own below `parent` (the directory of temporary files by default); at the end
    stop it and remove the directory.

    Args:
        command: of the directory and a free port, from which two to each side are free as well.
    """
    directory = Path(tempfile.mkdtemp(prefix="rocketpy-bench-", dir=parent))
    broker = None
    try:
        (port,) = free_ports(1)
        words = command(directory, port)

        def start() -> subprocess.Popen[bytes]:
            return start_process(words, directory, "server.log", **environment)

        broker = OwnBroker(start(), directory, f"{HOST}:{port}", start)
        yield broker
    finally:
        if broker is not None:
            stop_process(broker.process)
        shutil.rmtree(directory, ignore_errors=True)


def write_accounts(directory: Path) -> dict[str, str]:
    """Write the accounts of the benchmark and of the broker itself; returns the properties of a broker with them."""
    name, secret = BROKER_CREDENTIALS
    accounts = (
        f"accounts:\n- {{accessKey: {CREDENTIALS.access_key}, secretKey: {CREDENTIALS.secret_key}, admin: true}}\n"
        f"- {{accessKey: {name}, secretKey: {secret}}}\n"
    )
    own = directory / "broker-account.yml"
    for path, text in (
        (directory / "conf" / "plain_acl.yml", accounts),
        (own, f"accessKey: {name}\nsecretKey: {secret}\n"),
    ):
        path.parent.mkdir(exist_ok=True)
        path.touch(0o600)
        path.write_text(text)
    return {
        "aclEnable": "true",
        "rocketmqHome": str(directory),
        "aclBrokerAccounts": name,
        "aclCredentialsFile": str(own),
    }


@contextlib.contextmanager
def own_broker(scenario: Scenario, parent: Path | None, access: Access) -> Iterator[tuple[OwnBroker, Cluster]]:
    """Start rocketpy with the properties of a scenario, and slaves of it. `access` says how clients reach it, unless
    the scenario has TLS or accounts; its name servers are replaced.

    Raises:
        BenchFailed: it does not serve.
    """
    settings, slaves = scenario.broker, scenario.slaves

    def command(directory: Path, port: int) -> list[str]:
        (broker_port,) = free_ports(1)
        ports = ("--port", str(broker_port), "--namesrv-port", str(port), "--metrics-port", "0")
        guard = (TLS if scenario.tls else {}) | (write_accounts(directory) if scenario.accounts else {})
        properties = [word for name, value in {**guard, **settings}.items() for word in ("--set", f"{name}={value}")]
        words = (sys.executable, "-m", "rocketpy", "standalone", "--store", str(directory / "store"))
        return [*words, *ports, *properties]

    if scenario.tls:
        access = attrs.evolve(access, tls=TlsOptions(verify=False))
    if scenario.accounts:
        access = attrs.evolve(access, credentials=CREDENTIALS)
    with server(command, parent, PYTHONPATH=python_path()) as broker:
        reached = attrs.evolve(access, name_servers=broker.address)
        cluster = wait_ready(broker, lambda: find(reached))
        with contextlib.ExitStack() as stack:
            for number in range(1, slaves + 1):
                stack.enter_context(_slave(broker, cluster, settings, number))
            if slaves:
                wait_ready(broker, lambda: aio.run(cluster.check_slaves, slaves))
            yield broker, cluster


@contextlib.contextmanager
def _slave(broker: OwnBroker, cluster: Cluster, settings: Mapping[str, str], number: int) -> Iterator[None]:
    """Start a slave of the broker, beside its store."""
    (port,) = free_ports(1)
    properties = dict(settings) | {
        "brokerRole": "SLAVE",
        "brokerId": str(number),
        "brokerName": next(iter(cluster.masters)),
        "brokerClusterName": cluster.name,
        "namesrvAddr": broker.address,
        "storePathRootDir": str(broker.directory / f"slave-{number}"),
        "listenPort": str(port),
        "bindAddress": HOST,
        "metricsPort": "0",
    }
    words = [word for name, value in properties.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "rocketpy", "broker", *words]
    process = start_process(command, broker.directory, f"slave-{number}.log", PYTHONPATH=python_path())
    try:
        yield
    finally:
        stop_process(process)


def wait_ready(broker: OwnBroker, ask: Callable[[], T]) -> T:
    """Repeat `ask` until it succeeds; returns its answer.

    Raises:
        BenchFailed: the server ended, or is not there after BOOT_TIMEOUT_S.
    """
    deadline_s = time.monotonic() + BOOT_TIMEOUT_S
    while True:
        broker.guard()
        try:
            return ask()
        except (RocketError, OSError) as error:
            if time.monotonic() > deadline_s:
                raise BenchFailed(f"the broker is not ready after {BOOT_TIMEOUT_S:g} s: {error}") from error
        time.sleep(0.1)


def python_path() -> str:
    """Return the search path with the package that runs now, however it was found."""
    root = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
