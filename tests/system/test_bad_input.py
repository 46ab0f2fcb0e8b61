"""Whatever arrives on a port, the connection concerned is answered or closed; nobody else notices.

While each test runs, another connection sends and is served; after all of them the workers are the same processes and
hold no more memory than a stated margin.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, disk_directory, free_ports, running_broker
from tests.support.hostile_run import memory
from tests.support.waiting import metrics_page
from tests.support.wire import Wire, max_offset, offset_request, pull_request, read_all, send_request, until

TOPIC = "Bystander"
BODY_MAX = 4 << 20
FRAME_MAX = 16 << 20
CONNECTIONS = 10_000
CONNECTIONS_AT_ONCE = 100
MARGIN_BYTES = FRAME_MAX  # over the whole tree; a large frame's memory goes back when it has been served
DEEP = 200_000


@attrs.define
class Tree:
    broker: RunningBroker
    metrics_port: int

    def memory(self) -> int:
        return memory(self.broker)

    def metrics(self) -> str:
        return metrics_page(self.metrics_port)


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    metrics_port, _ = free_ports()
    with disk_directory() as disk, running_broker({"metricsPort": str(metrics_port)}, store=Path(disk) / "s") as broker:
        running = Tree(broker, metrics_port)
        with Wire.open(broker.port) as wire:  # everything that is made once is made: buffers, topic, index, metrics
            for size in (10, BODY_MAX):
                assert wire.ask(send_request(TOPIC, bytes(size))).code == ResponseCode.SUCCESS
        running.metrics()
        workers, before = broker.workers(), running.memory()
        yield running
        assert broker.workers() == workers
        assert "rocketpy_worker_restarts_total" in running.metrics()
        until(lambda: running.memory() <= before + MARGIN_BYTES, f"memory near {before}, now {running.memory()}", 20)
        assert broker.stop() == 0
        assert "Traceback" not in broker.text(), broker.text()


@pytest.fixture(autouse=True)
def bystander(tree: Tree) -> Iterator[None]:
    """A connection that is served all the time."""
    stopping, failures = threading.Event(), list[object]()

    def serve() -> None:
        try:
            with Wire.open(tree.broker.port) as wire:
                while not stopping.is_set():
                    answer = wire.ask(send_request(TOPIC, b"served"))
                    if answer.code != ResponseCode.SUCCESS:
                        failures.append(answer)
        except (OSError, EOFError) as exc:
            failures.append(exc)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    stopping.set()
    thread.join(60)
    assert not thread.is_alive() and not failures


def frame(header: bytes, body: bytes = b"", *, kind: int = 0, header_size: int | None = None) -> bytes:
    descriptor = kind << 24 | (len(header) if header_size is None else header_size)
    return struct.pack(">II", 4 + len(header) + len(body), descriptor) + header + body


def header(**fields: object) -> bytes:
    return json.dumps({"code": 34, "flag": 0, "language": "JAVA", "opaque": 1, "version": 409} | fields).encode()


NO_FRAMES = {
    "garbage": bytes(range(1, 256)) * 40,
    "http": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls hello": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "negative length": struct.pack(">i", -1) + bytes(64),
    "length beyond the limit": struct.pack(">i", FRAME_MAX - 3) + bytes(64),
    "length 0": struct.pack(">i", 0) + bytes(64),
    "length 3": struct.pack(">i", 3) + bytes(64),
    "unknown serialisation": frame(header(), kind=7),
    "header past the frame": frame(header(), header_size=len(header()) + 1),
    "header far past the frame": frame(header(), header_size=0xFFFFFF),
    "empty header": frame(b""),
    "header that is no json": frame(b"{'code': 34}"),
    "header that is a json list": frame(b"[1, 2, 3]"),
    "half a header": frame(header()[:-1]),
    "header not utf-8": frame(b'{"code":34,"opaque":1,"flag":0,"remark":"\xff\xfe"}'),
    "deep header": frame(b'{"code":34,"extFields":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "deep unended header": frame(b'{"code":34,"extFields":' + b'{"a":' * DEEP),
    "rocketmq header too short": frame(bytes(20), kind=1),
    "rocketmq remark past the header": frame(struct.pack(">hBhiii", 34, 0, 409, 1, 0, 1 << 30) + bytes(8), kind=1),
    "rocketmq negative lengths": frame(struct.pack(">hBhiiii", 34, 0, 409, 1, 0, -1, -1) + bytes(8), kind=1),
}


def answered_or_closed(wire: Wire) -> RemotingCommand | None:
    try:
        return wire.read()
    except (EOFError, ConnectionError):
        return None


@pytest.mark.parametrize("data", NO_FRAMES.values(), ids=NO_FRAMES.keys())
@pytest.mark.parametrize("port", ["main", "vip"])
def test_what_is_no_frame_closes_its_connection(tree: Tree, data: bytes, port: str) -> None:
    with Wire.open(tree.broker.port - (2 if port == "vip" else 0)) as wire:
        try:
            wire.sock.sendall(data)
        except ConnectionError:
            return
        answer = answered_or_closed(wire)
        assert answer is None, f"answered {answer}"


def test_what_came_before_the_garbage_is_served(tree: Tree) -> None:
    with Wire.open(tree.broker.port) as wire:
        request = wire.number(send_request(TOPIC, b"first"))
        wire.sock.sendall(request.encode() + NO_FRAMES["unknown serialisation"])
        answer = answered_or_closed(wire)
        assert answer is None or answer.code == ResponseCode.SUCCESS
        assert wire.is_closed_by_peer()


BODIES = {
    "deep list": b"[" * DEEP + b"]" * DEEP,
    "deep object": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "unended": b'{"clientID":"x","consumerDataSet":[',
    "not utf-8": b"\xff\xfe\x00",
    "list": b"[1,2,3]",
    "number": b"17",
    "wrong types": b'{"clientID":[],"consumerDataSet":{"a":1},"producerDataSet":7,"group":4,"mqSet":"x"}',
    "null": b"null",
    "none": b"",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize(
    "code",
    [RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ, RequestCode.CHECK_CLIENT_CONFIG],
)
def test_a_body_of_another_form_is_answered_and_the_connection_goes_on(tree: Tree, body: bytes, code: int) -> None:
    with Wire.open(tree.broker.port) as wire:
        answer = wire.ask(RemotingCommand.request(code, body=body or None))
        assert answer.is_response
        assert wire.ask(send_request(TOPIC, b"next")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("value", [7, True, None, 1.5, {"a": 1}, [1], "\x00", "nan", "-1", "9" * 400, "\ud800"])
@pytest.mark.parametrize(
    "code",
    [
        RequestCode.GET_MAX_OFFSET,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.PULL_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.QUERY_MESSAGE,
    ],
)
def test_fields_that_are_no_strings_are_answered_or_close(tree: Tree, value: object, code: int) -> None:
    names = ["topic", "queueId", "consumerGroup", "queueOffset", "commitOffset", "maxMsgNums", "subscription", "key"]
    names += ["a", "b", "e", "f", "i", "maxNum", "readQueueNums", "writeQueueNums", "perm"]
    for fields in (dict.fromkeys(names, value), dict.fromkeys(names, "Bystander") | {"queueId": value, "e": value}):
        with Wire.open(tree.broker.port) as wire:
            wire.sock.sendall(frame(header(code=code, extFields=fields), b"body"))
            answer = answered_or_closed(wire)
            assert answer is None or answer.opaque == 1


def test_byte_by_byte_is_as_good_as_at_once(tree: Tree) -> None:
    with Wire.open(tree.broker.port) as wire:
        wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = wire.number(send_request("Slowly", b"a body"))
        for byte in request.encode():
            wire.sock.sendall(bytes([byte]))
        assert wire.read().code == ResponseCode.SUCCESS
        assert [record.body for record in read_all(wire, "Slowly", 1)] == [b"a body"]


def test_half_frames_left_behind(tree: Tree) -> None:
    whole = send_request(TOPIC, bytes(1000)).encode()
    for size in (1, 4, 8, 100, len(whole) - 1):
        with Wire.open(tree.broker.port) as wire:
            wire.sock.sendall(whole[:size])
            wire.sock.shutdown(socket.SHUT_WR)
            assert wire.is_closed_by_peer()


def test_the_largest_bodies(tree: Tree) -> None:
    with Wire.open(tree.broker.port) as wire:
        assert wire.ask(send_request("Large", bytes(BODY_MAX))).code == ResponseCode.SUCCESS
        assert wire.ask(send_request("Large", bytes(BODY_MAX + 1))).code == ResponseCode.MESSAGE_ILLEGAL
        assert wire.ask(send_request("Large", bytes(12 << 20))).code == ResponseCode.MESSAGE_ILLEGAL
        request = wire.number(send_request("Large", b""))
        room = FRAME_MAX - len(request.encode())
        request.body = bytes(room)
        wire.sock.sendall(request.encode())
        assert wire.read().code == ResponseCode.MESSAGE_ILLEGAL
        assert len(read_all(wire, "Large", 1)[0].body) == BODY_MAX
        image = request.encode()
        try:
            wire.sock.sendall(struct.pack(">i", FRAME_MAX - 3) + image[4:] + b"x")
        except ConnectionError:
            return
        assert wire.is_closed_by_peer()


def test_a_peer_that_asks_for_much_and_never_reads(tree: Tree) -> None:
    """Replies of hundreds of MiB are asked for; the bystander is served, and the tree does not hold them."""
    with Wire.open(tree.broker.port) as wire:
        for _ in range(32):
            assert wire.ask(send_request("Bulk", bytes(100_000))).code == ResponseCode.SUCCESS
        until(lambda: max_offset(wire, "Bulk") == 32, "dispatch")
        read_all(wire, "Bulk", 32)
    before = tree.memory()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", tree.broker.port))
        deaf.settimeout(1)
        one = pull_request("Bulk", 0).encode() + offset_request(RequestCode.GET_MAX_OFFSET, "Bulk").encode()
        try:
            for _ in range(4_000):
                deaf.sendall(one)
        except (TimeoutError, ConnectionError):
            pass  # back-pressure, or cut off: both are right
        assert tree.memory() < before + MARGIN_BYTES
        with Wire.open(tree.broker.port) as wire:
            assert len(read_all(wire, "Bulk", 32)) == 32


def test_connections_that_come_and_go(tree: Tree) -> None:
    for _ in range(CONNECTIONS // CONNECTIONS_AT_ONCE):
        group = [socket.create_connection(("127.0.0.1", tree.broker.port), 60) for _ in range(CONNECTIONS_AT_ONCE)]
        for sock in group:
            sock.close()
    until(lambda: open_connections(tree) <= 3, "closed connections are let go")


def open_connections(tree: Tree) -> float:
    lines = [line for line in tree.metrics().splitlines() if line.startswith("rocketpy_remoting_connections{")]
    assert lines
    return sum(float(line.rpartition(" ")[2]) for line in lines)
