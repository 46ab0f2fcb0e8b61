"""What each client sends, in each way it can, is in the broker exactly once and unchanged."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from rocketpy.message.sys_flag import CompressionType, compression_type
from tests.interop.brokers import AnyBroker, TopicMaker, max_offsets, wait_stored
from tests.interop.expected import check_messages
from tests.interop.programs import Event, Launcher, Program

COUNT = 20
QUEUES = 2
LARGE = 200_000


def read_all(launch: Launcher, broker: AnyBroker, topic: str, count: int) -> list[Event]:
    """Every message, read by the Go client queue by queue; it would wait for messages in an empty queue."""
    wait_stored(broker, topic, QUEUES, count)
    filled = [str(queue) for queue, offset in enumerate(max_offsets(broker, topic, QUEUES)) if offset]
    queues = ",".join(filled)
    reader = launch.start("go", "litepull", topic=topic, group=f"{topic}_reader", mode="assign", queues=queues)
    reader.wait_messages(count)
    reader.leave()
    return reader.messages


def check_places(sent: list[Event], read: list[Event]) -> None:
    """The broker told each producer the id and the place under which the message is found."""
    by_id = {event["msgId"]: event for event in read}
    assert len(by_id) == len(read)
    for event in sent:
        found = by_id[event["msgId"]]
        assert (event["queueId"], event["queueOffset"]) == (found["queueId"], found["queueOffset"])
        assert event["key"] == found["key"]
        assert log_offset(event["offsetMsgId"]) == found["phyOffset"]


def log_offset(offset_msg_id: str) -> int:
    """The second half of the broker's message id; the first is its address."""
    return int(offset_msg_id[16:], 16)


def check_gapless(read: list[Event]) -> None:
    offsets = defaultdict(list)
    for event in read:
        offsets[event["queueId"]].append(event["queueOffset"])
    for of_queue in offsets.values():
        assert of_queue == list(range(len(of_queue)))


def send(launch: Launcher, language: str, topic: str, **arguments: object) -> Program:
    program = launch.run(language, "send", topic=topic, group=f"{topic}_producer", prefix=topic, **arguments)
    assert not program.of_kind("failed"), program.describe()
    assert all(event["status"] == "SEND_OK" for event in program.of_kind("sent"))
    return program


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_answered_sends(launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, language: str, mode: str) -> None:
    topic = make_topic(f"send_{mode}", QUEUES)
    sent = send(launch, language, topic, mode=mode, count=COUNT, tags="TagA,TagB").of_kind("sent")
    assert Counter(event["key"] for event in sent) == Counter(f"{topic}-{i}" for i in range(COUNT))
    read = read_all(launch, broker, topic, COUNT)
    check_messages(read, topic, range(COUNT), tags="TagA,TagB")
    check_places(sent, read)
    check_gapless(read)
    assert {event["queueId"] for event in read} == set(range(QUEUES))


def test_oneway(launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, language: str) -> None:
    """The Go client 2.1.2 does not mark oneway requests, so they are answered. If it closes the connection with answers
    unread, its own kernel drops what is not sent yet. So it stays until all messages are stored."""
    topic = make_topic("send_oneway", QUEUES)
    arguments = {"topic": topic, "group": f"{topic}_producer", "prefix": topic, "count": COUNT}
    program = launch.start(language, "send", mode="oneway", stay="true", **arguments)
    wait_stored(broker, topic, QUEUES, COUNT)
    program.leave()
    assert not program.of_kind("failed"), program.describe()
    read = read_all(launch, broker, topic, COUNT)
    check_messages(read, topic, range(COUNT))
    check_gapless(read)


def test_batch(launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, language: str) -> None:
    topic = make_topic("send_batch", QUEUES)
    (sent,) = send(launch, language, topic, mode="batch", count=COUNT, tags="TagA,TagB,TagC").of_kind("sent")
    read = read_all(launch, broker, topic, COUNT)
    check_messages(read, topic, range(COUNT), tags="TagA,TagB,TagC")
    check_gapless(read)
    assert [event["properties"]["number"] for event in read] == [str(i) for i in range(COUNT)]
    assert {event["queueId"] for event in read} == {sent["queueId"]}
    assert sent["queueOffset"] == 0
    # The Java client 5.3.3 names other unique ids in its result than it stores; the broker's ids are right for all.
    assert [log_offset(name) for name in sent["offsetMsgId"].split(",")] == [event["phyOffset"] for event in read]


def test_large_bodies_are_compressed(
    launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, language: str
) -> None:
    """Holds: client, compression of large bodies."""
    topic = make_topic("send_large", QUEUES)
    sent = send(launch, language, topic, count=4, size=LARGE).of_kind("sent")
    read = read_all(launch, broker, topic, 4)
    check_messages(read, topic, range(4), size=LARGE)
    check_places(sent, read)
    positions = sorted(event["phyOffset"] for event in read)
    assert positions[-1] - positions[0] < 3 * LARGE / 2, "the bodies were stored as they are"


@pytest.mark.parametrize("kind", ["LZ4", "ZSTD", "ZLIB"])
@pytest.mark.parametrize(("sender", "reader"), [("java-5.3.3", "python"), ("python", "java-5.3.3")])
def test_every_compression_is_read_by_the_other_client(
    launch: Launcher,
    broker: AnyBroker,
    make_topic: TopicMaker,
    monkeypatch: pytest.MonkeyPatch,
    *,
    sender: str,
    reader: str,
    kind: str,
) -> None:
    topic = make_topic(f"compressed_{kind}", QUEUES)
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Drocketmq.message.compressType={kind}")
        send(launch, sender, topic, count=4, size=LARGE, compression=kind)
    consumer = launch.start(reader, "push", topic=topic, group=f"{topic}_reader")
    consumer.wait_messages(4)
    consumer.leave()
    check_messages(consumer.messages, topic, range(4), size=LARGE)
    assert {compression_type(event["sysFlag"]) for event in consumer.messages} == {CompressionType[kind]}
