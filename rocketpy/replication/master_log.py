"""The start, end and file size of the master's log, which a slave asks for before it takes bytes.

By requests that brokers of the reference answer as well: GET_BROKER_CONFIG (26) and GET_BROKER_RUNTIME_INFO (28);
and by GET_REPLICATION_VERSION, which only a broker of rocketpy supports.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import parse_addresses, properties
from rocketpy.errors import RocketError
from rocketpy.faults import printable
from rocketpy.message.host import PORT_MAX, format_host
from rocketpy.message.numbers import LONG_MAX, int_or, parse_integer
from rocketpy.remoting.bodies.route import KVTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import FrameCutter
from rocketpy.remoting.signature import Credentials, sign

from .connection import connect
from .errors import MasterUnusable
from .frames import Fields
from .versions import Versions, read_versions

if TYPE_CHECKING:
    import ssl

ANSWER_MAX = 4 * 1024 * 1024  # bytes of an answer
RECEIVE_SIZE = 65_536


@attrs.frozen
class MasterLog:
    """The master's log at one moment."""

    file_size: int  # mappedFileSizeCommitLog
    begin: int
    end: int
    versions: Versions | None = None  # of rocketpy's frames on the HA port; None: those of the reference
    ha_address: str | None = None  # host:port that it gives its slaves; None: it does not say


def request_address(ha: str) -> str:
    """The reference's HA port is the one after that for requests.

    Raises:
        ValueError: `ha` is no address, or has no port before its own.
    """
    host, port = parse_addresses(ha)[0]
    if port < 2:
        raise ValueError(f"{ha} has no port before it, where the master would serve requests")
    return format_host((host, port - 1))


@attrs.frozen
class Caller:
    """Ways to ask a master: by TLS, with a signature, both, or neither."""

    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None


PLAIN = Caller()


def ask_master(address: str, timeout_s: float, caller: Caller = PLAIN) -> MasterLog:
    """Ask the master at `address` for its log. `timeout_s` is for the connection, and again for both answers.

    Raises:
        MasterUnusable: it does not answer, or not as a broker does.
    """
    with connect(address, timeout_s, caller.tls) as connection:
        asked = _Asked(connection, time.monotonic() + timeout_s, caller.credentials)
        try:
            config = properties.as_mapping(asked.body(RequestCode.GET_BROKER_CONFIG).decode())
            runtime = KVTable.decode(asked.body(RequestCode.GET_BROKER_RUNTIME_INFO)).table
            return _plausible(
                MasterLog(
                    _number(config, "mappedFileSizeCommitLog"),
                    _number(runtime, "commitLogMinOffset"),
                    _number(runtime, "commitLogMaxOffset"),
                    asked.versions(),
                    _ha_address(config),
                )
            )
        except (RocketError, OSError, UnicodeDecodeError, ValueError) as exc:
            raise MasterUnusable(f"the master {address} does not tell where its log begins and ends: {exc}") from exc


@attrs.frozen(eq=False)
class _Asked:
    """A master that is asked over one connection; all answers are whole at `until_s` (monotonic)."""

    connection: socket.socket
    until_s: float
    credentials: Credentials | None

    def versions(self) -> Versions | None:
        answer = self._answer(RequestCode.GET_REPLICATION_VERSION)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return None
        versions = read_versions(Fields(_body(answer, RequestCode.GET_REPLICATION_VERSION)))
        if versions.lowest < 1:
            raise ValueError("its replication version is not a number above 0")
        return versions

    def body(self, code: RequestCode) -> bytes:
        """The body of the answer."""
        return _body(self._answer(code), code)

    def _answer(self, code: RequestCode) -> RemotingCommand:
        request = RemotingCommand.request(code)
        if self.credentials is not None:
            sign(request, self.credentials)
        self.connection.settimeout(_left(self.until_s))
        self.connection.sendall(request.encode())
        cutter = FrameCutter(frame_size_max=ANSWER_MAX)
        while (frame := cutter.next_frame()) is None:
            self.connection.settimeout(_left(self.until_s))
            data = self.connection.recv(RECEIVE_SIZE)
            if not data:
                raise MasterUnusable("it closed the connection")
            cutter.feed(data)
        return RemotingCommand.from_frame(frame)


def _plausible(log: MasterLog) -> MasterLog:
    """`log`, if a log can lie there. Raises: ValueError: it cannot."""
    if not log.file_size or log.begin > log.end:
        raise ValueError(f"its log cannot lie from {log.begin} to {log.end} in files of {log.file_size} bytes")
    return log


def _ha_address(config: Mapping[str, str]) -> str | None:
    """Return the HA address that the master names, to which `doctor` connects. A slave has it from a name server."""
    host, port = config.get("brokerIP2"), int_or(config.get("haListenPort"), 0)
    return format_host((host, port)) if host and 0 < port <= PORT_MAX else None


def _body(answer: RemotingCommand, code: RequestCode) -> bytes:
    if answer.code != ResponseCode.SUCCESS:
        remark = printable(answer.remark or "")
        raise MasterUnusable(f"code {answer.code} for {code.name}: {remark}")
    return answer.body or b""


def _number(table: Mapping[str, str], key: str) -> int:
    if key not in table:
        raise ValueError(f"there is no {key} in its answer")
    return parse_integer(table[key], 0, LONG_MAX)


def _left(until_s: float) -> float:
    """Seconds until `until_s`. Raises: TimeoutError: none are left."""
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no whole answer in time")
    return left_s
