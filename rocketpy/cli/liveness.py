"""`rocketpy doctor --live`: asks the servers that run here for an answer, for health checks and probes.

A server is found by its command line in /proc, which the parser of that command reads: so its port is that of its own
file and environment. Workers have other titles. Servers of another network are left out (containers, on their host).
The question is a small query, which the manager of a broker or the name server answers; a server that is not ready, or
hangs, does not. Any answer will do, a refusal as well.

A full server (connectionsMax, open files, addressConnectionsMax) closes the connection. It counts as alive: a server
that hangs leaves an accepted connection open, and a restart would end the connections of all clients. If a process of
the server ended meanwhile, its end closed the connection, and the check fails. It does not see the workers behind a
full selector; the supervisor replaces those that hang.

It runs every few seconds, and imports neither the client nor the other checks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import click

from rocketpy.acl.credentials import read_credentials
from rocketpy.codes import RequestCode
from rocketpy.config import BrokerSettings, NamesrvSettings, TlsMode, load_broker_config, load_namesrv_config
from rocketpy.errors import ConfigError, RocketError
from rocketpy.message.host import format_host
from rocketpy.networks import is_in, parse_address, parse_networks
from rocketpy.processes.boot.serving import RUN, ServerCommand
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import FrameCutter
from rocketpy.remoting.signature import sign

TIMEOUT_S = 3.0  # of one server
REAPED_S = 0.2  # a process that has ended is in /proc until its parent has noticed
CHUNK_BYTES = 65_536
INTERPRETERS = ("python", "pypy")
WITH_VALUE = ("-X", "-W")  # options of an interpreter whose value is the next word
REACHED_BY = {"": "127.0.0.1", "*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # bindAddress: an address of it
NAME = "rocketpy-doctor"
Programs = Mapping[str, click.Command]  # by name


@attrs.frozen
class Port:
    """The main port of a server that runs here, and how to ask it."""

    server: str  # "broker" or "name server"
    address: tuple[str, int]
    is_tls: bool = False
    credentials_file: str = ""  # of the broker's own account; empty: the question is not signed
    proxies: str = ""  # peers that must begin with a PROXY header
    pid: int = attrs.field(default=0, eq=False)  # of the server's first process

    def question(self) -> RemotingCommand:
        """Return a request that changes nothing; unsigned, if the file of the account cannot be used: a refusal is an
        answer as well, and such a file is no reason to restart a broker."""
        if self.server == "broker":
            asked = RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext_fields={"consumerGroup": NAME})
        else:
            asked = RemotingCommand.request(RequestCode.GET_KV_CONFIG, ext_fields={"namespace": NAME, "key": NAME})
        if self.credentials_file:
            with contextlib.suppress(ConfigError):
                sign(asked, read_credentials(Path(self.credentials_file)))
        return asked


def examine_servers(programs: Programs, proc: Path = Path("/proc")) -> int:
    """Print a line for each server that runs here. Returns the exit status: 0 if some run, and each answers or is full.

    Args:
        programs: those that run servers.
    """
    try:
        ports = sorted(set(running_ports(programs, proc)), key=lambda port: port.address[1])
    except RocketError as exc:
        print(f"rocketpy: {exc}")
        return 1
    if not ports:
        print("rocketpy: no server runs here, or none that this user may look at")
        return 1
    return max([_report(port, proc) for port in ports])


def _report(port: Port, proc: Path) -> int:
    place = f"{port.server} at {format_host(port.address)}"
    processes = _descendants(port.pid, proc)
    start_s = time.monotonic()
    try:
        is_answer = ask(port)
    except (OSError, RocketError) as exc:
        print(f"rocketpy: {place} does not answer: {exc or type(exc).__name__}; see its log")
        return 1
    took_ms = (time.monotonic() - start_s) * 1000
    if is_answer:
        print(f"{place}: answers in {took_ms:.1f} ms")
        return 0
    time.sleep(REAPED_S)
    if ended := processes - _descendants(port.pid, proc):
        print(f"rocketpy: {place} closes new connections, because its process {min(ended)} ended; see its log")
        return 1
    print(f"{place}: is alive, and closes new connections after {took_ms:.1f} ms: it may be full; see its log")
    return 0


def _descendants(pid: int, proc: Path) -> set[int]:
    """Return the processes that this one and its children have forked; none where the kernel does not list them."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for child in map(int, (proc / f"{pid}/task/{pid}/children").read_text().split()):
            found |= {child} | _descendants(child, proc)
    return found


def ask(port: Port) -> bool:
    """Ask a server. Returns True if it answers, False if it closes the connection.

    Raises:
        OSError, RocketError: it accepts no connection, is silent, or sends something else.
    """
    due_s = time.monotonic() + TIMEOUT_S
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(port.address, TIMEOUT_S))
        try:
            own = parse_address(connection.getsockname()[0])
            if is_in(own, parse_networks(port.proxies)):
                connection.sendall(b"PROXY UNKNOWN\r\n")
            if port.is_tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it is this machine: nobody's name is checked
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                connection = stack.enter_context(context.wrap_socket(connection))
            _exchange(connection, port.question(), due_s)
        except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
            return False
        except ssl.SSLError as exc:
            if "ALERT" not in (exc.reason or ""):  # an alert is an answer: it asks for a certificate of the client
                raise
    return True


def _exchange(connection: socket.socket, question: RemotingCommand, due_s: float) -> None:
    connection.sendall(question.encode())
    cutter = FrameCutter()
    while cutter.next_frame() is None:
        connection.settimeout(max(0.001, due_s - time.monotonic()))
        received = connection.recv(CHUNK_BYTES)
        if not received:
            raise ConnectionResetError
        cutter.feed(received)


def running_ports(programs: Programs, proc: Path) -> Iterator[Port]:
    """Yield the ports of the servers that this user may look at, in the network of this process.

    Raises:
        ConfigError: the configuration of one cannot be read any more.
    """
    for directory in sorted(proc.iterdir()):
        if not directory.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            command = server_command_of(_texts(directory / "cmdline"), programs)
            if command is None or os.readlink(directory / "ns/net") != os.readlink(proc / "self/ns/net"):
                continue
            pairs = (text.partition("=") for text in _texts(directory / "environ"))
            environ = {name: value for name, _, value in pairs}
            for port in ports_of(command, environ, Path(os.readlink(directory / "cwd"))):
                yield attrs.evolve(port, pid=int(directory.name))


def _texts(file: Path) -> list[str]:
    return file.read_bytes().decode(errors="surrogateescape").split("\0")[:-1]


def server_command_of(words: list[str], programs: Programs) -> ServerCommand | None:
    """Return the server that a process with this command line runs; None: it runs none."""
    at = _place_of_program(words)
    program = Path(words[at]).name if at < len(words) else ""
    if program not in programs or (program == "rocketpy" and not RUN.keys() & set(words[at + 1 : at + 2])):
        return None
    found: list[ServerCommand] = []
    with contextlib.suppress(click.ClickException, click.exceptions.Exit):  # --help, or wrong arguments
        programs[program](args=words[at + 1 :], prog_name=program, obj=found.append, standalone_mode=False)
    return found[0] if found else None


def _place_of_program(words: list[str]) -> int:
    """Return the place of SCRIPT in PYTHON [OPTION...] SCRIPT ARGUMENT..., of rocketpy in PYTHON -m rocketpy, or 0.

    A name elsewhere is an argument: of `man mqbroker`, or of an editor.
    """
    if not words or not Path(words[0]).name.startswith(INTERPRETERS):
        return 0
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-m":
            return at + 1
        at += 2 if words[at] in WITH_VALUE else 1
    return at


def ports_of(command: ServerCommand, environ: Mapping[str, str], directory: Path) -> Iterator[Port]:
    """Yield the ports of a server that was started in `directory`.

    Raises:
        ConfigError: as its start does.
    """
    given = command.arguments
    file = directory / given["config"] if given["config"] else None
    if file is not None and file.exists() and not file.is_file():  # reading a pipe would take what is not ours, or hang
        raise ConfigError("is no regular file, so the ports of the server cannot be read", file=file)
    if command.kind == "namesrv":
        yield _namesrv_port(load_namesrv_config(file, given["overrides"], environ))
        return
    if command.kind == "broker":
        broker = load_broker_config(file, given["overrides"], environ)
    else:
        from rocketpy.processes.boot.standalone import standalone_settings

        broker, namesrv = standalone_settings(
            file, given["overrides"], given["defaults"], given["namesrv_port"], environ
        )
        yield _namesrv_port(namesrv, broker.broker.acl_credentials_file or "")
    yield _port("broker", broker, broker.broker.acl_credentials_file or "")


def _namesrv_port(settings: NamesrvSettings, credentials_file: str = "") -> Port:
    return _port("name server", settings, credentials_file)


def _port(server: str, settings: BrokerSettings | NamesrvSettings, credentials_file: str) -> Port:
    bind = settings.server.bind_address
    return Port(
        server,
        (REACHED_BY.get(bind, bind), settings.server.listen_port),
        settings.tls.tls_server_mode is TlsMode.ENFORCING,
        credentials_file,
        settings.rocketpy.proxy_protocol_from,
    )
