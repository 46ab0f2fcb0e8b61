"""A real `rocketpy standalone` on free ports with a store of its own, for tests that want the whole thing."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import attrs

from tests.support import preloaded

# A process that ended by itself, or an exception that nobody expected. The supervisor replaces the process and clients
# try again, so nothing else shows it.
CRASH = re.compile(r"was killed by SIG(?!KILL)|crashed while it served|Traceback \(most recent")
START_TIMEOUT_S = 60.0  # generous: the machine may be busy; nothing is measured here
STOP_TIMEOUT_S = 60.0
DISK = Path(__file__).parents[2] / "build"
PORT_MIN, PORT_MAX = 12_000, 32_000  # net.ipv4.ip_local_port_range begins at 32768


WORKER_MAX = 8  # workers of pytest-xdist; each has a part of the ports
FIRST_WORKER = "ROCKETPY_FIRST_WORKER"  # .ci/run: the part of worker 0, where two runs of pytest are beside each other
APART = 5  # a broker listens on port - 2 to port + 1, its name server on port + 2
_given: deque[int] = deque(maxlen=50)  # ports that were named last: who listens there may not have begun to


def port_range() -> range:
    """The ports of this process: with pytest-xdist, of its worker, so that no two workers choose the same one."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) + int(os.environ.get(FIRST_WORKER, "0"))
    worker %= WORKER_MAX
    count = (PORT_MAX - PORT_MIN) // WORKER_MAX
    return range(PORT_MIN + worker * count, PORT_MIN + (worker + 1) * count)


def is_given(port: int) -> bool:
    """Whether the port, or one beside it, was named not long ago; if not, it is from now on."""
    if any(abs(port - other) < APART for other in _given):
        return True
    _given.append(port)
    return False


def free_ports() -> tuple[int, int]:
    """(broker, name server): free now, as are broker - 2 and broker + 1.

    Below the range that the kernel takes the near ends of connections from: a port out of that one may be taken by a
    client of anybody's between this look and the start, or between a stop and the next start.
    """
    while True:
        port = random.choice(port_range()[2:-2])
        with contextlib.ExitStack() as stack:
            try:
                for number in (port - 2, port, port + 1, port + 2):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", number))
            except OSError:
                continue
            if not is_given(port):
                return port, port + 2


@attrs.define
class RunningBroker:
    """The process tree of one `rocketpy standalone`."""

    START_S: ClassVar[float] = START_TIMEOUT_S

    store: Path
    port: int
    namesrv_port: int
    log: Path
    settings: dict[str, str]
    process: preloaded.Process | None = None
    is_new: bool = attrs.field(default=False, kw_only=True)  # an interpreter of its own (preloaded.py)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.namesrv_port}"

    def command(self) -> list[str]:
        words = [*preloaded.COMMAND, "standalone", "--store", str(self.store), "--port", str(self.port)]
        words += ["--namesrv-port", str(self.namesrv_port), "--metrics-port", "0"]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        return words

    def start(self) -> None:
        """Start it and wait until the broker says that it is ready."""
        with self.log.open("ab") as log:
            start = log.tell()
            self.process = preloaded.start(self.command(), log, anew=self.is_new)
        deadline = time.monotonic() + self.START_S
        while b"boot success" not in self.log.read_bytes()[start:]:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"rocketpy did not start:\n{self.text()}")
            time.sleep(0.02)

    def stop(self) -> int:
        """Stop it as an operator would; its exit status."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise AssertionError(f"rocketpy did not stop:\n{self.text()}") from None
        finally:
            self.process = None

    def kill_all(self) -> None:
        """SIGKILL to every process of the tree at once: the whole broker dies here."""
        if self.process is None:
            return
        for pid in [self.process.pid, *self.workers().values()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(STOP_TIMEOUT_S)
        self.process = None

    def workers(self) -> dict[str, int]:
        """Worker name ("send", "selector-0", ...) to pid, as the process titles have it."""
        assert self.process is not None
        found = {}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread, or a worker, has just ended
                for pid in (task / "children").read_text().split():
                    found[Path(f"/proc/{pid}/comm").read_text().strip()] = int(pid)
        return found

    def kill_worker(self, name: str) -> int:
        pid = self.workers()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def check_crashes(self) -> None:
        """At the end of a test.

        Raises:
            AssertionError: a process has crashed that the test did not kill.
        """
        text = self.text()
        found = CRASH.search(text)
        if found is not None:
            raise AssertionError(f"a crash in the log:\n{text[max(0, found.start() - 1000) : found.end() + 3000]}")

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def disk_directory() -> tempfile.TemporaryDirectory[str]:
    """A directory on the disk, for tests that memory (tmpfs) would disturb: the pages of its files are memory, and a
    write through a mapping does not touch the file's time."""
    DISK.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(dir=DISK)


@contextlib.contextmanager
def running_broker(
    settings: dict[str, str] | None = None, *, store: Path | None = None, is_new: bool = False
) -> Iterator[RunningBroker]:
    """A started broker with small files unless told otherwise; stopped (or killed) at the end.

    Args:
        is_new: it has an interpreter of its own, for tests that look at its memory.
    """
    with tempfile.TemporaryDirectory(prefix="rocketpy-test-") as directory:
        port, namesrv_port = free_ports()
        small = {"mappedFileSizeCommitLog": str(64 << 20), "maxHashSlotNum": "5000", "maxIndexNum": "20000"}
        broker = RunningBroker(
            *(store or Path(directory) / "store", port, namesrv_port, Path(directory) / "log"),
            small | (settings or {}),
            is_new=is_new,
        )
        broker.start()
        try:
            yield broker
            broker.check_crashes()
        finally:
            broker.kill_all()
