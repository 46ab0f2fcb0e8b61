"""What an operator meets before a broker serves: mistakes cost one line and change nothing; help is quick."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from tests.support import preloaded
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.wire import Wire, send_request, until

ENDS_WITHIN_S = 60.0
COMMANDS = {name: f"from rocketpy.cli.main import {name}; {name}()" for name in ("mqbroker", "mqnamesrv", "mqadmin")}


# To the superuser nothing is unwritable, unless this capability is dropped.
WITHOUT_OVERRIDE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()


def command(
    name: str, *words: str, home: Path | None = None, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `rocketpy`, or in a new interpreter one of the names in COMMANDS, to its end."""
    environ = {key: value for key, value in os.environ.items() if key not in ("NAMESRV_ADDR", "ROCKETMQ_HOME")}
    environ |= {"HOME": str(home)} if home else {}
    if name == "rocketpy" and not prefix:
        return preloaded.run([*preloaded.COMMAND, *words], timeout=ENDS_WITHIN_S, env=environ)
    start = ["-m", "rocketpy"] if name == "rocketpy" else ["-c", COMMANDS[name]]
    return subprocess.run(
        [*prefix, sys.executable, *start, *words],
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        env=environ,
        check=False,
    )


def listing(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file and directory below, with size and time of change."""
    places = [directory, *directory.rglob("*")] if directory.exists() else []
    return {str(place): (place.stat().st_size, place.stat().st_mtime_ns) for place in places}


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """The only line on standard error of a command that failed."""
    assert result.returncode not in (0, -signal.SIGKILL)
    assert "Traceback" not in result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


@contextlib.contextmanager
def taken(port: int) -> Iterator[int]:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen()
        yield sock.getsockname()[1]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> RunningBroker:
    """A broker that could start: its store has been in use and holds a message."""
    with running_broker(store=tmp_path_factory.mktemp("place") / "store") as broker:
        with Wire.open(broker.port) as wire:
            assert wire.ask(send_request("Kept", b"one")).code == ResponseCode.SUCCESS
        assert broker.stop() == 0
        return broker


def words(broker: RunningBroker) -> list[str]:
    return broker.command()[3:]


def test_ports_that_are_taken(place: RunningBroker, tmp_path: Path) -> None:
    before = listing(place.store)
    for port, key in ((place.port, "listenPort"), (place.port - 2, "listenPort - 2"), (place.namesrv_port, "namesrv")):
        with taken(port):
            line = one_line(command("rocketpy", *words(place)))
            assert str(port) in line and key in line
    with taken(0) as port:
        line = one_line(command("rocketpy", *words(place), "--set", f"metricsPort={port}"))
        assert str(port) in line and "metricsPort" in line
    with taken(0) as port:
        assert str(port) in one_line(command("mqnamesrv", "--set", f"listenPort={port}", home=tmp_path))
    assert listing(place.store) == before


def test_a_store_that_cannot_be_made(place: RunningBroker, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    before = listing(tmp_path)
    line = one_line(command("rocketpy", *words(place), "--set", f"storePathRootDir={tmp_path}/file/store"))
    assert f"{tmp_path}/file" in line
    assert listing(tmp_path) == before


def test_a_store_that_cannot_be_written(place: RunningBroker, tmp_path: Path) -> None:
    place.store.chmod(0o500)
    before = listing(place.store)
    try:
        assert str(place.store) in one_line(command("rocketpy", *words(place), prefix=WITHOUT_OVERRIDE))
    finally:
        place.store.chmod(0o700)
    assert listing(place.store) == before


def test_a_store_that_another_rocketpy_uses(tmp_path: Path) -> None:
    with running_broker(store=tmp_path / "store") as first:
        port, namesrv_port = free_ports()
        second = RunningBroker(first.store, port, namesrv_port, tmp_path / "log", first.settings)
        line = one_line(command("rocketpy", *words(second)))
        assert "in use" in line and str(first.store) in line
        assert first.stop() == 0


def test_a_store_that_a_java_broker_uses(place: RunningBroker, tmp_path: Path) -> None:
    with (place.store / "lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)  # as FileChannel.tryLock(0, 1, false)
        before = listing(place.store)
        line = one_line(command("rocketpy", *words(place)))
        assert "in use" in line and str(place.store) in line
        assert listing(place.store) == before


def test_a_store_leaves_its_group_only_when_it_is_ours(tmp_path: Path) -> None:
    """The files of a member are left alone while the store is in use, and removed by a start without failover.
    Fault: A broker with haMode=plain on a running member's store removed its incarnation and epochs."""
    names = {"incarnation", "epochFileCheckpoint"}
    with running_broker(store=tmp_path / "store") as first:
        for name in names:
            (first.store / name).write_text("of the member that runs here\n")
        port, namesrv_port = free_ports()
        second = RunningBroker(first.store, port, namesrv_port, tmp_path / "log", first.settings)
        assert "in use" in one_line(command("rocketpy", *words(second)))
        assert names <= {path.name for path in first.store.iterdir()}
        assert first.stop() == 0
        second.start()
        assert second.stop() == 0
    left = {path.name for path in first.store.iterdir()}
    assert "epochFileCheckpoint.aside" in left and not left & names


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["--set", "flushDiskType=SOMETIMES"], ["flushDiskType", "SOMETIMES", "SYNC_FLUSH"]),
        (["--set", "maxMessageSize=lots"], ["maxMessageSize", "lots"]),
        (["--set", "flushDiskTyp=SYNC_FLUSH"], ["flushDiskTyp", "flushDiskType"]),
        (["--set", "namesrvAddr=not-an-address"], ["namesrvAddr", "not-an-address"]),
        (["--config", "/nowhere/broker.conf"], ["/nowhere/broker.conf"]),
        (["--set", "mappedFileSizeCommitLog=134217728", "-n", "127.0.0.1:9"], ["mappedFileSizeCommitLog"]),
        ([], ["namesrvAddr", "NAMESRV_ADDR", "-n"]),
    ],
)
def test_settings_that_cannot_be_honoured(
    place: RunningBroker, tmp_path: Path, settings: list[str], named: list[str]
) -> None:
    before = listing(place.store)
    overrides = place.settings | {"storePathRootDir": str(place.store), "listenPort": str(place.port)}
    base = [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]
    spelled = ["-c" if word == "--config" else word for word in settings]
    line = one_line(command("mqbroker", *base, *spelled, home=tmp_path))
    assert all(name in line for name in named), line
    assert listing(place.store) == before


def test_a_line_of_a_file_is_named(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=a\nbrokerId = first\n")
    line = one_line(command("mqbroker", "-c", str(config), home=tmp_path))
    assert f"{config}:2" in line and "brokerId" in line


@pytest.mark.parametrize("name", ["rocketpy", "mqbroker", "mqnamesrv", "mqadmin"])
@pytest.mark.parametrize("bad", [["--no-such-option"], ["surplus", "words"], ["--set", "no-equals-sign"], ["-c"]])
def test_bad_arguments_never_show_a_traceback(name: str, bad: list[str], tmp_path: Path) -> None:
    result = command(name, *bad, home=tmp_path)
    assert result.returncode in (1, 2)
    assert "Traceback" not in result.stderr
    assert result.stderr.strip()


@pytest.mark.parametrize(
    "words",
    [
        ["rocketpy"],
        ["rocketpy", "standalone"],
        ["rocketpy", "broker"],
        ["rocketpy", "namesrv"],
        ["rocketpy", "admin"],
        ["rocketpy", "store"],
        ["rocketpy", "store", "dump"],
        ["rocketpy", "store", "verify"],
        ["rocketpy", "store", "stats"],
        ["rocketpy", "doctor"],
        ["mqbroker"],
        ["mqnamesrv"],
        ["mqadmin"],
    ],
)
def test_help_loads_little_and_says_something(words: list[str], tmp_path: Path) -> None:
    spelled = "rocketpy" if words[0] == "rocketpy" else words[0]
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('LOADED', *sorted(sys.modules), file=sys.stderr))\n"
        f"sys.argv = {[*words, '--help']!r}\n"
        f"from rocketpy.cli.main import {spelled}\n"
        f"{spelled}()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) >= 4
    loaded = result.stderr.rpartition("LOADED")[2].split()
    assert "rocketpy.cli.main" in loaded
    if words[0] != "mqadmin" and words[1:] != ["admin"]:
        assert not {"trio", "prometheus_client", "rocketpy.native._rocketpy", "rich"} & set(loaded)


@pytest.mark.parametrize("name", ["mqbroker", "mqnamesrv", "mqadmin"])
def test_h_is_help_as_in_the_reference(name: str, tmp_path: Path) -> None:
    short, long = command(name, "-h", home=tmp_path), command(name, "--help", home=tmp_path)
    assert short.returncode == 0 and short.stdout == long.stdout and short.stdout, short.stderr


def test_p_and_m_print_properties_that_can_be_read_back(tmp_path: Path) -> None:
    printed = command("mqbroker", "-p", "--set", "brokerName=x", home=tmp_path)
    assert printed.returncode == 0 and "brokerName=x" in printed.stdout and not printed.stderr
    config = tmp_path / "broker.conf"
    config.write_text(printed.stdout)
    again = command("mqbroker", "-p", "-c", str(config), home=tmp_path)
    assert again.stdout == printed.stdout, again.stderr
    important = command("mqbroker", "-m", home=tmp_path)
    assert important.returncode == 0
    assert 0 < len(important.stdout.splitlines()) < len(printed.stdout.splitlines())
    assert command("mqnamesrv", "-p", home=tmp_path).returncode == 0


def test_the_ready_line_comes_when_the_name_server_knows_the_broker(tmp_path: Path) -> None:
    """A script that waits for the line asks for routes next.
    Fault: The ready line could come before the name server knew the broker."""
    port, namesrv_port = free_ports()
    log = tmp_path / "log"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", namesrv_port)))
        listener.settimeout(ENDS_WITHIN_S)
        out = stack.enter_context(log.open("wb"))
        settings = {"storePathRootDir": str(tmp_path / "store"), "listenPort": str(port), "bindAddress": "127.0.0.1"}
        settings |= {"metricsPort": "0", "mappedFileSizeCommitLog": str(64 << 20)}
        spelled = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        start = [sys.executable, "-c", COMMANDS["mqbroker"], "-n", f"127.0.0.1:{namesrv_port}", *spelled]
        broker = subprocess.Popen(start, stdout=out, stderr=out, start_new_session=True)
        stack.callback(broker.wait)
        stack.callback(broker.kill)
        with Wire(listener.accept()[0]) as namesrv:
            request = namesrv.read()
            assert request.code == RequestCode.REGISTER_BROKER
            with Wire.open(port) as wire:  # the broker serves already
                assert wire.ask(RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0
            assert b"boot success" not in log.read_bytes()
            answer = RemotingCommand.response()
            answer.opaque = request.opaque
            namesrv.sock.sendall(answer.encode())
            until(lambda: b"boot success" in log.read_bytes(), "the ready line")


@pytest.mark.long
def test_a_name_server_that_comes_late(tmp_path: Path) -> None:
    """The broker serves without it, says so once, and registers when it is there.
    Holds: cluster, order of a start."""
    port, namesrv_port = free_ports()
    log = tmp_path / "log"
    settings = {
        "storePathRootDir": str(tmp_path / "store"),
        "listenPort": str(port),
        "bindAddress": "127.0.0.1",
        "metricsPort": "0",
        "mappedFileSizeCommitLog": str(64 << 20),
        "registerNameServerPeriod": "10000",
        "brokerName": "late",
    }
    spelled = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(log.open("wb"))
        start = [sys.executable, "-c", COMMANDS["mqbroker"], "-n", f"127.0.0.1:{namesrv_port}", *spelled]
        broker = subprocess.Popen(start, stdout=out, stderr=out, start_new_session=True)
        stack.callback(broker.wait)
        stack.callback(broker.kill)
        until(lambda: b"boot success" in log.read_bytes(), "the broker serves")
        with Wire.open(port) as wire:
            for n in range(3):  # each change of a topic is a reason to register
                fields = {
                    "topic": f"T{n}",
                    "defaultTopic": "TBW102",
                    "readQueueNums": "1",
                    "writeQueueNums": "1",
                    "perm": "6",
                    "topicFilterType": "SINGLE_TAG",
                    "topicSysFlag": "0",
                    "order": "false",
                }
                request = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)
                assert wire.ask(request).code == ResponseCode.SUCCESS
        complaints = [line for line in log.read_text().splitlines() if str(namesrv_port) in line and "failed" in line]
        assert len(complaints) == 1, complaints
        words = [sys.executable, "-c", COMMANDS["mqnamesrv"], "--set", f"listenPort={namesrv_port}"]
        words += ["--set", "bindAddress=127.0.0.1"]
        environ = os.environ | {"HOME": str(tmp_path)}
        namesrv = subprocess.Popen(words, stdout=out, stderr=out, env=environ, start_new_session=True)
        stack.callback(namesrv.wait)
        stack.callback(namesrv.kill)

        def has_route() -> bool:
            try:
                with Wire.open(namesrv_port) as wire:
                    request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "T2"})
                    answer = wire.ask(request)
                    return answer.code == ResponseCode.SUCCESS and b'"late"' in (answer.body or b"")
            except ConnectionRefusedError:
                return False

        until(has_route, "the broker registers")
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(ENDS_WITHIN_S) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
