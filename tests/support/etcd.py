"""A real etcd cluster on loopback ports, for tests."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

from tests.support.broker import is_given, port_range
from tests.support.waiting import wait_until

MISSING = "etcd is not installed (Debian: apt install etcd-server)"


def is_installed() -> bool:
    return shutil.which("etcd") is not None


def free_ports(count: int) -> list[int]:
    """Ports that are free now, all at once, so that none is named twice."""
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            port = random.choice(port_range())
            with suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                if not is_given(port):
                    found.append(port)
        return found


@attrs.define(eq=False)
class EtcdCluster:
    """Members by number. `addresses` are the URLs of their client ports."""

    directory: Path
    clients: list[int]
    peers: list[int]
    host: str = "127.0.0.1"
    prefix: list[str] = attrs.field(factory=list)  # of the command: how to run it in another place
    options: dict[str, str] = attrs.field(factory=dict)  # more of them, by name
    account: tuple[str, str] | None = None  # of an administrator, if etcd has accounts
    processes: dict[int, subprocess.Popen[bytes]] = attrs.field(factory=dict)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"http://{self.host}:{port}" for port in self.clients)

    def start(self, member: int) -> None:
        peers = [f"http://{self.host}:{port}" for port in self.peers]
        log = (self.directory / f"{member}.log").open("ab")
        arguments = {
            "name": f"m{member}",
            "data-dir": str(self.directory / f"m{member}"),
            "listen-client-urls": self.addresses[member],
            "advertise-client-urls": self.addresses[member],
            "listen-peer-urls": peers[member],
            "initial-advertise-peer-urls": peers[member],
            "initial-cluster": ",".join(f"m{at}={url}" for at, url in enumerate(peers)),
            "initial-cluster-state": "new",
            "heartbeat-interval": "100",
            "election-timeout": "1000",
            **self.options,
        }
        with log:
            self.processes[member] = subprocess.Popen(
                [*self.prefix, "etcd", *(f"--{name}={value}" for name, value in arguments.items())],
                stdout=log,
                stderr=log,
            )

    def is_healthy(self, member: int) -> bool:
        try:
            with urllib.request.urlopen(f"{self.addresses[member]}/health", timeout=2) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False

    def leader(self) -> int:
        """The number of the member that leads."""
        status = {member: self._status(member) for member in self.processes}
        (leader,) = [at for at, found in status.items() if found["leader"] == found["header"]["member_id"]]
        return leader

    def lead(self, member: int) -> None:
        """Make this member the leader."""
        leader = self.leader()
        if leader != member:
            number = int(self._status(member)["header"]["member_id"])
            self._etcdctl("--endpoints", self.addresses[leader], "move-leader", f"{number:x}")

    def _status(self, member: int) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.addresses[member]}/v3/maintenance/status", b"{}", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def kill(self, member: int) -> None:
        process = self.processes.pop(member)
        process.kill()
        process.wait()

    def save(self, file: Path) -> None:
        """Write a snapshot, as an operator does."""
        self._etcdctl("--endpoints", self.addresses[0], "snapshot", "save", str(file))

    def restore(self, file: Path) -> None:
        """Replace the only member by what a snapshot has. Its name, its addresses and its cluster stay."""
        self.kill(0)
        shutil.rmtree(self.directory / "m0")
        peer = f"http://127.0.0.1:{self.peers[0]}"
        place = {"name": "m0", "data-dir": str(self.directory / "m0"), "initial-cluster": f"m0={peer}"}
        words = [f"--{key}={value}" for key, value in place.items()]
        self._etcdctl("snapshot", "restore", str(file), f"--initial-advertise-peer-urls={peer}", *words)
        self.start(0)
        wait_until(lambda: self.is_healthy(0), "health of etcd after a restore")

    def control(self, *words: str) -> None:
        """Give an order to the first member, as an operator does."""
        self._etcdctl("--endpoints", self.addresses[0], *words)

    def _etcdctl(self, *words: str) -> None:
        environment = {"ETCDCTL_API": "3", "PATH": os.environ["PATH"]}
        subprocess.run(["etcdctl", *words], env=environment, check=True, capture_output=True, timeout=30)


@contextmanager
def etcd_cluster(
    directory: Path,
    members: int = 3,
    *,
    host: str = "127.0.0.1",
    prefix: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> Iterator[EtcdCluster]:
    """Start a cluster; it is healthy when the block begins, and gone when it has ended."""
    ports = free_ports(2 * members)
    cluster = EtcdCluster(directory, ports[:members], ports[members:], host, list(prefix), dict(options or {}))
    try:
        for member in range(members):
            cluster.start(member)
        for member in range(members):
            wait_until(lambda member=member: cluster.is_healthy(member), f"health of etcd member {member}")  # type: ignore[misc]  # bound now
        yield cluster
    finally:
        for member in list(cluster.processes):
            cluster.kill(member)
