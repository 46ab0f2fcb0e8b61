"""A load that remembers what was acknowledged, and a check of the store against that memory.

Each connection is a thread with a plain socket: it pipelines sends (single and batch, old and new queues) with unique
ids, and when it is cut off, or gets no answer, it starts a new life on a new connection. Nothing is sent twice, so a
message that is stored twice within one life was repeated by the broker.
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import attrs

from rocketpy.codes import RequestCode
from rocketpy.message.message_id import decode_offset_message_id, encode_offset_message_id
from rocketpy.message.record import StoredRecord, decode_records
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import EndTransactionRequestHeader
from rocketpy.remoting.signature import Credentials, sign

SEND, BATCH, PULL, MAX_OFFSET, MIN_OFFSET = 310, 320, 11, 30, 31
PULL_FOUND, PULL_NOT_FOUND, PULL_RETRY, PULL_MOVED, TOPIC_NOT_EXIST = 0, 19, 20, 21, 17
COMMIT = 8
ANSWER_TIMEOUT_S = 1.0
"""A connection that hears nothing for so long begins a new life: the answer died with a worker, as for any client."""


@attrs.frozen
class Ack:
    """One acknowledged message. `life` and `number` say which send of which connection it was."""

    life: str
    number: int
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str


class Connection:
    """A blocking socket that carries commands, encrypted if there is a context, signed if there are credentials."""

    def __init__(
        self,
        port: int,
        timeout_s: float = ANSWER_TIMEOUT_S,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._credentials = credentials
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._buffer = b""
        self._at = 0  # of the buffer, what has been read

    def send(self, *commands: RemotingCommand) -> None:
        if self._credentials is not None:
            for command in commands:
                if not command.is_response:
                    sign(command, self._credentials)
        self.send_bytes(b"".join(command.encode() for command in commands))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> RemotingCommand:
        """Raises: OSError (cut off, or no answer in time)."""
        return RemotingCommand.decode(self.receive_frame())

    def receive_frame(self) -> bytes:
        size = self._read(4)
        return size + self._read(struct.unpack(">i", size)[0])

    def _read(self, size: int) -> bytes:
        while len(self._buffer) - self._at < size:
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionResetError("closed by the broker")
            self._buffer, self._at = self._buffer[self._at :] + data, 0
        self._at += size
        return self._buffer[self._at - size : self._at]

    def ask(self, command: RemotingCommand) -> RemotingCommand:
        self.send(command)
        return self.receive()

    def close(self) -> None:
        self._socket.close()


def send_request(topic: str, queue_id: int, bodies: Sequence[bytes], opaque: int) -> RemotingCommand:
    """SEND_MESSAGE_V2, or SEND_BATCH_MESSAGE for several bodies."""
    fields = {
        "a": "P",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "true" if len(bodies) > 1 else "false",
    }
    body = bodies[0] if len(bodies) == 1 else b"".join(_batch_entry(part) for part in bodies)
    command = RemotingCommand.request(SEND if len(bodies) == 1 else BATCH, ext_fields=fields, body=body)
    command.opaque = opaque
    return command


def commit_of(answer: RemotingCommand) -> RemotingCommand:
    """Return the commit of a half message of producer group P, which was answered with `answer`."""
    fields = answer.ext_fields or {}
    header = EndTransactionRequestHeader(
        producer_group="P",
        tran_state_table_offset=int(fields["queueOffset"]),
        commit_log_offset=decode_offset_message_id(fields["msgId"]).phy_offset,
        commit_or_rollback=COMMIT,
    )
    return RemotingCommand.request(RequestCode.END_TRANSACTION, header)


def _batch_entry(body: bytes) -> bytes:
    return struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + struct.pack(">h", 0)


def pull_request(topic: str, queue_id: int, offset: int, *, hold_ms: int = 0) -> RemotingCommand:
    fields = {
        "consumerGroup": "history",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if hold_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(hold_ms),
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return RemotingCommand.request(PULL, ext_fields=fields)


@attrs.define(eq=False)
class Load:
    """`connections` threads that send until stopped.

    Args:
        topics: (name, number of queues); a topic that is not there yet is created by the first send to it.
        window: sends in flight per connection.
        body_bytes: of most messages; one in 200 is `large_bytes`.
        new_topics: now and then a connection begins to send to a topic of its own that nobody has created.
    """

    port: int
    seed: int
    topics: Sequence[tuple[str, int]]
    connections: int = 4
    window: int = 16
    body_bytes: int = 200
    large_bytes: int = 0
    new_topics: bool = False
    pause_s: float = 0.0
    acks: list[Ack] = attrs.field(init=False, factory=list)
    refusals: list[tuple[int, str]] = attrs.field(init=False, factory=list)
    lives: int = attrs.field(init=False, default=0)
    answers: list[int] = attrs.field(init=False)
    failure: BaseException | None = attrs.field(init=False, default=None)
    sent_topics: dict[str, int] = attrs.field(init=False, factory=dict)
    _threads: list[threading.Thread] = attrs.field(init=False, factory=list)
    _stop: threading.Event = attrs.field(init=False, factory=threading.Event)

    def __attrs_post_init__(self) -> None:
        self.answers = [0] * self.connections
        self.sent_topics.update(self.topics)

    def __enter__(self) -> Load:
        for index in range(self.connections):
            thread = threading.Thread(target=self._run, args=(index,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self.failure is not None and exc[0] is None:
            raise self.failure

    def wait_for_answers(self, each: int, timeout_s: float = 30.0) -> None:
        """Until every connection has had `each` more answers: the broker serves all of them."""
        goal = [count + each for count in self.answers]
        deadline = time.monotonic() + timeout_s
        while any(have < want for have, want in zip(self.answers, goal, strict=True)):
            if self.failure is not None:
                raise self.failure
            if time.monotonic() > deadline:
                raise AssertionError(f"no service within {timeout_s:g} s: answers {self.answers}, wanted {goal}")
            time.sleep(0.01)

    def _run(self, index: int) -> None:
        choose = random.Random(f"{self.seed}/{index}")
        life = 0
        try:
            while not self._stop.is_set():
                self.lives += 1
                life += 1
                try:
                    connection = Connection(self.port)
                except OSError:
                    self._stop.wait(0.05)
                    continue
                try:
                    self._settings(index, f"{index}.{life}", connection, choose)
                except OSError:
                    pass
                finally:
                    connection.close()
        except BaseException as exc:
            self.failure = exc

    def _settings(self, index: int, life: str, connection: Connection, choose: random.Random) -> None:
        number = opaque = 0
        waiting: dict[int, tuple[int, str, int]] = {}  # opaque -> first number, topic, messages
        own: tuple[str, int] | None = None
        while True:
            stopping = self._stop.is_set()
            requests = []
            while not stopping and len(waiting) < self.window:
                if self.new_topics and choose.random() < 0.002:
                    own = (f"new_{self.seed}_{life.replace('.', '_')}_{number}", 4)
                    self.sent_topics[own[0]] = 4
                topic, queues = own if own and choose.random() < 0.3 else choose.choice(self.topics)
                count = choose.choice((1, 1, 1, 1, 5))
                bodies = [self._body(life, number + i, choose) for i in range(count)]
                requests.append(send_request(topic, choose.randrange(queues), bodies, opaque))
                waiting[opaque] = (number, topic, count)
                number += count
                opaque += 1
            if requests:
                connection.send(*requests)
            if not waiting:
                return
            reply = connection.receive()
            found = waiting.pop(reply.opaque, None)
            assert found is not None, f"life {life}: an answer to {reply.opaque}, which nothing waits for: {reply}"
            self._note(life, found, reply)
            self.answers[index] += 1
            if self.pause_s:
                time.sleep(self.pause_s)

    def _body(self, life: str, number: int, choose: random.Random) -> bytes:
        size = self.large_bytes if self.large_bytes and choose.random() < 0.005 else self.body_bytes
        return f"{self.seed} {life} {number} ".encode().ljust(size, b"x")

    def _note(self, life: str, sent: tuple[int, str, int], reply: RemotingCommand) -> None:
        number, topic, count = sent
        if reply.code != 0:
            self.refusals.append((reply.code, reply.remark or ""))
            return
        fields = reply.ext_fields or {}
        first, ids = int(fields["queueOffset"]), fields["msgId"].split(",")
        assert len(ids) == count, f"{count} messages, ids {ids}"
        for i in range(count):
            self.acks.append(Ack(life, number + i, topic, int(fields["queueId"]), first + i, ids[i]))


@attrs.frozen
class Stored:
    seed: int
    life: str
    number: int
    queue_id: int
    queue_offset: int
    message_id: str


def _parse(record: StoredRecord) -> Stored:
    seed, life, number, _ = bytes(record.body).split(b" ", 3)
    message_id = encode_offset_message_id(record.store_host, record.phy_offset)
    return Stored(int(seed), life.decode(), int(number), record.queue_id, record.queue_offset, message_id)


class Reader:
    """Reads whole queues; asks again where a worker died under the question."""

    def __init__(self, port: int, patience_s: float = 60.0) -> None:
        self._port = port
        self._patience_s = patience_s
        self._connection: Connection | None = None

    def ask(self, command: RemotingCommand) -> RemotingCommand:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                if self._connection is None:
                    self._connection = Connection(self._port)
                return self._connection.ask(command)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                self.close()
                time.sleep(0.05)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def offset(self, code: int, topic: str, queue_id: int) -> int:
        reply = self.ask(RemotingCommand.request(code, ext_fields={"topic": topic, "queueId": str(queue_id)}))
        assert reply.code == 0, f"{code} of {topic}/{queue_id}: {reply}"
        return int((reply.ext_fields or {})["offset"])

    def records(self, topic: str, queue_id: int) -> Iterator[StoredRecord]:
        """Every record of a queue, with its CRC checked."""
        offset = self.offset(MIN_OFFSET, topic, queue_id)
        misses = 0
        while True:
            reply = self.ask(pull_request(topic, queue_id, offset))
            if reply.code == PULL_FOUND:
                misses = 0
                yield from decode_records(reply.body or b"", check_crc=True)
                offset = int((reply.ext_fields or {})["nextBeginOffset"])
            elif reply.code in (PULL_NOT_FOUND, PULL_RETRY, PULL_MOVED):
                if offset >= self.offset(MAX_OFFSET, topic, queue_id):
                    return
                misses += 1
                assert misses < 200, f"{topic}/{queue_id}: nothing at {offset}, {reply}"
                time.sleep(0.02)
            elif reply.code == TOPIC_NOT_EXIST:  # no send to it has arrived
                return
            else:
                raise AssertionError(f"pull of {topic}/{queue_id} at {offset}: {reply}")


@attrs.frozen
class Verdict:
    acknowledged: int
    stored: int


def check(port: int, loads: Sequence[Load], timeout_s: float = 30.0) -> Verdict:
    """Hold the store against what `loads` were told.

    Raises:
        AssertionError: with every fault found, at most ten of each kind.
    """
    faults: dict[str, list[str]] = defaultdict(list)
    assert any(load.acks for load in loads), "nothing was acknowledged: the history says nothing"
    topics = {topic: queues for load in loads for topic, queues in load.sent_topics.items()}
    acks = {(load.seed, ack.life, ack.number): ack for load in loads for ack in load.acks}
    wait_for_dispatch(port, topics, acks.values(), timeout_s)
    reader = Reader(port)
    stored: dict[tuple[int, str, int], Stored] = {}
    try:
        for topic, queues in topics.items():
            for queue_id in range(queues):
                _check_queue(reader, topic, queue_id, stored, faults)
    finally:
        reader.close()
    for key, ack in acks.items():
        found = stored.get(key)
        if found is None:
            faults["acknowledged and not there"].append(str(ack))
        elif (found.queue_id, found.queue_offset, found.message_id) != (ack.queue_id, ack.queue_offset, ack.message_id):
            faults["acknowledged elsewhere"].append(f"{ack} is {found}")
    if faults:
        lines = [f"{kind}: {len(cases)}\n  " + "\n  ".join(cases[:10]) for kind, cases in faults.items()]
        raise AssertionError(f"seeds {[load.seed for load in loads]}:\n" + "\n".join(lines))
    return Verdict(len(acks), len(stored))


def _check_queue(
    reader: Reader,
    topic: str,
    queue_id: int,
    stored: dict[tuple[int, str, int], Stored],
    faults: dict[str, list[str]],
) -> None:
    where = f"{topic}/{queue_id}"
    expected: int | None = None
    last: dict[tuple[int, str], int] = {}
    for record in reader.records(topic, queue_id):
        found = _parse(record)
        if expected is not None and found.queue_offset != expected:
            faults["hole or repeated offset"].append(f"{where}: {found.queue_offset}, expected {expected}")
        expected = found.queue_offset + 1
        key = (found.seed, found.life, found.number)
        if key in stored:
            faults["stored twice"].append(f"{where}: {found} and {stored[key]}")
        stored[key] = found
        before = last.get(key[:2], -1)
        if found.number < before:
            faults["out of order"].append(f"{where}: {found} behind number {before}")
        last[key[:2]] = max(before, found.number)


def wait_for_dispatch(port: int, topics: dict[str, int], acks: Iterable[Ack], timeout_s: float) -> None:
    """Until the queues have all that is acknowledged, if need be for `timeout_s`, and have stopped growing: what was
    stored without an answer may still be on its way to them."""
    wanted: dict[tuple[str, int], int] = defaultdict(int)
    for ack in acks:
        wanted[ack.topic, ack.queue_id] = max(wanted[ack.topic, ack.queue_id], ack.queue_offset + 1)
    places = [(topic, queue_id) for topic, queues in topics.items() for queue_id in range(queues)]
    reader = Reader(port)
    deadline = time.monotonic() + timeout_s
    before: list[int] = []
    while True:
        now = [reader.offset(MAX_OFFSET, *place) for place in places]
        is_late = time.monotonic() > deadline
        if now == before and (is_late or all(end >= wanted[place] for place, end in zip(places, now, strict=True))):
            break
        assert now == before or not is_late, f"queues still grow after {timeout_s:g} s"
        before = now
        time.sleep(0.2)
    reader.close()
