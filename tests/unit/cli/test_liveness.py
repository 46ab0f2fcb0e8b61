"""`rocketpy doctor --live`: which servers run, by their command lines, and at which addresses they are asked."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.cli import liveness
from rocketpy.cli.command_line import SERVER_PROGRAMS
from rocketpy.cli.liveness import Port, ask, examine_servers, ports_of, server_command_of
from rocketpy.errors import ConfigError

ENVIRONMENT = {"HOME": "/home/somebody"}


def words_of(line: str) -> list[str]:
    """A command line as the kernel has it for a script."""
    program, *rest = line.split()
    return ["/usr/lib/rocketpy/bin/python3", f"/usr/lib/rocketpy/bin/{program}", *rest]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (words_of("rocketpy standalone --port 7000"), "standalone"),
        (words_of("rocketpy broker -n 10.0.0.1:9876"), "broker"),
        (words_of("rocketpy namesrv"), "namesrv"),
        (words_of("mqbroker -c broker.conf"), "broker"),
        (words_of("mqnamesrv"), "namesrv"),
        (["python3", "-X", "dev", "-m", "rocketpy", "broker", "-n", "10.0.0.1:9876"], "broker"),
        (words_of("rocketpy doctor --live"), None),
        (words_of("rocketpy admin topicList"), None),
        (words_of("rocketpy"), None),
        (words_of("mqbroker --help"), None),
        (words_of("mqbroker --no-such-option"), None),
        (["rocketpy: selector-0"], None),
        (["vi", "broker.conf"], None),
        (["man", "mqbroker"], None),
        (["less", "/usr/bin/mqnamesrv"], None),
        (words_of("mqadmin deleteTopic -t mqbroker"), None),
        (["/usr/bin/tini", "--", "rocketpy", "standalone"], None),
        ([], None),
    ],
)
def test_servers_are_told_from_other_commands(
    capsys: pytest.CaptureFixture[str], words: list[str], kind: str | None
) -> None:
    command = server_command_of(words, SERVER_PROGRAMS)
    assert (command.kind if command else None) == kind


@pytest.mark.parametrize(
    ("line", "environment", "expected"),
    [
        ("mqnamesrv", {}, [Port("name server", ("127.0.0.1", 9876))]),
        ("mqnamesrv --set listenPort=1", {"ROCKETPY_BIND_ADDRESS": "::"}, [Port("name server", ("::1", 1))]),
        ("mqbroker -c broker.conf", {}, [Port("broker", ("10.0.0.7", 7000))]),
        ("mqbroker -c broker.conf", {"ROCKETPY_LISTEN_PORT": "7100"}, [Port("broker", ("10.0.0.7", 7100))]),
        (
            "rocketpy standalone",
            {"ROCKETPY_LISTEN_PORT": "7200", "ROCKETPY_BIND_ADDRESS": "0.0.0.0"},
            [Port("name server", ("127.0.0.1", 9876)), Port("broker", ("127.0.0.1", 7200))],
        ),
        (
            "rocketpy standalone --port 7300 --namesrv-port 7301 --bind 10.0.0.9",
            {"ROCKETPY_LISTEN_PORT": "7200", "ROCKETPY_BIND_ADDRESS": "0.0.0.0"},
            [Port("name server", ("10.0.0.9", 7301)), Port("broker", ("10.0.0.9", 7300))],
        ),
    ],
)
def test_a_server_is_asked_where_its_own_configuration_says(
    tmp_path: Path, line: str, environment: dict[str, str], expected: list[Port]
) -> None:
    """With the file of the directory in which it was started, and its environment, not with ours."""
    (tmp_path / "broker.conf").write_text("bindAddress=10.0.0.7\nlistenPort=7000\nnamesrvAddr=10.0.0.1:9876\n")
    command = server_command_of(words_of(line), SERVER_PROGRAMS)
    assert command is not None
    assert list(ports_of(command, ENVIRONMENT | environment, tmp_path)) == expected


def test_tls_account_and_proxies_are_those_of_the_server(tmp_path: Path) -> None:
    settings = (
        *("tls.server.mode=enforcing", "tls.server.certPath=c", "tls.server.keyPath=k", "useTLS=false"),
        *("aclCredentialsFile=/etc/rocketpy/account.yml", "proxyProtocolFrom=127.0.0.2"),
    )
    line = " --set ".join(["mqbroker -n 10.0.0.1:9876", *settings])
    command = server_command_of(words_of(line), SERVER_PROGRAMS)
    assert command is not None
    (port,) = ports_of(command, ENVIRONMENT, tmp_path)
    assert (port.is_tls, port.credentials_file, port.proxies) == (True, "/etc/rocketpy/account.yml", "127.0.0.2")


def test_where_no_server_runs_the_check_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert examine_servers(SERVER_PROGRAMS, tmp_path) == 1
    assert capsys.readouterr().out.startswith("rocketpy: no server runs here")


def test_a_configuration_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "broker.conf")
    command = server_command_of(words_of("mqbroker -c broker.conf"), SERVER_PROGRAMS)
    assert command is not None
    with pytest.raises(ConfigError, match="no regular file"):
        list(ports_of(command, ENVIRONMENT, tmp_path))


def test_an_account_that_cannot_be_read_is_no_sign_of_death(tmp_path: Path) -> None:
    """Fault: A damaged file of the broker's account failed each check, so that Kubernetes restarted healthy brokers."""
    account = tmp_path / "account.yml"
    account.write_text("accessKey: [")
    question = Port("broker", ("127.0.0.1", 1), credentials_file=str(account)).question()
    assert question.ext_fields == {"consumerGroup": "rocketpy-doctor"}


@contextmanager
def server_that(serve: Callable[[socket.socket], object], *, is_tls: bool) -> Iterator[Port]:
    """A port whose only connection `serve` gets, before it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with listener.accept()[0] as connection:
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield Port("broker", listener.getsockname(), is_tls=is_tls)
        thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize(
    "serve",
    [
        pytest.param(lambda connection: None, id="closed"),
        pytest.param(lambda connection: connection.recv(1), id="reset"),
        pytest.param(lambda connection: connection.recv(65536), id="closed after the question"),
    ],
)
def test_a_server_that_closes_the_connection_is_full_and_alive(
    serve: Callable[[socket.socket], object], is_tls: bool
) -> None:
    """Fault: A broker at connectionsMax failed each check, so that Kubernetes restarted it under all its clients."""
    with server_that(serve, is_tls=is_tls) as port:
        assert not ask(port)


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_server_that_accepts_and_hangs_is_dead(monkeypatch: pytest.MonkeyPatch, is_tls: bool) -> None:
    monkeypatch.setattr(liveness, "TIMEOUT_S", 0.1)
    is_over = threading.Event()
    with server_that(lambda connection: is_over.wait(10), is_tls=is_tls) as port:
        with pytest.raises(TimeoutError):
            ask(port)
        is_over.set()


def test_a_port_that_nobody_serves_is_dead() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(ConnectionRefusedError):
        ask(Port("broker", address))
