"""The driver against a broker of a few lines: what it counts, and what it does when things go wrong."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from rocketpy.bench.load import Load, Mode, Workload

TIMEOUT_S = 30.0  # never reached: every run here ends when its requests are answered
Answer = Callable[[int, dict[str, object]], bytes | None]  # of the n-th request; None: hang up


def reply(header: dict[str, object], code: int, body: bytes = b"", **fields: str) -> bytes:
    text = json.dumps({"code": code, "extFields": fields, "flag": 1, "opaque": header["opaque"]}).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


def record(queue_offset: int) -> bytes:
    """A stored message of 91 bytes and no body."""
    return struct.pack(">iI12xq56xi", 91, 0xDAA320A7, queue_offset, 0).ljust(91, b"\0")


class Broker:
    """Answers one request after the other, each connection in its own thread."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._count = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while len(head := stream.read(8)) == 8:
                size, header_size = struct.unpack(">ii", head)
                header = json.loads(stream.read(size - 4)[:header_size])
                with self._lock:
                    self._count += 1
                    count = self._count
                data = self._answer(count, header)
                if data is None:
                    return
                connection.sendall(data)

    def join(self) -> None:
        """Wait until all that the connections have sent is read; they must be closed."""
        for thread in self._threads[1:]:
            thread.join()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Broker]]:
    brokers: list[Broker] = []

    def start(answer: Answer) -> Broker:
        brokers.append(Broker(answer))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


def open_load(broker: Broker, workload: Workload, offsets: tuple[int, ...] = ()) -> Load:
    return Load(workload, host="127.0.0.1", port=broker.port, topic="T", queues=2, offsets=offsets)


@pytest.mark.parametrize("rate", [0.0, 100_000.0])
def test_errors_are_counted_by_code_and_are_no_successes(serve: Callable[[Answer], Broker], rate: float) -> None:
    broker = serve(lambda count, header: reply(header, 2 if count % 4 == 0 else 0))
    with open_load(broker, Workload(Mode.SEND, 3, 5, 64, rate=rate, requests_max=100)) as load:
        assert load.run(TIMEOUT_S)
        result = load.result(1.0, 0.0)
    assert (result.messages, result.errors, result.latency_us.count) == (75, {"2": 25}, 75)
    assert not result.is_clean


def test_each_acknowledged_message_is_remembered_once(serve: Callable[[Answer], Broker]) -> None:
    broker = serve(lambda count, header: reply(header, 0, queueId="1", queueOffset=str(1000 + count)))
    with open_load(broker, Workload(Mode.SEND, 1, 1, 64, requests_max=50, record_acks=True)) as load:
        assert load.run(TIMEOUT_S)
        acks = load.acks()
    assert [ack.key for ack in acks] == list(range(50))
    assert [ack.queue_offset for ack in acks] == list(range(1001, 1051))
    assert [ack.queue_id for ack in acks[:4]] == [0, 1, 0, 1]


def test_a_lost_connection_is_opened_again_and_its_request_counted(serve: Callable[[Answer], Broker]) -> None:
    broker = serve(lambda count, header: None if count == 10 else reply(header, 0))
    with open_load(broker, Workload(Mode.SEND, 1, 1, 64, requests_max=20, reconnect=True)) as load:
        assert load.run(TIMEOUT_S)
        result = load.result(1.0, 0.0)
    assert result.messages == 19
    assert result.errors == {"connections_lost": 1, "requests_lost": 1}


def test_without_connections_the_run_ends(serve: Callable[[Answer], Broker]) -> None:
    broker = serve(lambda count, header: None)
    with open_load(broker, Workload(Mode.SEND, 2, 1, 64)) as load, pytest.raises(ConnectionError):
        load.run(TIMEOUT_S)


def test_pulls_walk_the_queues_and_begin_again(serve: Callable[[Answer], Broker]) -> None:
    asked: list[tuple[str, str]] = []

    def answer(count: int, header: dict[str, object]) -> bytes:
        fields = header["extFields"]
        assert isinstance(fields, dict)
        asked.append((fields["queueId"], fields["queueOffset"]))
        first = int(fields["queueOffset"])
        return reply(header, 0, b"".join(record(first + index) for index in range(4)))

    workload = Workload(Mode.PULL, 1, 1, pull_count=4, requests_max=7)
    with open_load(serve(answer), workload, offsets=(9, 12)) as load:
        assert load.run(TIMEOUT_S)
        result = load.result(1.0, 0.0)
    assert asked == [("0", "0"), ("1", "0"), ("0", "4"), ("1", "4"), ("0", "0"), ("1", "8"), ("0", "4")]
    assert (result.messages, result.errors) == (28, {})


@pytest.mark.parametrize("body", [b"", record(0)[:-1], record(1), record(0) + record(2), record(0) * 2])
def test_a_pull_reply_that_is_not_what_was_asked_for_is_bad(serve: Callable[[Answer], Broker], body: bytes) -> None:
    broker = serve(lambda count, header: reply(header, 0, body))
    with open_load(broker, Workload(Mode.PULL, 1, 1, requests_max=1), offsets=(32, 0)) as load:
        assert load.run(TIMEOUT_S)
        result = load.result(1.0, 0.0)
    assert (result.messages, result.errors) == (0, {"bad": 1})


def test_each_acknowledged_half_message_is_committed(serve: Callable[[Answer], Broker]) -> None:
    ends: list[tuple[int, int]] = []

    def answer(count: int, header: dict[str, object]) -> bytes:
        fields = header["extFields"]
        assert isinstance(fields, dict)
        if header["code"] == 37:
            assert (header["flag"], fields["commitOrRollback"], fields["producerGroup"]) == (2, "8", "bench_producer")
            ends.append((int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"])))
            return b""
        assert fields["f"] == "4" and "TRAN_MSG\x01true\x02PGROUP\x01bench_producer" in fields["i"]
        return reply(header, 0, msgId=f"7F00000100002A9F{0xABC0 + count:016X}", queueId="0", queueOffset=str(count))

    broker = serve(answer)
    with open_load(broker, Workload(Mode.SEND, 1, 1, 64, requests_max=5, in_transactions=True)) as load:
        assert load.run(TIMEOUT_S)
        load.run(TIMEOUT_S, drain=True)
    broker.join()
    assert ends == [(count, 0xABC0 + count) for count in (1, 3, 5, 7, 9)]


def filtered(header: dict[str, object], passed: int, found: tuple[int, ...]) -> bytes:
    """The answer to a pull that passes so many units, with these messages behind its offset."""
    fields = header["extFields"]
    assert isinstance(fields, dict) and "subscription" not in fields and fields["sysFlag"] == "0"
    first = int(fields["queueOffset"])
    body = b"".join(record(first + index) for index in found)
    return reply(header, 0 if found else 20, body, nextBeginOffset=str(first + passed))


def test_filtered_pulls_follow_the_offsets_in_their_answers(serve: Callable[[Answer], Broker]) -> None:
    asked: list[tuple[str, str]] = []

    def answer(count: int, header: dict[str, object]) -> bytes:
        fields = header["extFields"]
        assert isinstance(fields, dict)
        asked.append((fields["queueId"], fields["queueOffset"]))
        return filtered(header, 400, (0, 7, 399) if count % 2 else ())

    workload = Workload(Mode.FILTERED, 1, 1, requests_max=7)
    with open_load(serve(answer), workload, offsets=(1000, 500)) as load:
        assert load.run(TIMEOUT_S)
        result = load.result(1.0, 0.0)
    assert asked == [("0", "0"), ("1", "0"), ("0", "400"), ("1", "400"), ("0", "800"), ("1", "0"), ("0", "0")]
    assert (result.messages, result.units, result.errors) == (4 * 3, 7 * 400, {})


def test_a_queue_has_one_filtered_pull_at_a_time(serve: Callable[[Answer], Broker]) -> None:
    """With room for more requests than there are queues."""
    asked: list[int] = []

    def answer(count: int, header: dict[str, object]) -> bytes:
        fields = header["extFields"]
        assert isinstance(fields, dict)
        asked.append(int(fields["queueOffset"]))
        return filtered(header, 10, ())

    with open_load(serve(answer), Workload(Mode.FILTERED, 1, 8, requests_max=6), offsets=(100, 0)) as load:
        assert load.run(TIMEOUT_S)
    assert asked == [0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize(("passed", "found"), [(0, ()), (5, (5,)), (5, (3, 2)), (5, (2, 2))])
def test_a_filtered_answer_that_cannot_be_is_bad(
    serve: Callable[[Answer], Broker], passed: int, found: tuple[int, ...]
) -> None:
    broker = serve(lambda count, header: filtered(header, passed, found))
    with open_load(broker, Workload(Mode.FILTERED, 1, 1, requests_max=1), offsets=(100, 0)) as load:
        assert load.run(TIMEOUT_S)
        result = load.result(1.0, 0.0)
    assert (result.messages, result.units, result.errors) == (0, 0, {"bad": 1})


def test_a_group_with_a_filter_goes_on_where_answers_say(serve: Callable[[Answer], Broker]) -> None:
    """Found, none matched, none yet: the next pull begins at nextBeginOffset; what matched and all of it is counted."""
    asked: list[tuple[str, str, str]] = []
    answers = [(0, 400, (0, 7, 399)), (20, 100, ()), (19, 0, ()), (0, 3, (2,))]

    def answer(count: int, header: dict[str, object]) -> bytes | None:
        fields = header["extFields"]
        assert isinstance(fields, dict)
        assert (fields["subscription"], fields["expressionType"], fields["sysFlag"]) == ("number < 10", "SQL92", "6")
        if fields["queueId"] != "0":
            return b""
        asked.append((fields["queueId"], fields["queueOffset"], fields["consumerGroup"]))
        if len(asked) > len(answers):
            return None
        code, passed, found = answers[len(asked) - 1]
        first = int(fields["queueOffset"])
        body = b"".join(record(first + index) for index in found)
        return reply(header, code, body, nextBeginOffset=str(first + passed))

    workload = Workload(Mode.END_TO_END, 0, 1, group="G", expression="number < 10", expression_type="SQL92")
    with open_load(serve(answer), workload) as load:
        with pytest.raises(ConnectionError):
            load.run(TIMEOUT_S)
        stats = load.stats()
    assert asked == [("0", offset, "G") for offset in ("0", "400", "500", "500", "503")]
    assert (stats.messages_received, stats.units_passed, stats.empty_replies, stats.bad_replies) == (4, 503, 2, 0)


def test_kinds_of_messages_go_to_every_queue_in_turn(serve: Callable[[Answer], Broker]) -> None:
    seen: list[tuple[str, str]] = []

    def answer(count: int, header: dict[str, object]) -> bytes:
        fields = header["extFields"]
        assert isinstance(fields, dict)
        properties = dict(pair.split("\x01") for pair in fields["i"].split("\x02") if pair)
        seen.append((fields["e"], properties["TAGS"]))
        return reply(header, 0)

    workload = Workload(Mode.SEND, 1, 1, 64, requests_max=6, kinds=({"TAGS": "A"}, {"TAGS": "B"}))
    with open_load(serve(answer), workload) as load:
        assert load.run(TIMEOUT_S)
    assert seen == [("0", "A"), ("1", "A"), ("0", "B"), ("1", "B"), ("0", "A"), ("1", "A")]


@pytest.mark.parametrize("pages", [1, 2, 7, 8, 100])
def test_random_pages_come_once_before_any_comes_again(serve: Callable[[Answer], Broker], pages: int) -> None:
    asked: list[int] = []

    def answer(count: int, header: dict[str, object]) -> bytes:
        fields = header["extFields"]
        assert isinstance(fields, dict)
        asked.append(int(fields["queueOffset"]))
        return reply(header, 0, b"".join(record(asked[-1] + index) for index in range(4)))

    workload = Workload(Mode.PULL, 1, 1, pull_count=4, random_pages=True, requests_max=2 * pages)
    with open_load(serve(answer), workload, offsets=(4 * pages + 3, 0)) as load:
        assert load.run(TIMEOUT_S)
        assert load.result(1.0, 0.0).errors == {}
    everyone = [4 * page for page in range(pages)]
    assert sorted(asked[:pages]) == everyone and sorted(asked[pages:]) == everyone
    assert pages < 7 or asked[:pages] != everyone, "their order is random"
