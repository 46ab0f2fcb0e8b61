"""Clients that only send heartbeats, as a crowd of idle producers and consumers does.

They come from several loopback addresses, since one has too few ports for 50 000 connections, and each sends its
heartbeat every 30 s: all are producers, each fifth is a member of a consumer group of 20 besides. The limit of open
files holds for each process: there are as many processes of clients as it takes.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import resource
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection

import attrs

from .cluster import BenchFailed
from .own_broker import HOST

INTERVAL_S = 30.0
CLIENTS_PER_ADDRESS = 20_000
CONSUMER_EACH = 5
GROUP_SIZE = 20
CONNECTS_PER_TURN = 200
HEADER_AT = 8
DESCRIPTORS_KEPT = 1_000  # of each process, for other things than connections
CONNECT_S_MAX = 300.0
STOP_S_MAX = 30.0


@attrs.define(eq=False)
class Client:
    number: int
    sock: socket.socket
    due_s: float
    sent_s: float = 0.0
    rest: bytes = b""
    is_entered: bool = False  # a heartbeat of it was answered


@attrs.define
class Tally:
    """Counts of a process of idle clients."""

    heartbeats: int = 0
    refused: int = 0
    lost: int = 0
    latencies_ms: list[float] = attrs.field(factory=list)
    pss_bytes: int = 0  # of the broker, for each client

    def quantile_ms(self, quantile: float) -> float:
        ordered = sorted(self.latencies_ms)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * quantile))], 2) if ordered else 0.0


def heartbeat(number: int) -> bytes:
    """Encode the frame of client `number`."""
    group = f"group-{number // CONSUMER_EACH // GROUP_SIZE}"
    topics = ("TopicTest", f"%RETRY%{group}")
    subscriptions = [
        {
            "classFilterMode": False,
            "codeSet": [],
            "expressionType": "TAG",
            "subString": "*",
            "subVersion": 1,
            "tagsSet": [],
            "topic": topic,
        }
        for topic in topics
    ]
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    body = json.dumps(
        {
            "clientID": f"10.0.0.1@{number}",
            "consumerDataSet": [] if number % CONSUMER_EACH else [consumer],
            "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
        }
    ).encode()
    header = json.dumps(
        {
            "code": 34,
            "flag": 0,
            "language": "JAVA",
            "opaque": 1,
            "serializeTypeCurrentRPC": "JSON",
            "version": 409,
        }
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


class Crowd:
    """The clients of one process, in one loop."""

    def __init__(self, port: int, first: int, count: int) -> None:
        self._port, self._first, self._count = port, first, count
        self._selector = selectors.EpollSelector()
        self._clients: list[Client] = []
        self._due: deque[Client] = deque()  # in the order of their next heartbeats
        self._entered = 0  # clients; the first ones repeat their heartbeats before the last ones are answered
        self.tally = Tally()

    def connect(self) -> None:
        """Open all connections; each heartbeats at once."""
        while len(self._clients) < self._count:
            made = len(self._clients)
            for number in range(self._first + made, self._first + min(self._count, made + CONNECTS_PER_TURN)):
                sock = socket.socket()
                sock.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: ports by the pair of addresses
                sock.bind((f"127.0.1.{1 + number // CLIENTS_PER_ADDRESS}", 0))
                sock.connect((HOST, self._port))
                sock.setblocking(False)
                client = Client(number, sock, time.monotonic() + INTERVAL_S)
                self._clients.append(client)
                self._due.append(client)
                self._selector.register(sock, selectors.EVENT_READ, client)
                self._beat(client)
            self.run(0.05)

    def wait_answers(self) -> None:
        """Wait for an answer to each first heartbeat: to enter a client takes longer than to hear of it again."""
        deadline_s = time.monotonic() + CONNECT_S_MAX
        while self._entered + self.tally.lost < self._count and time.monotonic() < deadline_s:
            self.run(0.1)

    def close(self) -> None:
        for client in self._clients:
            client.sock.close()
        self._selector.close()

    def spread(self) -> None:
        """From now on the heartbeats of clients are spread over the interval."""
        start_s = time.monotonic()
        for client in self._clients:
            client.due_s = start_s + INTERVAL_S * (client.number - self._first) / self._count
        self._due = deque(self._clients)

    def run(self, seconds: float) -> None:
        """Read responses, and send due heartbeats."""
        end_s = time.monotonic() + seconds
        while (now_s := time.monotonic()) < end_s:
            while self._due[0].due_s <= now_s:
                client = self._due.popleft()
                client.due_s += INTERVAL_S
                self._due.append(client)
                self._beat(client)
            for key, _ in self._selector.select(min(0.02, end_s - now_s)):
                self._take(key.data)

    def _beat(self, client: Client) -> None:
        client.sent_s = time.monotonic()
        try:
            client.sock.send(heartbeat(client.number))
        except OSError:
            self.tally.lost += 1

    def _take(self, client: Client) -> None:
        try:
            data = client.sock.recv(65_536)
        except OSError:
            data = b""
        if not data:
            self.tally.lost += 1
            self._selector.unregister(client.sock)
            return
        client.rest += data
        while len(client.rest) >= HEADER_AT:
            size, header_size = struct.unpack_from(">ii", client.rest)
            if len(client.rest) < 4 + size:
                return
            header = json.loads(client.rest[HEADER_AT : HEADER_AT + (header_size & 0xFFFFFF)])
            client.rest = client.rest[4 + size :]
            if header["flag"] & 1:  # an answer; all else is news of members
                self._entered += not client.is_entered
                client.is_entered = True
                self.tally.heartbeats += 1
                self.tally.refused += header["code"] != 0
                self.tally.latencies_ms.append((time.monotonic() - client.sent_s) * 1000)


def sum_of(tallies: list[Tally]) -> Tally:
    return Tally(
        sum(tally.heartbeats for tally in tallies),
        sum(tally.refused for tally in tallies),
        sum(tally.lost for tally in tallies),
        [ms for tally in tallies for ms in tally.latencies_ms],
    )


def _process_room() -> int:
    """Return how many connections one process may have open."""
    return max(1, raised_limit() - DESCRIPTORS_KEPT)


def raised_limit() -> int:
    """Return the limit of open files, as high as it may be: ours, and of what we start."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def keep(port: int, first: int, count: int, parent: Connection) -> None:
    """Connect, report, send heartbeats until told to stop, report: the life of a process of clients."""
    with contextlib.closing(Crowd(port, first, count)) as crowd:
        crowd.connect()
        crowd.wait_answers()
        parent.send(crowd.tally)
        crowd.tally = Tally()
        crowd.spread()
        while not parent.poll():
            crowd.run(0.2)
        parent.send(crowd.tally)


@contextlib.contextmanager
def idle_clients(port: int, count: int) -> Iterator[list[Tally]]:
    """Keep so many clients for the time of a block; the list has a Tally for each process of them afterwards.

    Raises:
        BenchFailed: they are not all connected after CONNECT_S_MAX.
    """
    tallies: list[Tally] = []
    share = max(1, min(count, _process_room()))
    context, crowds = multiprocessing.get_context("spawn"), []
    try:
        for first in range(0, count, share):
            ours, theirs = multiprocessing.Pipe()
            arguments = (port, first, min(share, count - first), theirs)
            process = context.Process(target=keep, args=arguments, daemon=True)
            process.start()
            theirs.close()
            crowds.append((process, ours))
        for _, ours in crowds:
            _answer(ours, CONNECT_S_MAX, f"{count} idle clients are not connected after {CONNECT_S_MAX:g} s")
        yield tallies
        for _, ours in crowds:
            ours.send("stop")
        tallies += [_answer(ours, STOP_S_MAX, "the idle clients do not stop") for _, ours in crowds]
    finally:
        for process, _ in crowds:
            process.terminate()
            process.join()


def _answer(ours: Connection, seconds: float, failure: str) -> Tally:
    try:
        if ours.poll(seconds):
            tally: Tally = ours.recv()
            return tally
    except EOFError:
        failure = (
            "a process of idle clients ended: the broker refused its connections, or files of this user are limited"
        )
    raise BenchFailed(failure)
