"""What a slave asks its master before it takes bytes: where the master's log begins and ends, and its file size.

By requests that brokers of the reference answer as well: GET_BROKER_CONFIG (26) and GET_BROKER_RUNTIME_INFO (28).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

import attrs

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import parse_addresses, properties
from rocketpy.errors import RocketError
from rocketpy.remoting.bodies.kv import KVTable
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import FrameCutter

from .errors import MasterUnusable

ANSWER_MAX = 4 * 1024 * 1024  # bytes of an answer
RECEIVE_SIZE = 65_536


@attrs.frozen
class MasterLog:
    """The master's log at one moment."""

    file_size: int  # mappedFileSizeCommitLog
    begin: int
    end: int


def connect(address: str, timeout_s: float) -> socket.socket:
    """A connection to `host:port`.

    Raises:
        MasterUnusable: there is none.
    """
    try:
        host, port = parse_addresses(address)[0]
        connection = socket.create_connection((host, port), timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, ValueError) as exc:
        raise MasterUnusable(f"cannot connect to {address}: {exc}") from exc
    return connection


def ask_master(address: str, timeout_s: float) -> MasterLog:
    """Ask the master at `address` for its log. `timeout_s` is for each of three steps.

    Raises:
        MasterUnusable: it does not answer, or not as a broker does.
    """
    with connect(address, timeout_s) as connection:
        connection.settimeout(timeout_s)
        try:
            config = properties.as_mapping(_ask(connection, RequestCode.GET_BROKER_CONFIG).decode())
            runtime = KVTable.decode(_ask(connection, RequestCode.GET_BROKER_RUNTIME_INFO)).table
            return MasterLog(
                _number(config, "mappedFileSizeCommitLog"),
                _number(runtime, "commitLogMinOffset"),
                _number(runtime, "commitLogMaxOffset"),
            )
        except (RocketError, OSError, UnicodeDecodeError, ValueError) as exc:
            raise MasterUnusable(f"the master {address} does not tell where its log begins and ends: {exc}") from exc


def _ask(connection: socket.socket, code: RequestCode) -> bytes:
    """The body of the answer."""
    connection.sendall(RemotingCommand.request(code).encode())
    cutter = FrameCutter(frame_size_max=ANSWER_MAX)
    while (frame := cutter.next_frame()) is None:
        data = connection.recv(RECEIVE_SIZE)
        if not data:
            raise MasterUnusable("it closed the connection")
        cutter.feed(data)
    answer = RemotingCommand.from_frame(frame)
    if answer.code != ResponseCode.SUCCESS:
        raise MasterUnusable(f"code {answer.code} for {code.name}: {answer.remark}")
    return answer.body or b""


def _number(table: Mapping[str, str], key: str) -> int:
    if key not in table:
        raise ValueError(f"there is no {key} in its answer")
    return int(table[key])
