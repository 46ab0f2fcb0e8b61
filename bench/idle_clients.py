"""Measures the cost of clients that only send heartbeats.

    python -m bench.idle_clients --clients 50000 --seconds 90

Opens that many connections to a fresh broker, from several loopback addresses since one has too few ports, and sends
each one's heartbeat every 30 s: all are producers, each fifth is a member of a consumer group of 20 besides. The limit
of open files holds for each process: there are as many processes of clients, and selectors of the broker, as it takes.
Prints JSON: memory (PSS of the broker's processes, and of the kernel's TCP buffers) and CPU per client, how long
heartbeats took, and whether any was refused or any connection lost.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import selectors
import socket
import struct
import sys
import time
from collections import deque
from multiprocessing.connection import Connection
from pathlib import Path

import attrs

from rocketpy.bench import proc

from .brokers import HOST, Broker, running

INTERVAL_S = 30.0
CLIENTS_PER_ADDRESS = 20_000
CONSUMER_EACH = 5
GROUP_SIZE = 20
CONNECTS_PER_TURN = 200
HEADER_AT = 8
DESCRIPTORS_KEPT = 1_000  # of each process, for other things than connections


@attrs.define(eq=False)
class Client:
    number: int
    sock: socket.socket
    due_s: float
    sent_s: float = 0.0
    rest: bytes = b""


@attrs.define
class Tally:
    heartbeats: int = 0
    refused: int = 0
    lost: int = 0
    latencies_ms: list[float] = attrs.field(factory=list)

    def quantile_ms(self, quantile: float) -> float:
        ordered = sorted(self.latencies_ms)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * quantile))], 2) if ordered else 0.0


def heartbeat(number: int) -> bytes:
    """The frame of client `number`."""
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
                self.tally.heartbeats += 1
                self.tally.refused += header["code"] != 0
                self.tally.latencies_ms.append((time.monotonic() - client.sent_s) * 1000)


def tcp_kib() -> int:
    """Memory of TCP buffers in the kernel, all processes."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        if line.startswith("TCP:"):
            return int(line.split()[-1]) * 4
    return 0


def by_process(broker: Broker) -> dict[str, int]:
    """PSS in KiB by the name of the process."""
    found: dict[str, int] = {}
    for pid, kib in proc.pss_kib_by_process(broker.roots, []).items():
        name = (Path("/proc") / str(pid) / "comm").read_text().strip()
        found[name] = found.get(name, 0) + kib
    return found


def play(port: int, first: int, count: int, seconds: float, parent: Connection) -> None:
    """A process of clients: connects, tells, waits for the word, heartbeats for `seconds`, tells."""
    crowd = Crowd(port, first, count)
    crowd.connect()
    crowd.run(5.0)
    parent.send(crowd.tally)
    while not parent.poll():
        crowd.run(0.1)
    crowd.tally = Tally()
    crowd.spread()
    crowd.run(seconds)
    parent.send(crowd.tally)


def measure(broker: Broker, count: int, seconds: float, processes: int) -> dict[str, object]:
    before, tcp_before = by_process(broker), tcp_kib()
    started_s, cpu_before_s = time.monotonic(), broker.cpu_s()
    share, crowds = -(-count // processes), []
    for first in range(0, count, share):
        ours, theirs = multiprocessing.Pipe()
        size = min(share, count - first)
        process = multiprocessing.Process(target=play, args=(broker.port, first, size, seconds, theirs), daemon=True)
        process.start()
        crowds.append(ours)
    at_start = sum_of([crowd.recv() for crowd in crowds])
    connected_s, cpu_connect_s = time.monotonic() - started_s, broker.cpu_s() - cpu_before_s
    started_s, cpu_before_s = time.monotonic(), broker.cpu_s()
    for crowd in crowds:
        crowd.send("go")
    tally = sum_of([crowd.recv() for crowd in crowds])
    cpu_s, elapsed_s = broker.cpu_s() - cpu_before_s, time.monotonic() - started_s
    after = by_process(broker)
    grown = sum(after.values()) - sum(before.values())
    return {
        "clients": count,
        "selectors": processes,
        "connect_s": round(connected_s, 1),
        "connect_cpu_s": round(cpu_connect_s, 1),
        "pss_mib": round(sum(after.values()) / 1024, 1),
        "pss_bytes_per_client": round(grown * 1024 / count),
        "pss_kib_by_process": {name: kib - before.get(name, 0) for name, kib in sorted(after.items())},
        "tcp_bytes_per_client": round((tcp_kib() - tcp_before) * 1024 / count),
        "seconds": round(elapsed_s, 1),
        "heartbeats": tally.heartbeats,
        "heartbeats_per_s": round(tally.heartbeats / elapsed_s),
        "cpu_cores": round(cpu_s / elapsed_s, 3),
        "cpu_us_per_heartbeat": round(cpu_s / max(1, tally.heartbeats) * 1e6, 1),
        "heartbeat_p50_ms": tally.quantile_ms(0.5),
        "heartbeat_p99_ms": tally.quantile_ms(0.99),
        "refused": at_start.refused + tally.refused,
        "lost": at_start.lost + tally.lost,
    }


def sum_of(tallies: list[Tally]) -> Tally:
    return Tally(
        sum(tally.heartbeats for tally in tallies),
        sum(tally.refused for tally in tallies),
        sum(tally.lost for tally in tallies),
        [ms for tally in tallies for ms in tally.latencies_ms],
    )


def raised_limit() -> int:
    """The limit of open files, as high as it may be: ours, and of what we start."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=90.0, help="of heartbeats, once all are connected")
    arguments = parser.parse_args()
    processes = -(-arguments.clients // (raised_limit() - DESCRIPTORS_KEPT))
    with running("rocketpy", settings={"selectorWorkers": str(processes)}) as broker:
        found = measure(broker, arguments.clients, arguments.seconds, processes)
    print(json.dumps(found, indent=1))
    return int(bool(found["lost"] or found["refused"]))


if __name__ == "__main__":
    sys.exit(main())
