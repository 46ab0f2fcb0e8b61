"""Commands of rocketpy in a process that has imported everything before: most of what a start costs is imports.

A broker takes 0.7 s of a processor until it is ready, 0.5 of it for imports, and each target starts some hundred. In
those that CI runs, one process for each worker of pytest-xdist imports the modules of the servers once, and a start is
a fork of it, which runs `rocketpy` with arguments, environment, directory, session and files of its own. `make test-ha`
and pytest alone start a new interpreter each time. So do always the tests of `mqbroker` and its like, of clusters and
of help, a half of the deaths of whole brokers, and the tests of memory: a fork shares pages with its parent.

A `Preloaded` is used like a subprocess.Popen. Its pid stays taken until its exit status has been read, as with that.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.support.waiting import is_readable

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "rocketpy"]
VARIABLE = "ROCKETPY_PRELOADED"  # 1: forks; the Makefile sets it
# What an interpreter reads at its start. A fork has that of its parent.
OF_INTERPRETERS = ("PYTHON", "LC_")
# What servers and tools import. A module that is missing here is imported by each start.
MODULES = (
    "rocketpy.native.core",
    "rocketpy.cli.main",
    "rocketpy.cli.command_line",
    "rocketpy.cli.doctor",
    "rich.progress",
    "rocketpy.admin.cli",
    "rocketpy.admin.admin",
    "rocketpy.admin.output",
    "rocketpy.processes.boot.broker",
    "rocketpy.processes.boot.namesrv",
    "rocketpy.processes.boot.standalone",
    "rocketpy.processes.boot.worker_list",
    "rocketpy.processes.workers.replicator",
    "rocketpy.processes.workers.slave",
    "rocketpy.metrics.collector",
    "rocketpy.metrics.endpoint",
    "rocketpy.filter.grammar",
    "rocketpy.filter.program",
    "rocketpy.tls",
)
REQUEST_BYTES_MAX = 1 << 17
FILES = 3  # that come with a request: standard output, standard error, the connection to the owner
STOP_TIMEOUT_S = 60.0


# --- in the process that is forked ------------------------------------------------------------------------------------


class Forks:
    """The forks that have not been reaped. Each has a connection to its owner: pid and status go to the owner, and
    a byte comes back when the process may be reaped."""

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self._poller = select.poll()
        self._poller.register(door, select.POLLIN)
        self._running: dict[int, tuple[int, int]] = {}  # descriptor of a process: its pid, the connection to its owner
        self._ended: dict[int, tuple[int, int]] = {}  # connection: descriptor of the process, pid

    def serve(self) -> tuple[dict[str, Any], list[int]]:
        """Fork for each request until the other end of the door is closed. Returns in the forks, with the request."""
        while True:
            for descriptor, _ in self._poller.poll():
                if descriptor in self._running:
                    self._tell(descriptor)
                elif descriptor in self._ended:
                    self._reap(descriptor)
                else:
                    data, files, _, _ = socket.recv_fds(self._door, REQUEST_BYTES_MAX, FILES)
                    if not data:
                        os._exit(0)
                    pid = os.fork()
                    if pid == 0:
                        return json.loads(data), files
                    self._enter(pid, files)

    def _enter(self, pid: int, files: Sequence[int]) -> None:
        *outputs, owner = files
        for file in outputs:
            os.close(file)
        process = os.pidfd_open(pid)
        self._running[process] = pid, owner
        self._poller.register(process, select.POLLIN)

    def _tell(self, process: int) -> None:
        """Tell the owner that the process has ended."""
        self._poller.unregister(process)
        pid, owner = self._running.pop(process)
        found = os.waitid(os.P_PIDFD, process, os.WEXITED | os.WNOWAIT)
        assert found is not None
        self._ended[owner] = process, pid
        self._poller.register(owner, select.POLLIN)
        with contextlib.suppress(BrokenPipeError):  # nobody asks for the status
            os.write(owner, b"%d" % (found.si_status if found.si_code == os.CLD_EXITED else -found.si_status))

    def _reap(self, owner: int) -> None:
        """The owner has the status, or is gone."""
        self._poller.unregister(owner)
        process, pid = self._ended.pop(owner)
        with contextlib.suppress(ConnectionResetError):
            os.read(owner, 1)  # unread, it would reset the connection
        os.waitpid(pid, 0)
        os.close(process)
        os.close(owner)


def become(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """In a fork: take over what the request says, and close all else."""
    os.setsid()
    for number, file in enumerate(files[:-1], 1):
        os.dup2(file, number)
    os.write(files[-1], b"%d" % os.getpid())
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["directory"])
    if request["environment"] != dict(os.environ):
        os.environ.clear()
        os.environ.update(request["environment"])
    sys.orig_argv = [*request["words"]]  # a broker may execute itself anew
    sys.argv = [str(ROOT / "rocketpy/__main__.py"), *request["words"][len(COMMAND) :]]


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in MODULES:
        importlib.import_module(name)
    door = socket.socket(fileno=int(sys.argv[1]))
    request, files = Forks(door).serve()
    door.detach()  # the descriptor is closed with all others
    become(request, files)
    importlib.import_module("rocketpy.cli.main").rocketpy()


# --- in the process of the tests --------------------------------------------------------------------------------------


@functools.cache
def door() -> socket.socket:
    """Return the connection to the process that is forked; the first call starts it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        words = [sys.executable, "-m", __name__, str(theirs.fileno())]
        process = subprocess.Popen(words, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def close() -> None:
        ours.close()
        process.wait(STOP_TIMEOUT_S)

    atexit.register(close)
    return ours


class Preloaded:
    """A process in a session of its own, with the interface of subprocess.Popen.

    Args:
        words: the command, which begins with COMMAND.
        env: all of its environment.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        stdout: IO[bytes],
        stderr: IO[bytes],
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self.returncode: int | None = None
        self._parent, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"words": words, "environment": dict(env), "directory": os.getcwd()}
        with theirs:
            files = [stdout.fileno(), stderr.fileno(), theirs.fileno()]
            socket.send_fds(door(), [json.dumps(request).encode()], files)
        self.pid = self._number()

    def __del__(self) -> None:
        self._parent.close()

    def _number(self) -> int:
        data = self._parent.recv(16)
        assert data, "the process that is forked has ended"
        return int(data)

    def poll(self) -> int | None:
        if self.returncode is None and is_readable(self._parent.fileno(), 0):
            self.returncode = self._number()
            self._parent.send(b".")
            self._parent.recv(1)  # the end: it is reaped
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises: subprocess.TimeoutExpired."""
        if self.returncode is None and not is_readable(self._parent.fileno(), timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = Preloaded | subprocess.Popen[bytes]


def is_forked(words: Sequence[str], env: Mapping[str, str] = os.environ) -> bool:
    """Whether the command is one of rocketpy that a fork can run, and forks are asked for."""

    def of_interpreters(environment: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in environment.items() if key.startswith(OF_INTERPRETERS)}

    if os.environ.get(VARIABLE) != "1" or [*words[: len(COMMAND)]] != COMMAND:
        return False
    return env is os.environ or of_interpreters(env).items() <= of_interpreters(os.environ).items()


def start(words: Sequence[str], log: IO[bytes], *, anew: bool = False) -> Process:
    """Start a command with its output in `log`, in a session of its own.

    Args:
        anew: in a new interpreter, whatever the target.
    """
    if is_forked(words) and not anew:
        return Preloaded(words, stdout=log, stderr=log)
    return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)


def run(
    words: Sequence[str], *, timeout: float, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as subprocess.run does with captured text.

    Raises: subprocess.TimeoutExpired; the process is killed then.
    """
    if not is_forked(words, env):
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, env=env, check=False
        )
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = Preloaded(words, stdout=stdout, stderr=stderr, env=env)
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
            process.wait()
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(words, status, *texts)


if __name__ == "__main__":
    main()
