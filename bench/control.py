"""A small blocking client for tasks around a load: create a topic, query offsets, read messages back."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType

import attrs

from rocketpy.bench.encoding import SEND_MESSAGE_V2, frame, properties, pull_fields, send_fields, unique_key_prefix

UPDATE_AND_CREATE_TOPIC, GET_MAX_OFFSET, GET_ROUTEINFO_BY_TOPIC, PULL_MESSAGE = 17, 30, 105, 11
GET_BROKER_RUNTIME_INFO = 28
RECORD_HEAD = struct.Struct(
    ">i"  # record size
    "I"  # magic
    "8x"  # CRC, queue id
    "4x"  # flag
    "q"  # queue offset
    "8x"  # physical offset
    "i"  # sysFlag
)


class RequestFailed(Exception):
    """The broker answered with an error code."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"code {code}: {remark}")
        self.code = code


@attrs.frozen
class StoredMessage:
    queue_id: int
    queue_offset: int
    unique_key: str
    body_size: int


@attrs.frozen
class Reply:
    code: int
    remark: str
    fields: Mapping[str, str]
    body: bytes
    opaque: int


class Control:
    """One connection, one request at a time. Errors are exceptions: OSError of the socket, RequestFailed."""

    def __init__(self, host: str, port: int, timeout_s: float = 5.0, *, source: str | None = None) -> None:
        """Connect. `source`: the address of this end; None: any."""
        near = (source, 0) if source else None
        self._socket = socket.create_connection((host, port), timeout=timeout_s, source_address=near)
        self._opaque = 0

    def __enter__(self) -> Control:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def request(self, code: int, sent: Mapping[str, str], body: bytes = b"") -> Reply:
        self._opaque += 1
        self._socket.sendall(frame(code, sent, body, opaque=self._opaque))
        while (reply := self._reply()).opaque != self._opaque:
            continue
        return reply

    def _reply(self) -> Reply:
        while True:  # a broker may push requests of its own in between
            size, descriptor = struct.unpack(">iI", self._receive(8))
            rest = self._receive(size - 4)
            header = json.loads(rest[: descriptor & 0xFFFFFF])
            if header.get("flag", 0) & 1:
                body_at = descriptor & 0xFFFFFF
                fields = header.get("extFields") or {}
                return Reply(header["code"], header.get("remark") or "", fields, rest[body_at:], header["opaque"])

    def check(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Reply:
        reply = self.request(code, fields, body)
        if reply.code != 0:
            raise RequestFailed(reply.code, reply.remark)
        return reply

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)

    def create_topic(self, topic: str, queues: int) -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        self.check(UPDATE_AND_CREATE_TOPIC, fields)

    def send(self, topic: str, queue_id: int, body: bytes) -> Reply:
        fields = send_fields(
            topic, queue_id, properties(unique_key_prefix()), born_timestamp_ms=int(time.time() * 1000), batch=False
        )
        return self.check(SEND_MESSAGE_V2, fields, body)

    def runtime_info(self) -> Mapping[str, str]:
        table: dict[str, str] = json.loads(self.check(GET_BROKER_RUNTIME_INFO, {}).body)["table"]
        return table

    def has_route(self, topic: str) -> bool:
        """Sent to a name server."""
        return self.request(GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        return int(self.check(GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)}).fields["offset"])

    def max_offsets(self, topic: str, queues: int) -> list[int]:
        return [self.max_offset(topic, queue_id) for queue_id in range(queues)]

    def pull_each(self, queues: Sequence[tuple[str, int]], *, window: int = 64) -> Iterator[Reply]:
        """Pull one message from the beginning of each queue, `window` requests at a time; replies as they come."""
        for start in range(0, len(queues), window):
            some = queues[start : start + window]
            frames = [
                frame(PULL_MESSAGE, pull_fields(topic, queue_id, "0", 1, group="bench_reader"), opaque=opaque)
                for opaque, (topic, queue_id) in enumerate(some)
            ]
            self._socket.sendall(b"".join(frames))
            for _ in some:
                yield self._reply()

    def wait_for_offsets(self, topic: str, queues: int, expected: int, timeout_s: float = 30.0) -> list[int]:
        """Wait until the queues hold `expected` messages (dispatch may be behind) and do not grow; returns their
        ends."""
        deadline = time.monotonic() + timeout_s
        offsets = self.max_offsets(topic, queues)
        while time.monotonic() < deadline:
            time.sleep(0.1)
            before, offsets = offsets, self.max_offsets(topic, queues)
            if before == offsets and sum(offsets) >= expected:
                break
        return offsets

    def read_queue(self, topic: str, queue_id: int, *, group: str = "bench_reader") -> Iterator[StoredMessage]:
        """Read every message of a queue from offset 0 on, as the broker returns them."""
        offset = 0
        while True:
            reply = self.request(PULL_MESSAGE, pull_fields(topic, queue_id, str(offset), 32, group=group))
            if reply.code in (19, 21):
                return
            if reply.code != 0:
                raise RequestFailed(reply.code, reply.remark)
            yield from decode_records(reply.body, queue_id)
            offset = int(reply.fields["nextBeginOffset"])


def decode_records(data: bytes, queue_id: int) -> Iterator[StoredMessage]:
    at = 0
    while at < len(data):
        size, magic, queue_offset, sys_flag = RECORD_HEAD.unpack_from(data, at)
        if magic != 0xDAA320A7 or at + size > len(data):
            raise ValueError(f"queue {queue_id}: no record at byte {at} of {len(data)}")
        body_at = at + 88 + (12 if sys_flag & 16 else 0) + (12 if sys_flag & 32 else 0)
        body_size = int.from_bytes(data[body_at - 4 : body_at], "big")
        topic_at = body_at + body_size
        props_at = topic_at + 1 + data[topic_at] + 2
        pairs = (pair.partition(b"\x01") for pair in data[props_at : at + size].split(b"\x02"))
        key = next((value for name, _, value in pairs if name == b"UNIQ_KEY"), b"")
        yield StoredMessage(queue_id, queue_offset, key.decode(), body_size)
        at += size
