"""A broker of its own for a benchmark: name server and broker on free ports of this host, with an empty store."""

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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import attrs

from rocketpy.errors import RocketError

from . import proc
from .cluster import Access, BenchFailed, Cluster, find

HOST = "127.0.0.1"
PORTS = range(12_002, 31_998)
BOOT_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
DISK_FREE_MIN = 0.12  # of the file system; a broker deletes and refuses when there is less


def free_ports(count: int, *, apart: int = 4) -> list[int]:
    """Free ports with room around them: a broker also listens on port - 2 and port + 1. They lie below the range that
    the kernel takes the near ends of connections from."""
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
    """The ends of the logs, for an error message."""
    return "\n".join(
        f"--- {path.name}\n{path.read_text(errors='replace')[-size:]}" for path in sorted(directory.glob("*.log"))
    )


@attrs.define(eq=False)
class OwnBroker:
    """A running name server and broker."""

    process: subprocess.Popen[bytes]
    directory: Path
    name_servers: str

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def cpu_s(self) -> float:
        return proc.cpu_s([self.process.pid])

    def pss_mib(self) -> float:
        return proc.pss_mib([self.process.pid], self.store)

    def guard(self) -> None:
        """Raise BenchFailed: it has ended, or the disk of its store is about to be full."""
        if self.process.poll() is not None:
            last = next(iter(reversed(tail(self.directory).splitlines())), "")
            raise BenchFailed(f"the broker ended with status {self.process.returncode}: {last}")
        usage = shutil.disk_usage(self.directory)
        if usage.free < DISK_FREE_MIN * usage.total:
            raise BenchFailed(
                f"{self.directory}: {usage.free >> 30} of {usage.total >> 30} GiB are free, a broker needs more: "
                "shorten testDurationMinutes, set a producerRate, or name a larger disk with --store"
            )


@contextlib.contextmanager
def own_broker(settings: Mapping[str, str], parent: Path | None, access: Access) -> Iterator[tuple[OwnBroker, Cluster]]:
    """Start a broker with an empty store below `parent` (the directory of temporary files by default); at the end stop
    it and remove the store. `access` says how clients reach it; its name servers are replaced.

    Raises:
        BenchFailed: it does not serve.
    """
    directory = Path(tempfile.mkdtemp(prefix="rocketpy-bench-", dir=parent))
    process = None
    try:
        port, namesrv_port = free_ports(2)
        ports = ("--port", str(port), "--namesrv-port", str(namesrv_port), "--metrics-port", "0")
        properties = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        words = [
            sys.executable,
            "-m",
            "rocketpy",
            "standalone",
            "--store",
            str(directory / "store"),
            *ports,
            *properties,
        ]
        process = start_process(words, directory, "broker.log", PYTHONPATH=python_path())
        broker = OwnBroker(process, directory, f"{HOST}:{namesrv_port}")
        yield broker, _wait_ready(broker, attrs.evolve(access, name_servers=broker.name_servers))
    finally:
        if process is not None:
            stop_process(process)
        shutil.rmtree(directory, ignore_errors=True)


def python_path() -> str:
    """Return the search path with the package that runs now, however it was found."""
    root = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))


def _wait_ready(broker: OwnBroker, access: Access) -> Cluster:
    deadline_s = time.monotonic() + BOOT_TIMEOUT_S
    while True:
        broker.guard()
        try:
            return find(access)
        except (RocketError, OSError) as error:
            if time.monotonic() > deadline_s:
                raise BenchFailed(f"the broker is not ready after {BOOT_TIMEOUT_S:g} s: {error}") from error
        time.sleep(0.1)
