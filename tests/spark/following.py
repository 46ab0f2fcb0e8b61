"""`rocketpy pipeline archive --continuous` in a process of its own, which tests stop and kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 120.0


class Following:
    """The process. Leaving the block kills it, and its JVM."""

    def __init__(self, target: Path, *words: str, inline: bool = True) -> None:
        command = [sys.executable, "-m", "rocketpy", "pipeline", "archive", "--continuous", "--interval", "1"]
        command += [*(["--inline"] if inline else []), *words, str(target)]
        self._log = target.parent / f"{target.name}.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while not holds():
            assert self.process.poll() is None and time.monotonic() < deadline_s, self.text()
            time.sleep(0.01)

    def stop(self) -> int:
        """SIGTERM. Returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def text(self) -> str:
        return self._log.read_text()
