"""consumeMessage and sendMessage in pipelines: what goes through them, how they go on, and how they end."""

import fcntl
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy.admin import message_lines, resuming
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import decode_record
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from tests.support.admin import Mqadmin, one_broker
from tests.support.cluster import FakeBroker, FakeCluster

READ = ("consumeMessage", "-t", "T", "--output", "jsonl")
COUNT = 70  # more than two pulls


def filled(cluster: FakeCluster) -> None:
    """Two queues; queue 0 has COUNT messages, and queue 1 a body that is no text."""
    broker = cluster.add_broker(T=2, **{"%RETRY%g": 1})
    for number in range(COUNT):
        broker.store(
            "T", 0, b"body %d" % number, b"UNIQ_KEY\x01A%d\x02KEYS\x01k1 k2\x02TAGS\x01A\x02colour\x01red" % number
        )
    broker.store("T", 1, b"\xff\x00\n", b"UNIQ_KEY\x01BB\x02WAIT\x01true", flag=7)


def stored(broker: FakeBroker) -> list[dict[str, object]]:
    """The messages in the order of their arrival."""
    found = []
    for image in broker.by_offset.values():
        record = decode_record(image)
        assert record is not None
        properties = decode_properties(record.properties.decode())
        kept = {name: value for name, value in properties.items() if name not in ("UNIQ_KEY", "WAIT")}
        found.append({"topic": record.topic, "body": record.body, "flag": record.flag, **kept})
    return found


def send(mqadmin: Mqadmin, lines: list[str], path: Path, *options: str, status: int = 0) -> FakeBroker:
    path.write_text("".join(f"{line}\n" for line in lines))
    mqadmin("sendMessage", "-t", "U", "--input", str(path), *options, script=one_broker, status=status)
    return mqadmin.cluster.brokers["broker-a"]


def test_what_was_read_is_sent(mqadmin: Mqadmin, tmp_path: Path) -> None:
    lines = mqadmin(*READ, "--all", script=filled)
    assert len(lines) == COUNT + 1
    arrived = stored(send(mqadmin, lines, tmp_path / "lines"))
    assert arrived[0] == {"topic": "U", "body": b"body 0", "flag": 0, "KEYS": "k1 k2", "TAGS": "A", "colour": "red"}
    assert arrived[-1] == {"topic": "U", "body": b"\xff\x00\n", "flag": 7}
    assert [one["body"] for one in arrived[:-1]] == [b"body %d" % number for number in range(COUNT)]
    assert json.loads(lines[-1])["body_base64"] == "/wAK" and "body" not in json.loads(lines[-1])


def test_lines_that_people_write(mqadmin: Mqadmin, tmp_path: Path) -> None:
    lines = ['{"body": "a", "keys": "k1 k2", "tags": "T1", "delay_level": 3}', "", '{"body": "b"}']
    broker = send(mqadmin, lines, tmp_path / "lines", "-c", "Default", "-k", "k9")
    assert stored(broker) == [
        {"topic": "U", "body": b"a", "flag": 0, "KEYS": "k1 k2", "TAGS": "T1", "DELAY": "3"},
        {"topic": "U", "body": b"b", "flag": 0, "KEYS": "k9", "TAGS": "Default"},
    ]
    broker = send(mqadmin, ["plain text", "{"], tmp_path / "lines", "--input-format", "text")
    assert [one["body"] for one in stored(broker)] == [b"plain text", b"{"]


def test_bodies_of_files_and_repeated_messages(mqadmin: Mqadmin, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"\x00\xff")
    lines = mqadmin("sendMessage", "-t", "T", "--body-file", str(body), "--count", "3", script=one_broker)
    assert [one["body"] for one in stored(mqadmin.cluster.brokers["broker-a"])] == [b"\x00\xff"] * 3
    assert len(lines) == 4 and len({line.split()[1] for line in lines[1:]}) == 2, "queue after queue"
    missing = ["--body-file", str(tmp_path / "none")], ["--input", str(tmp_path / "none")]
    for wrong in ([], ["-p", "x", "--body-file", str(body)], ["-p", "x", "--skip", "1"], *missing):
        mqadmin("sendMessage", "-t", "T", *wrong, script=one_broker, status=2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nothing", "line 2 of .*: no JSON"),
        ("[]", "line 2 of .*: no JSON object"),
        ('{"body": 1}', "body is not str but 1"),
        ('{"body_base64": "?"}', "body_base64 is no base64"),
        ('{"body": "b", "keys": [1]}', "keys is no list of texts"),
        ('{"body": "b", "flag": true}', "flag is not int but True"),
        ('{"body": "b", "properties": {"a": 1}}', "property 'a' is no text but 1"),
        ('{"body": ""}', "the message body is empty"),
    ],
)
def test_a_wrong_line_ends_it_and_says_how_to_go_on(line: str, message: str, mqadmin: Mqadmin, tmp_path: Path) -> None:
    broker = send(mqadmin, ['{"body": "a"}', line, '{"body": "c"}'], tmp_path / "lines", status=3)
    assert re.search(message, mqadmin.error) and "1 messages were sent; go on with --skip 1" in mqadmin.error
    assert [one["body"] for one in stored(broker)] == [b"a"]
    send(mqadmin, [line], tmp_path / "lines", status=1)


def test_a_failed_send_is_repeated_with_skip(mqadmin: Mqadmin, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text('{"body": "a"}\n{"body": "b"}\n{"body": "c"}\n')
    words = ("sendMessage", "-t", "T", "--input", str(path))

    def refusing(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        answer: Callable[[RemotingCommand, Channel], RemotingCommand] = broker.send

        def send_one(request: RemotingCommand, channel: Channel) -> RemotingCommand:
            broker.refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL)
            return answer(request, channel)

        broker.answers[RequestCode.SEND_MESSAGE_V2] = send_one

    mqadmin(*words, script=refusing, status=3)
    assert "--skip 1" in mqadmin.error
    mqadmin(*words, "--skip", "1", "--count", "1", script=one_broker)
    assert [one["body"] for one in stored(mqadmin.cluster.brokers["broker-a"])] == [b"b"]


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_send_says_how_to_go_on(mqadmin: Mqadmin, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text('{"body": "a"}\n\n{"body": "b"}\n{"body": "c"}\n')

    def interrupting(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        answer: Callable[[RemotingCommand, Channel], RemotingCommand] = broker.send

        def send_two(request: RemotingCommand, channel: Channel) -> RemotingCommand:
            if len(broker.by_offset) == 2:
                signal.raise_signal(signal.SIGINT)
            return answer(request, channel)

        broker.answers[RequestCode.SEND_MESSAGE_V2] = send_two

    mqadmin("sendMessage", "-t", "T", "--input", str(path), script=interrupting, status=1)
    assert "2 messages were sent; go on with --skip 3" in mqadmin.error


def test_reading_goes_on_where_it_was(mqadmin: Mqadmin, tmp_path: Path) -> None:
    """A first run with a limit, a second one from its file, a third one that finds nothing new."""
    place = ("--from", str(tmp_path / "place"), "--save", str(tmp_path / "place"))
    first = mqadmin(*READ, "-c", "50", *place, script=filled)
    second = mqadmin(*READ, "--all", *place, script=filled)
    assert [json.loads(line)["queue_offset"] for line in first + second] == [*range(COUNT), 0]
    assert mqadmin(*READ, "--all", *place, script=filled) == []
    assert json.loads((tmp_path / "place").read_text()) == {"T": {"broker-a": {"0": COUNT, "1": 1}}}
    (tmp_path / "place").write_text("[]")
    mqadmin(*READ, *place, script=filled, status=1)
    assert "holds no positions" in mqadmin.error


def test_the_sender_keeps_the_place_of_the_reader(mqadmin: Mqadmin, tmp_path: Path) -> None:
    lines = mqadmin(*READ, "--all", script=filled)
    send(mqadmin, lines[:40], tmp_path / "lines", "--save", str(tmp_path / "place"))
    rest = mqadmin(*READ, "--all", "--from", str(tmp_path / "place"), script=filled)
    assert rest == lines[40:]


def test_following(mqadmin: Mqadmin) -> None:
    """Messages that come later are shown; -c ends it. Text is without Java's remarks about ends of queues then."""

    def growing(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        answer: Callable[[RemotingCommand, Channel], RemotingCommand] = broker.max_offset

        def one_more(request: RemotingCommand, channel: Channel) -> RemotingCommand:
            broker.store("T", 0, b"later")
            return answer(request, channel)

        broker.answers[RequestCode.GET_MAX_OFFSET] = one_more

    lines = mqadmin("consumeMessage", "-t", "T", "--follow", "-c", "5", script=growing)
    assert len([line for line in lines if line.endswith("BODY: later")]) == 5
    assert len([line for line in lines if "print msg finished" in line]) <= 1


def test_rate(mqadmin: Mqadmin, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(resuming.aio, "sleep", sleep)
    mqadmin("sendMessage", "-t", "T", "-p", "x", "--count", "5", "--rate", "10", script=one_broker)
    assert [seconds for seconds in slept if seconds] == pytest.approx([0.1, 0.2, 0.3, 0.4]), "of a clock that stands"


def test_input_is_read_as_it_comes_and_a_line_has_a_bound(
    mqadmin: Mqadmin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, target = os.pipe()
    os.write(target, b'{"body": "a"}\n{"bo')
    os.write(target, b'dy": "b"}')
    os.close(target)
    with os.fdopen(source) as file:
        monkeypatch.setattr(sys, "stdin", file)
        mqadmin("sendMessage", "-t", "T", "--input", "-", script=one_broker)
    assert [one["body"] for one in stored(mqadmin.cluster.brokers["broker-a"])] == [b"a", b"b"]
    monkeypatch.setattr(message_lines, "LINE_BYTES_MAX", 10)
    monkeypatch.setattr(message_lines, "CHUNK_BYTES", 4)
    send(mqadmin, ['{"body": "a long body"}'], tmp_path / "lines", status=1)
    assert "is longer than 10 bytes" in mqadmin.error


def test_an_idle_input_keeps_the_loop_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = os.pipe()
    monkeypatch.setattr(message_lines, "LOOK_S", 0.001)
    assert message_lines._read_some(source) is None
    os.close(target)
    assert message_lines._read_some(source) == b""
    os.close(source)


def test_input_is_read_from_a_descriptor_that_select_does_not_take() -> None:
    source, target = os.pipe()
    high = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, 1100)
    try:
        os.write(target, b"a")
        assert message_lines._read_some(high) == b"a"
    finally:
        for descriptor in (source, target, high):
            os.close(descriptor)


def test_the_place_is_written_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    positions, now_s = resuming.Positions(tmp_path / "place"), 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    queue = resuming.MessageQueue("T", "b", 0)
    with positions.kept():
        positions.note(queue, 5)
        positions.note(queue, 6)
        assert resuming.Positions.load(tmp_path / "place") == {queue: 6}
        now_s += resuming.SAVED_EVERY_S
        positions.note(queue, 7)
        assert resuming.Positions.load(tmp_path / "place") == {queue: 8}
        positions.note(queue, 8)
    assert resuming.Positions.load(tmp_path / "place") == {queue: 9}
