"""A broker whose ports somebody else keeps open, as systemd does with rocketpy-broker.socket."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.support import preloaded
from tests.support.pair import LoneBroker

# $1: descriptors; $2 and on: the command, which gets them as systemd passes sockets: 3 and up, and its own pid
PASS = """
import fcntl, os, sys
kept = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 100) for number in sys.argv[1].split(",")]
for place, number in enumerate(kept, 3):
    os.dup2(number, place)
    os.close(number)
environ = os.environ | {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(kept))}
os.execve(sys.argv[2], sys.argv[2:], environ)
"""


@attrs.define
class HandedOver(LoneBroker):
    """It starts again on the same sockets; those of clients that come meanwhile wait."""

    sockets: list[socket.socket] = attrs.field(factory=list)

    def start(self) -> None:
        numbers = [one.fileno() for one in self.sockets]
        words = [sys.executable, "-S", "-c", PASS, ",".join(map(str, numbers)), *self.command()]
        with self.log.open("ab") as log:
            start = log.tell()
            self.process = subprocess.Popen(
                words, stdout=log, stderr=log, pass_fds=numbers, cwd=preloaded.ROOT, start_new_session=True
            )
        deadline = time.monotonic() + self.START_S
        while b"boot success" not in self.log.read_bytes()[start:]:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the broker did not start:\n{self.text()}")
            time.sleep(0.01)

    def restart(self) -> float:
        """What `systemctl restart` does; the seconds until it is ready."""
        begun_s = time.monotonic()
        assert self.stop() == 0, self.text()[-4000:]
        self.start()
        return time.monotonic() - begun_s


@contextlib.contextmanager
def handed_over(
    directory: Path, port: int, namesrv_port: int, settings: dict[str, str] | None = None
) -> Iterator[HandedOver]:
    """A started broker with a store in `directory`; killed at the end, and its sockets closed."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", number), backlog=1024))
            for number in (port, port - 2, port + 1)
        ]
        broker = HandedOver(
            directory / "store", port, namesrv_port, directory / "broker.log", settings or {}, sockets=sockets
        )
        stack.callback(broker.kill_all)
        broker.start()
        yield broker
