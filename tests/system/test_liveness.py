"""`rocketpy doctor --live` asks real servers, as the health checks of the image and of Kubernetes do."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.cli import liveness
from rocketpy.cli.command_line import SERVER_PROGRAMS
from tests.support.accounts import write_accounts, write_credentials
from tests.support.broker import RunningBroker, running_broker
from tests.support.certificates import Authority


def look_at(broker: RunningBroker, directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """The exit status and the lines of a check that sees the processes of this broker only."""
    assert broker.process is not None
    directory.mkdir(exist_ok=True)
    for name in (str(broker.process.pid), *map(str, broker.workers().values()), "self"):
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(f"/proc/{name}")
    capsys.readouterr()
    status = liveness.examine_servers(SERVER_PROGRAMS, directory)
    return status, capsys.readouterr().out.splitlines()


def test_servers_that_answer_and_a_broker_that_hangs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_broker(is_new=True) as broker:
        status, lines = look_at(broker, tmp_path, capsys)
        assert status == 0
        assert sorted(line.partition(": answers in")[0] for line in lines) == [
            f"broker at {broker.address}",
            f"name server at {broker.namesrv}",
        ]
        monkeypatch.setattr(liveness, "TIMEOUT_S", 0.3)
        manager = broker.workers()["manager"]
        os.kill(manager, signal.SIGSTOP)
        try:
            status, lines = look_at(broker, tmp_path, capsys)
        finally:
            os.kill(manager, signal.SIGCONT)
        (failed,) = (line for line in lines if "does not answer" in line)
        assert status == 1
        assert failed.startswith(f"rocketpy: broker at {broker.address} does not answer: ")
        status, lines = look_at(broker, tmp_path, capsys)
        assert status == 0, lines


def test_a_full_broker_is_alive_until_it_hangs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: A broker at connectionsMax failed each check, so that Kubernetes restarted it under all its clients."""
    with running_broker({"connectionsMax": "2", "selectorWorkers": "1"}, is_new=True) as broker, ExitStack() as stack:
        for _ in range(3):  # a worker of the broker may have a connection, too
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
        monkeypatch.setattr(liveness, "TIMEOUT_S", 0.5)
        status, lines = look_at(broker, tmp_path, capsys)
        (line,) = (line for line in lines if line.startswith(f"broker at {broker.address}"))
        assert status == 0
        assert "is alive, and closes new connections" in line
        for name in ("acceptor", "selector 0"):
            worker = broker.workers()[name]
            os.kill(worker, signal.SIGSTOP)
            try:
                status, lines = look_at(broker, tmp_path, capsys)
            finally:
                os.kill(worker, signal.SIGCONT)
            assert (status, len([line for line in lines if "does not answer: timed out" in line])) == (1, 1), name


def test_a_broker_whose_selector_ends_at_each_connection_is_not_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: A selector that ended at each connection passed every check, as a full one does."""
    with running_broker({"selectorWorkers": "1"}, is_new=True) as broker:
        exchange = liveness._exchange

        def exchange_with_one_that_ends(connection: socket.socket, *rest: Any) -> None:
            exchange(connection, *rest)  # the selector has this connection
            if connection.getpeername()[1] == broker.port:
                os.kill(broker.workers()["selector 0"], signal.SIGKILL)
                exchange(connection, *rest)

        with monkeypatch.context() as patched:
            patched.setattr(liveness, "_exchange", exchange_with_one_that_ends)
            selector = broker.workers()["selector 0"]
            status, lines = look_at(broker, tmp_path, capsys)
        place = f"rocketpy: broker at {broker.address}"
        told = f"{place} closes new connections, because its process {selector} ended; see its log"
        assert (status, [line for line in lines if line.startswith(place)]) == (1, [told])
        assert look_at(broker, tmp_path, capsys)[0] == 0


def test_a_broker_that_serves_accounts_by_tls_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own account signs the question: the check counts as no failed authentication."""
    issued = Authority(tmp_path).issue("127.0.0.1")
    settings = {
        **issued.settings(),
        "tls.server.mode": "enforcing",
        "useTLS": "false",
        **write_accounts(tmp_path),
        **write_credentials(tmp_path),
    }
    with running_broker(settings, is_new=True) as broker:
        status, lines = look_at(broker, tmp_path / "processes", capsys)
        assert (status, len(lines)) == (0, 2), lines
