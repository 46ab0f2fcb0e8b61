"""A client of plain blocking sockets: what it sends and reads is exactly what the test says."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Self

import attrs

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.record import StoredRecord, decode_records
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.headers.pull import PullMessageRequestHeader
from rocketpy.remoting.headers.send import SendMessageRequestHeader

from .waiting import wait_until

TIMEOUT_S = 60.0  # generous: only a broker that is stuck reaches it


@attrs.define(eq=False)
class Wire:
    """One connection. Answers are read in the order in which they come; `ask` skips those to other requests."""

    sock: socket.socket
    serialize_type: SerializeType = SerializeType.JSON
    _opaques: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1))
    _buffer: bytearray = attrs.field(factory=bytearray)

    @classmethod
    def open(cls, port: int, serialize_type: SerializeType = SerializeType.JSON) -> Self:
        return cls(socket.create_connection(("127.0.0.1", port), TIMEOUT_S), serialize_type)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def number(self, request: RemotingCommand) -> RemotingCommand:
        request.opaque = next(self._opaques)
        request.serialize_type = self.serialize_type
        return request

    def tell(self, *requests: RemotingCommand) -> list[int]:
        """Send without waiting; the opaques."""
        numbered = [self.number(request) for request in requests]
        self.sock.sendall(b"".join(request.encode() for request in numbered))
        return [request.opaque for request in numbered]

    def ask(self, request: RemotingCommand) -> RemotingCommand:
        (opaque,) = self.tell(request)
        while True:
            answer = self.read()
            if answer.is_response and answer.opaque == opaque:
                return answer

    def read(self) -> RemotingCommand:
        """The next command from the peer.

        Raises:
            EOFError: it has closed the connection.
        """
        size = struct.unpack(">i", self._take(4))[0]
        return RemotingCommand.decode(struct.pack(">i", size) + self._take(size))

    def answers(self, opaques: Iterable[int]) -> dict[int, RemotingCommand]:
        """One answer to each of `opaques`."""
        missing, found = set(opaques), {}
        while missing:
            answer = self.read()
            if answer.opaque in missing:
                missing.discard(answer.opaque)
                found[answer.opaque] = answer
        return found

    def is_closed_by_peer(self) -> bool:
        """Wait for the peer to say or do something: True for the end of the connection, False for bytes."""
        try:
            return not self._buffer and not self.sock.recv(1)
        except ConnectionError:
            return True

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            chunk = self.sock.recv(1 << 20)
            if not chunk:
                raise EOFError("the peer closed the connection")
            self._buffer += chunk
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def send_request(
    topic: str,
    body: bytes,
    *,
    queue_id: int = 0,
    code: int = RequestCode.SEND_MESSAGE_V2,
    batch: bool = False,
    oneway: bool = False,
    properties: str | None = None,
) -> RemotingCommand:
    header = SendMessageRequestHeader(
        producer_group="PG",
        topic=topic,
        default_topic="TBW102",
        queue_id=queue_id,
        batch=batch,
        born_timestamp_ms=1_700_000_000_000,
        properties=properties,
    )
    spelled = header if code == RequestCode.SEND_MESSAGE else header.to_v2()
    return RemotingCommand.request(code, spelled, body, oneway=oneway)


def pull_request(
    topic: str,
    offset: int,
    *,
    queue_id: int = 0,
    group: str = "CG",
    hold_ms: int = 0,
    count: int = 32,
    expression: str = "*",
    code: int = RequestCode.PULL_MESSAGE,
) -> RemotingCommand:
    return RemotingCommand.request(
        code,
        PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=4 | (2 if hold_ms else 0),
            suspend_timeout_ms=hold_ms,
            subscription=expression,
        ),
    )


def offset_request(code: int, topic: str, queue_id: int = 0, **fields: str) -> RemotingCommand:
    """GET_MAX_OFFSET, GET_MIN_OFFSET and their like."""
    return RemotingCommand.request(code, ext_fields={"topic": topic, "queueId": str(queue_id), **fields})


def max_offset(wire: Wire, topic: str, queue_id: int = 0) -> int:
    answer = wire.ask(offset_request(RequestCode.GET_MAX_OFFSET, topic, queue_id))
    assert answer.code == ResponseCode.SUCCESS, answer
    return int((answer.ext_fields or {})["offset"])


def records_of(answer: RemotingCommand) -> list[StoredRecord]:
    return list(decode_records(answer.body or b""))


def read_all(wire: Wire, topic: str, count: int, queue_id: int = 0, group: str = "CG") -> list[StoredRecord]:
    """The first `count` messages of a queue, waiting for those that are not dispatched yet."""
    found: list[StoredRecord] = []
    while len(found) < count:
        answer = wire.ask(pull_request(topic, len(found), queue_id=queue_id, group=group, hold_ms=5_000))
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), answer
        found += records_of(answer)
    return found


def until(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """Wait for a state of a broker that must come about."""
    wait_until(condition, what, timeout_s, pause_s=0.02)
