"""Servers that a command starts: awaited by their logs, and stopped."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from rocketpy.cli import child_server
from rocketpy.cli.child_server import ChildServer, stop_all
from rocketpy.errors import ConfigError

READY = b"The broker boot success.\n"


def sleeping(log: Path, *before: str) -> ChildServer:
    """A process in place of a server."""
    return ChildServer("s", log, subprocess.Popen([*before, "sleep", "1000"]), 0)


def test_a_server_that_ends_is_an_error_with_the_last_line_of_its_log(tmp_path: Path) -> None:
    """The ready line of an earlier start is in the same file."""
    log = tmp_path / "broker.log"
    log.write_bytes(READY)
    server = ChildServer.started("the broker", ["no-such-command"], log)
    with pytest.raises(ConfigError, match=r"^the broker did not start: .*'no-such-command'.* \(.*broker\.log\)$"):
        server.wait_until_ready()
    assert server.has_ended and log.read_bytes().startswith(READY)
    stop_all([server])


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    """Fault: `rocketpy cluster --store` with such a directory ended with a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/broker\.log cannot be written: .*; choose another directory"):
        ChildServer.started("the broker", [], tmp_path / "file" / "broker.log")


def test_a_ready_line_or_a_wish_to_stop_ends_the_wait(tmp_path: Path) -> None:
    server = sleeping(tmp_path / "log")
    server.wait_until_ready(lambda: True)
    server.log.write_bytes(READY)
    server.wait_until_ready()
    assert not server.has_ended
    stop_all([server])
    assert server.process.returncode == -signal.SIGTERM


def test_a_server_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_server, "STOP_S", 0.1)
    server = sleeping(tmp_path / "log", "env", "--ignore-signal=TERM")
    while b"sleep" not in Path(f"/proc/{server.process.pid}/comm").read_bytes():  # env is still to ignore it
        assert not server.has_ended
    stop_all([server])
    assert server.process.returncode == -signal.SIGKILL
