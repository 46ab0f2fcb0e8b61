"""tests/support/preloaded.py: a fork is the process that its caller asked for, and ends as one of subprocess does."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.broker import free_ports
from tests.support.pair import NameServer
from tests.support.preloaded import COMMAND, VARIABLE, Preloaded, is_forked, run
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")


@pytest.fixture
def server(tmp_path: Path) -> NameServer:
    return NameServer(tmp_path, 0, free_ports()[1], tmp_path / "log", {})


def test_output_and_status_are_those_of_a_new_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["--version"], ["store", "stats", "missing"], ["store", "--none"], ["namesrv", "--set", "none=1"]):
        new = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
        fork = run([*COMMAND, *words], timeout=60)
        assert (fork.returncode, fork.stdout, fork.stderr) == (new.returncode, new.stdout, new.stderr)


def test_environment_directory_session_and_files(server: NameServer, tmp_path: Path) -> None:
    server.start()
    process = server.process
    assert isinstance(process, Preloaded)
    place = Path(f"/proc/{process.pid}")
    assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
    assert (place / "cwd").readlink() == Path.cwd()
    own = {Path(f"/proc/self/fd/{number}").readlink() for number in (1, 2)}
    theirs = {int(file.name): file.readlink() for file in (place / "fd").iterdir()}
    assert theirs[1] == theirs[2] == server.log
    assert not own & {*theirs.values()}
    assert server.stop() == 0
    assert not place.exists()


def test_an_environment_of_its_own() -> None:
    ended = run([*COMMAND, "broker", "-p"], timeout=60, env={"NAMESRV_ADDR": "10.0.0.9:1", "HOME": "/"})
    assert "namesrvAddr=10.0.0.9:1\n" in ended.stdout


def test_a_pid_stays_taken_until_the_status_is_read(server: NameServer) -> None:
    server.start()
    process = server.process
    assert isinstance(process, Preloaded)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: "Z" in Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2], "its end")
    assert process.wait(60) == process.poll() == -signal.SIGKILL
    assert not Path(f"/proc/{process.pid}").exists()
    process.send_signal(signal.SIGTERM)  # to nobody
    server.process = None


def test_a_new_interpreter_where_a_fork_would_be_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_forked(COMMAND) and is_forked(COMMAND, {"HOME": "/"})
    assert not is_forked(["strace", *COMMAND])
    assert not is_forked(COMMAND, os.environ | {"PYTHONWARNINGS": "ignore"})
    monkeypatch.delenv(VARIABLE)
    assert not is_forked(COMMAND)
