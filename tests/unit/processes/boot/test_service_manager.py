"""What a service manager is told, which of its sockets are taken, and which it keeps."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NoReturn

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode
from rocketpy.config import BrokerRole, BrokerSettings
from rocketpy.errors import ConfigError, TransportError
from rocketpy.processes.boot.service_manager import FIRST_DESCRIPTOR, Passed, ServiceManager
from rocketpy.processes.boot.sockets import listen, open_sockets
from rocketpy.reactor.acceptor import open_listener
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import free_ports
from tests.support.waiting import DEADLINE_S, is_readable

IP_FREEBIND = 15  # linux/in.h: bind to an address that the machine does not have
LOST = "203.0.113.7"  # of an example network (RFC 5737)


@contextmanager
def heard(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.bind(str(path))
        own.setblocking(False)
        yield own


def hear(own: socket.socket) -> tuple[str, list[socket.socket]]:
    """The next message, and the sockets that came with it."""
    assert is_readable(own.fileno(), DEADLINE_S), "no message came"
    text, descriptors, _, _ = socket.recv_fds(own, 200, 8)
    return text.decode(), [socket.socket(fileno=one) for one in descriptors]


def port_of(own: socket.socket) -> int:
    return int(own.getsockname()[1])


def kept(own: socket.socket, host: str = "127.0.0.1") -> Passed:
    """A socket as the manager passes it that has kept it."""
    return Passed(own.dup(), f"stored-{port_of(own)}-{host}")


def take(manager: ServiceManager, host: str, port: int) -> list[socket.socket]:
    return manager.take(host, port, key="listenPort", backlog=16)


def is_cut(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_without_a_manager_nothing_happens() -> None:
    manager = ServiceManager.of({})
    manager.tell_ready()
    manager.beat(0.0)
    manager.keep("127.0.0.1", 10911, [0])
    manager.close_rest()
    assert take(manager, "127.0.0.1", 10911) == []


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
    with closing(open_listener("127.0.0.1", 0)) as first, closing(open_listener("127.0.0.1", 0)) as second:
        manager = ServiceManager(passed=[Passed(first.dup()), Passed(second.dup())])
        (taken,) = take(manager, "127.0.0.1", port_of(first))
        with taken:
            assert taken.getsockname() == first.getsockname() and not taken.getblocking()
        assert take(manager, "127.0.0.1", port_of(first)) == []
        manager.close_rest()
        assert f"port {port_of(second)}, which the configuration does not name" in caplog.text


def test_another_address_than_that_of_the_configuration_is_refused() -> None:
    with closing(open_listener("127.0.0.1", 0)) as own:
        manager = ServiceManager(passed=[Passed(own.dup())])
        with pytest.raises(ConfigError, match=r"listens on 127\.0\.0\.1 port .*, and bindAddress is 0\.0\.0\.0"):
            take(manager, "0.0.0.0", port_of(own))
        manager.close_rest()


def test_a_socket_unit_may_have_two_addresses_of_one_port() -> None:
    """Fault: A name server with a second listener on its port did not start under a socket unit with both addresses."""
    with closing(open_listener("127.0.0.1", 0)) as first, closing(open_listener("127.0.0.2", port_of(first))) as second:
        manager = ServiceManager(passed=[Passed(second.dup()), Passed(first.dup())])
        for own in (first, second):
            (taken,) = take(manager, *own.getsockname())
            with taken:
                assert taken.getsockname() == own.getsockname()


@pytest.mark.parametrize(
    ("host", "name"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "__1"), ("localhost", "localhost"), ("", "")],
    ids=["IPv4", "IPv6", "name", "all"],
)
def test_a_socket_is_kept_and_taken_back(tmp_path: Path, host: str, name: str) -> None:
    with heard(tmp_path / "notify") as own, closing(open_listener(host, 0)) as opened, ExitStack() as stack:
        port = port_of(opened)
        before = ServiceManager(str(tmp_path / "notify"))
        before.keep(host, port, [opened.fileno()])
        assert not is_readable(own.fileno(), 0), "a server that is not ready has none kept"
        before.tell_ready()
        text, (same,) = hear(own)
        assert text == f"FDSTORE=1\nFDNAME=stored-{port}-{name}" and hear(own) == ("READY=1", [])
        waiting = stack.enter_context(socket.create_connection(opened.getsockname()[:2]))

        manager = ServiceManager(str(tmp_path / "notify"), passed=[Passed(same, text.split("=")[-1])])
        (taken,) = map(stack.enter_context, take(manager, host, port))
        manager.close_rest()
        stack.enter_context(taken.accept()[0]).sendall(b"x")
        assert waiting.recv(1) == b"x" and not taken.getblocking()
        manager.tell_ready()
        text_again, (again,) = hear(own)
        with again:
            assert text_again == text and again.getsockname() == opened.getsockname()


def test_all_kept_sockets_of_an_address_are_taken() -> None:
    """A name server on `::` may have one for IPv6 and one for IPv4."""
    with (
        closing(open_listener("0.0.0.0", 0)) as first,
        socket.create_server(("::", port_of(first)), family=socket.AF_INET6) as second,
    ):
        manager = ServiceManager(passed=[kept(first, "__"), kept(second, "__")])
        taken = take(manager, "::", port_of(first))
        assert [one.getsockname() for one in taken] == [first.getsockname(), second.getsockname()]
        for one in taken:
            one.close()


def test_a_kept_socket_of_an_address_that_the_machine_has_lost_is_not_taken() -> None:
    """Fault: After the machine had lost its address, a restart served on that address, without an error."""
    with socket.socket() as opened:
        opened.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        opened.bind((LOST, 0))
        opened.listen()
        manager = ServiceManager(passed=[kept(opened, LOST)])
        with pytest.raises(TransportError, match=f"cannot listen on {LOST}:"):
            listen(manager, LOST, port_of(opened))
        manager.close_rest()


@pytest.mark.parametrize("is_found", [True, False], ids=["elsewhere", "not found"])
def test_a_kept_socket_that_its_host_name_does_not_name_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    """Fault: A server stayed on the address that its bindAddress, a host name, had named once."""

    def not_found(*_arguments: object, **_flags: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with closing(open_listener("127.0.0.2", 0)) as opened:
        manager = ServiceManager(passed=[kept(opened, "localhost")])
        if not is_found:
            monkeypatch.setattr(socket, "getaddrinfo", not_found)
        assert take(manager, "localhost", port_of(opened)) == []
        manager.close_rest()


def test_a_kept_socket_gets_the_backlog_of_the_configuration() -> None:
    with closing(open_listener("127.0.0.1", 0, backlog=1)) as opened, ExitStack() as stack:
        for taken in take(ServiceManager(passed=[kept(opened)]), "127.0.0.1", port_of(opened)):
            stack.enter_context(taken)
        for _ in range(16):  # with a backlog of 1 the third one is not answered
            stack.enter_context(socket.create_connection(opened.getsockname(), DEADLINE_S))


def test_a_kept_socket_gives_way_to_another_address_of_its_port() -> None:
    """The port is free at once, though the manager has its descriptor still. Clients that wait are reset."""
    with closing(open_listener("127.0.0.1", 0)) as opened:
        manager = ServiceManager(passed=[kept(opened)])
        with closing(socket.create_connection(opened.getsockname(), DEADLINE_S)) as waiting:
            with listen(manager, "0.0.0.0", port_of(opened)) as listener:
                assert listener.getsockname() == ("0.0.0.0", port_of(opened))
            assert is_cut(waiting)


def test_a_new_address_closes_no_kept_socket_of_another_address_of_its_port() -> None:
    """Fault: Clients that waited for a listener were reset when another listener of its port had a new address."""
    with closing(open_listener("127.0.0.1", 0)) as opened, ExitStack() as stack:
        manager = ServiceManager(passed=[kept(opened)])
        waiting = stack.enter_context(closing(socket.create_connection(opened.getsockname(), DEADLINE_S)))
        stack.enter_context(listen(manager, "127.0.0.2", port_of(opened)))
        taken = stack.enter_context(listen(manager, "127.0.0.1", port_of(opened)))
        manager.close_rest()
        stack.enter_context(taken.accept()[0]).sendall(b"x")
        assert waiting.recv(1) == b"x"


def test_a_port_that_another_process_has_is_in_use() -> None:
    with closing(open_listener("127.0.0.1", 0)) as other, pytest.raises(ConfigError, match="is in use"):
        listen(ServiceManager(), "127.0.0.1", port_of(other))


def test_kept_sockets_of_other_ports_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with closing(open_listener("127.0.0.1", 0)) as opened:
        ServiceManager(passed=[kept(opened)]).close_rest()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(opened.getsockname(), DEADLINE_S)
    assert "no longer listening on 127.0.0.1 port" in caplog.text and "ListenStream" not in caplog.text


def test_the_socket_of_a_unit_is_stronger_than_a_kept_one(tmp_path: Path) -> None:
    """It is the unit's to keep."""
    with (
        heard(tmp_path / "notify") as own,
        socket.create_server(("127.0.0.1", 0), reuse_port=True) as before,
        socket.create_server(before.getsockname(), reuse_port=True) as of_unit,
    ):
        of_unit.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # by which it is known
        passed = [kept(before), Passed(of_unit.dup(), "rocketpy-broker.socket")]
        manager = ServiceManager(str(tmp_path / "notify"), passed=passed)
        (taken,) = take(manager, *before.getsockname())
        with taken:
            manager.close_rest()
            manager.tell_ready()
            assert hear(own) == ("READY=1", [])
            assert taken.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE])
def test_a_broker_has_all_ports_of_clients_and_slaves_kept(tmp_path: Path, role: BrokerRole) -> None:
    port, _ = free_ports()
    plain = BrokerSettings()
    settings = attrs.evolve(
        plain,
        server=attrs.evolve(plain.server, listen_port=port),
        store=attrs.evolve(plain.store, broker_role=role, ha_listen_port=port + 1),
        rocketpy=attrs.evolve(plain.rocketpy, metrics_port=0),
    )
    ports = [port, port - 2, *([] if role is BrokerRole.SLAVE else [port + 1])]
    manager = ServiceManager(str(tmp_path / "notify"))
    with heard(tmp_path / "notify") as own, open_sockets(settings, manager):
        manager.tell_ready()
        for expected in ports:
            text, (same,) = hear(own)
            with same:
                assert text == f"FDSTORE=1\nFDNAME=stored-{expected}-127.0.0.1" and port_of(same) == expected
        assert hear(own) == ("READY=1", [])


def passing(descriptor: int, name: str = "") -> str:
    """The code by which a service manager passes one descriptor."""
    variables = f"{{'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1', 'LISTEN_FDNAMES': {name!r}}}"
    return f"os.dup2({descriptor}, {FIRST_DESCRIPTOR}); os.environ |= {variables}"


def run_with(descriptor: int, *words: str, name: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python with this descriptor as the only one of a service manager."""
    code = "\n".join(["import os", passing(descriptor, name), *words])
    return subprocess.run(
        [sys.executable, "-c", code], pass_fds=[descriptor], capture_output=True, text=True, check=False
    )


TAKE = "from rocketpy.processes.boot.service_manager import ServiceManager; m = ServiceManager.of(os.environ)"


AGAIN = """
import os, socket, sys
from rocketpy.processes.boot.service_manager import ServiceManager
from rocketpy.processes.boot.store_opening import start_again
manager, ports = ServiceManager.of(os.environ), [int(word) for word in sys.argv[1:]]
taken = [manager.take("127.0.0.1", port, key="", backlog=5) for port in ports]
if not taken[1]:
    opened = socket.create_server(("127.0.0.1", ports[1]))
    manager.keep("127.0.0.1", ports[1], [opened.fileno()])
    manager.tell_restart()
    start_again()
print(*(one.getsockname()[1] for one in sum(taken, [])))
"""


def test_a_process_that_replaces_itself_keeps_its_sockets(tmp_path: Path) -> None:
    """Those of the manager, and those that it has opened: the manager has them, so it could not open them again."""
    program, (port, _) = tmp_path / "program.py", free_ports()
    program.write_text(AGAIN)
    with closing(open_listener("127.0.0.1", 0)) as own:
        words = [sys.executable, str(program), str(port_of(own)), str(port)]
        done = run_with(own.fileno(), f"os.execv({sys.executable!r}, {words!r})")
        assert done.stdout.split() == [str(port_of(own)), str(port)], done.stderr


def test_a_descriptor_that_does_not_listen_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        done = run_with(file.fileno(), TAKE)
        assert "ConfigError: descriptor 3 of the service manager" in done.stderr
    with socket.socket() as idle:
        assert "is no listening TCP socket" in run_with(idle.fileno(), TAKE).stderr


def test_a_kept_socket_that_was_closed_is_left_out() -> None:
    with socket.socket() as idle:
        passing_it = passing(idle.fileno(), "stored-9876-127.0.0.1")
        words = [sys.executable, "-c", f"import os; {passing_it}\n{TAKE}\nm.close_rest(); print('done')"]
        done = subprocess.run(words, pass_fds=[idle.fileno()], capture_output=True, text=True, check=False)
        assert done.stdout == "done\n", done.stderr


@contextmanager
def name_server(home: Path, port: int, passed: Passed | None = None, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start it under a manager that hears it at `home`/notify."""
    settings = (f"listenPort={port}", *more)
    command = [sys.executable, "-m", "rocketpy", "namesrv", *(word for one in settings for word in ("--set", one))]
    descriptors = [] if passed is None else [passed.socket.fileno()]
    code = "".join(f"{passing(one, passed.name if passed else '')}\n" for one in descriptors)
    words = [sys.executable, "-c", f"import os\n{code}os.execv({sys.executable!r}, {command!r})"]
    own = {"HOME": str(home), "NOTIFY_SOCKET": str(home / "notify"), "WATCHDOG_USEC": "900000"}
    server = subprocess.Popen(words, env={**os.environ, **own}, pass_fds=descriptors, stdout=subprocess.DEVNULL)
    try:
        yield server
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(DEADLINE_S)


@pytest.mark.parametrize("has_sockets", [False, True], ids=["own ports", "passed ports"])
def test_a_name_server_says_that_it_is_ready_and_alive(tmp_path: Path, has_sockets: bool) -> None:
    _, port = free_ports()
    with heard(tmp_path / "notify") as own, ExitStack() as stack:
        passed = Passed(stack.enter_context(closing(open_listener("127.0.0.1", port)))) if has_sockets else None
        server = stack.enter_context(name_server(tmp_path, port, passed))
        if not has_sockets:
            text, (same,) = hear(own)
            stack.enter_context(same)
            assert text == f"FDSTORE=1\nFDNAME=stored-{port}-127.0.0.1"
        for expected in ("READY=1\nWATCHDOG_USEC=900000", "WATCHDOG=1", "WATCHDOG=1"):
            assert hear(own) == (expected, [])
        socket.create_connection(("127.0.0.1", port), DEADLINE_S).close()
        server.send_signal(signal.SIGTERM)
        assert server.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("words", [("listenPort=none",), ("x",)], ids=["a property", "an argument"])
def test_a_name_server_that_cannot_start_has_no_socket_kept(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Clients would wait in it while the manager tries to start the server again and again."""
    with heard(tmp_path / "notify") as own, closing(open_listener("127.0.0.1", 0)) as opened:
        passed = Passed(opened, f"stored-{port_of(opened)}-127.0.0.1")
        with name_server(tmp_path, port_of(opened), passed, *words) as server:
            assert server.wait(DEADLINE_S) != 0
        assert hear(own) == (f"FDSTOREREMOVE=1\nFDNAME={passed.name}", [])


@pytest.mark.parametrize(
    "words",
    [(TAKE, "os.kill(os.getpid(), 9)"), ("os.environ['LISTEN_FDS'] = '99'", TAKE)],
    ids=["a signal", "a descriptor"],
)
def test_a_start_that_dies_has_no_socket_kept(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Fault: Clients waited without end for a server that a signal ended in each recovery.

    They did as well if a descriptor of its socket unit could not be used.
    """
    with heard(tmp_path / "notify") as own, closing(open_listener("127.0.0.1", 0)) as opened:
        name = f"stored-{port_of(opened)}-127.0.0.1"
        environment = f"os.environ['NOTIFY_SOCKET'] = {str(tmp_path / 'notify')!r}"
        assert run_with(opened.fileno(), environment, *words, name=name).returncode != 0
        assert hear(own) == (f"FDSTOREREMOVE=1\nFDNAME={name}", [])


def test_a_child_of_the_main_process_may_become_ready(tmp_path: Path) -> None:
    """With automatic failover it does, and has the sockets kept."""
    with heard(tmp_path / "notify") as own, closing(open_listener("127.0.0.1", 0)) as opened:
        manager = ServiceManager(str(tmp_path / "notify"))
        manager.keep("127.0.0.1", port_of(opened), [opened.fileno()])
        child = os.fork()
        if child == 0:
            manager.tell_ready()
            os._exit(0)
        os.waitpid(child, 0)
        text, (same,) = hear(own)
        with same:
            assert text.startswith("FDSTORE=1\n") and same.getsockname() == opened.getsockname()
        assert hear(own) == ("READY=1", [])


def test_connections_wait_while_a_killed_name_server_is_away(tmp_path: Path) -> None:
    """Also one that comes when the backlog is full of connections whose clients have gone."""
    _, port = free_ports()
    with heard(tmp_path / "notify") as own, ExitStack() as stack:
        with name_server(tmp_path, port, None, "serverSocketBacklog=4") as server:
            text, (same,) = hear(own)
            server.kill()
        while is_readable(own.fileno(), 0):
            own.recv(200)
        connections = [stack.enter_context(socket.socket()) for _ in range(8)]  # 5 of them find room
        for connection in connections:
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
        *gone, waiting = connections
        for connection in gone:
            connection.close()
        passed = Passed(stack.enter_context(same), text.split("=")[-1])
        stack.enter_context(name_server(tmp_path, port, passed, "serverSocketBacklog=4"))
        for expected in ("FDSTOREREMOVE=1", "FDSTORE=1", "READY=1"):
            told, sockets = hear(own)
            assert told.startswith(expected)
            for one in sockets:
                one.close()
        waiting.settimeout(DEADLINE_S)
        waiting.sendall(RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO).encode())
        assert waiting.recv(4) != b""
