"""A name server or a broker as a child of a command: it is started, awaited until it serves, and stopped.

Its log goes to a file, to which a later start appends.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from rocketpy.errors import ConfigError

START_S, STOP_S = 60.0, 60.0
LOOK_S = 0.02
READY = b"boot success"  # in the ready lines of name servers and brokers


@attrs.frozen(eq=False)
class ChildServer:
    """A process tree of `rocketpy`, in a session of its own: Ctrl-C reaches only the command, which stops it."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    _log_begin: int

    @classmethod
    def started(cls, name: str, words: Sequence[str], log: Path) -> ChildServer:
        """Start `rocketpy` with these arguments.

        Raises:
            ConfigError: its log cannot be written.
        """
        command = [sys.executable, "-m", "rocketpy", *words]
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            output = log.open("ab")
        except OSError as exc:
            raise ConfigError(f"{log} cannot be written: {exc.strerror}; choose another directory") from exc
        with output:
            begin = output.tell()
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        return cls(name, log, process, begin)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait_until_ready(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Wait until it serves, or until the command is to stop.

        Raises:
            ConfigError: it has ended, or does not serve after START_S.
        """
        deadline_s = time.monotonic() + START_S
        while not is_stopping():
            said = self.log.read_bytes()[self._log_begin :]
            if READY in said:
                return
            if self.has_ended or time.monotonic() > deadline_s:
                last = said.decode(errors="replace").strip().rpartition("\n")[2]
                raise ConfigError(f"{self.name} did not start: {last or 'see its log'} ({self.log})")
            time.sleep(LOOK_S)


def stop_all(servers: Sequence[ChildServer]) -> None:
    """Stop servers side by side, and kill a server that has not ended after STOP_S."""
    for server in servers:
        server.process.terminate()
    for server in servers:
        try:
            server.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()
