"""What a service manager is told, and which of its sockets are taken."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.errors import ConfigError
from rocketpy.processes.boot.service_manager import FIRST_DESCRIPTOR, ServiceManager
from tests.support.broker import free_ports
from tests.support.waiting import DEADLINE_S, is_readable


@contextmanager
def heard(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.bind(str(path))
        own.setblocking(False)
        yield own


def listener(host: str = "127.0.0.1") -> socket.socket:
    own = socket.socket()
    own.bind((host, 0))
    own.listen()
    return own


def test_without_a_manager_nothing_happens() -> None:
    manager = ServiceManager.of({})
    manager.tell_ready()
    manager.beat(0.0)
    manager.tell_restart()
    manager.close_rest()
    assert manager.take_listener("127.0.0.1", 10911, "listenPort") is None


@pytest.mark.parametrize("is_abstract", [False, True], ids=["path", "abstract"])
def test_readiness_and_beats(tmp_path: Path, is_abstract: bool) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.bind("\0" + name if is_abstract else name)
        manager = ServiceManager.of({"NOTIFY_SOCKET": "@" + name if is_abstract else name, "WATCHDOG_USEC": "3000000"})
        manager.tell_ready()
        for now_s in (0.0, 0.5, 1.0, 1.5, 2.0):  # beats are due each second
            manager.beat(now_s)
        manager.tell_restart()
        told = [own.recv(100).decode() for _ in range(5)]
        assert told == ["READY=1\nWATCHDOG_USEC=3000000", *["WATCHDOG=1"] * 3, "WATCHDOG_USEC=0"]
        assert not is_readable(own.fileno(), 0)


def test_a_watchdog_of_another_process_is_not_ours(tmp_path: Path) -> None:
    with heard(tmp_path / "notify") as own:
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}
        manager = ServiceManager.of(environment)
        manager.beat(0.0)
        manager.tell_ready()
        assert own.recv(100) == b"READY=1"


def test_a_manager_that_is_gone_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager(str(tmp_path / "nobody")).tell_ready()
    assert "does not hear READY" in caplog.text


def test_sockets_are_taken_by_port_and_the_rest_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with closing(listener()) as first, closing(listener()) as second:
        manager = ServiceManager(listeners=[first.dup(), second.dup()])
        taken = manager.take_listener("127.0.0.1", first.getsockname()[1], "listenPort")
        assert taken is not None and taken.getsockname() == first.getsockname() and not taken.getblocking()
        assert manager.take_listener("127.0.0.1", first.getsockname()[1], "listenPort") is None
        taken.close()
        manager.close_rest()
        assert f"port {second.getsockname()[1]}, which the configuration does not name" in caplog.text


def test_another_address_than_that_of_the_configuration_is_refused() -> None:
    with closing(listener()) as own:
        manager = ServiceManager(listeners=[own.dup()])
        with pytest.raises(ConfigError, match=r"listens on 127\.0\.0\.1 port .*, and bindAddress is 0\.0\.0\.0"):
            manager.take_listener("0.0.0.0", own.getsockname()[1], "listenPort")
        manager.close_rest()


def passing(descriptor: int) -> str:
    """The code by which a service manager passes one descriptor."""
    variables = "{'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'}"
    return f"os.dup2({descriptor}, {FIRST_DESCRIPTOR}); os.environ |= {variables}"


def run_with(descriptor: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with this descriptor as the only one of a service manager."""
    code = "\n".join(["import os", passing(descriptor), *words])
    return subprocess.run(
        [sys.executable, "-c", code], pass_fds=[descriptor], capture_output=True, text=True, check=False
    )


TAKE = "from rocketpy.processes.boot.service_manager import ServiceManager; m = ServiceManager.of(os.environ)"


def test_descriptors_of_the_manager_stay_open_for_what_replaces_the_process() -> None:
    with closing(listener()) as own:
        port = own.getsockname()[1]
        done = run_with(
            own.fileno(),
            TAKE,
            f"m.take_listener('127.0.0.1', {port}, '').close()",
            "again = ServiceManager.of(os.environ)",
            f"print(os.get_inheritable({FIRST_DESCRIPTOR}), again.take_listener('127.0.0.1', {port}, ''))",
        )
        assert done.stdout.startswith("True <socket.socket"), done.stderr


def test_a_descriptor_that_does_not_listen_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        done = run_with(file.fileno(), TAKE)
        assert "ConfigError: descriptor 3 of the service manager" in done.stderr
    with socket.socket() as idle:
        assert "is no listening TCP socket" in run_with(idle.fileno(), TAKE).stderr


@pytest.mark.parametrize("has_sockets", [False, True], ids=["own ports", "passed ports"])
def test_a_name_server_says_that_it_is_ready_and_alive(tmp_path: Path, has_sockets: bool) -> None:
    _, port = free_ports()
    with heard(tmp_path / "notify") as own, socket.socket() as passed:
        passed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        command = [sys.executable, "-m", "rocketpy", "namesrv", "--set", f"listenPort={port}"]
        start = f"os.execv({sys.executable!r}, {command!r})"
        if has_sockets:
            passed.bind(("127.0.0.1", port))
            passed.listen()
            start = f"{passing(passed.fileno())}\n{start}"
        environment = {
            **os.environ,
            "HOME": str(tmp_path),
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "900000",
        }
        words = [sys.executable, "-c", f"import os\n{start}"]
        server = subprocess.Popen(words, env=environment, pass_fds=[passed.fileno()], stdout=subprocess.DEVNULL)
        try:
            for expected in (b"READY=1\nWATCHDOG_USEC=900000", b"WATCHDOG=1", b"WATCHDOG=1"):
                assert select.select([own], [], [], DEADLINE_S)[0], f"{expected!r} did not come"
                assert own.recv(100) == expected
            socket.create_connection(("127.0.0.1", port), 10).close()
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(DEADLINE_S) == 0
