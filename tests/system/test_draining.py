"""drainBroker with a real broker: it waits for the readers, and what is drained stays so."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client import START_FIRST, Message, ProducerOptions, PullOptions, PushOptions
from rocketpy.client.sync import Producer, PullConsumer, PushConsumer
from rocketpy.message.message_queue import MessageQueue
from tests.support import preloaded
from tests.support.broker import RunningBroker, running_broker

if TYPE_CHECKING:
    from tests.interop.brokers import AnyBroker

COUNT = 5


def mqadmin(broker: AnyBroker, *words: str, status: int = 0) -> list[dict[str, object]]:
    command = [*preloaded.COMMAND, "admin", *words, "-n", broker.namesrv, "--output", "json"]
    done = preloaded.run(command, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def perms(broker: RunningBroker, topic: str) -> list[object]:
    return [row["perm"] for row in mqadmin(broker, "topicRoute", "-t", topic, "-l")]


def consume(broker: AnyBroker, count: int) -> None:
    options = PullOptions(name_servers=broker.namesrv, start=START_FIRST)
    with PullConsumer("g", options) as consumer:
        consumer.subscribe("T")
        got = 0
        for _ in range(10):  # each waits 5 s for a message
            got += len(consumer.poll(max_messages=count - got)) if got < count else 0
        assert got == count
        consumer.commit()


def test_a_broker_is_drained(tmp_path: Path) -> None:
    drain = ("drainBroker", "-b", "broker-a", "--wait", "--route-seconds", "0", "--wait-seconds")
    with running_broker(store=tmp_path / "store") as broker:
        with Producer("p", ProducerOptions(name_servers=broker.namesrv)) as producer:
            for number in range(COUNT):
                producer.send(Message("T", b"%d" % number))
        consume(broker, 2)
        rows = mqadmin(broker, *drain, "1", status=3)
        assert rows[1:] == [
            {"group": "g", "members": 0, "unread": COUNT - 2},
            {"broker_name": "broker-a", "drained": False, "unread": COUNT - 2},
        ]
        consume(broker, COUNT - 2)
        assert mqadmin(broker, *drain, "60")[-1] == {"broker_name": "broker-a", "drained": True, "unread": 0}
        mqadmin(broker, "updateTopic", "-b", broker.address, "-t", "New")
        assert (perms(broker, "T"), perms(broker, "New")) == ([4], [4]), "a new topic does not undo it"
        assert broker.stop() == 0
        broker.start()
        assert (perms(broker, "T"), perms(broker, "New")) == ([6], [6])


def test_an_online_group_without_an_offset(tmp_path: Path) -> None:
    """Fault: A broker was reported as drained while an online group had not committed its first offset."""
    drain = ("drainBroker", "-b", "broker-a", "--wait", "--route-seconds", "0", "--wait-seconds")
    is_free = threading.Event()
    with running_broker(store=tmp_path / "store") as broker:
        with Producer("p", ProducerOptions(name_servers=broker.namesrv)) as producer:
            producer.send(Message("T", b"0"))

        def handle(message: object) -> None:
            is_free.wait(60)

        options = PushOptions(name_servers=broker.namesrv, start=START_FIRST)
        with PushConsumer("g", {"T": "*"}, handle, options=options):
            rows = mqadmin(broker, *drain, "5", status=3)
            assert {"group": "g", "members": 1, "unread": 1} in rows
            is_free.set()
            assert mqadmin(broker, *drain, "60")[-1]["drained"] is True


def drain_queues_that_are_only_read(broker: AnyBroker) -> None:
    """Topic T has 4 queues; those that it loses for writing have messages that group g has not read."""
    drain = ("drainBroker", "-b", "broker-a", "--wait", "--route-seconds", "0", "--wait-seconds")
    with Producer("p", ProducerOptions(name_servers=broker.namesrv)) as producer:
        for number in range(COUNT):
            producer.send(Message("T", b"%d" % number), queue=MessageQueue("T", "broker-a", 1 + number % 3))
    consume(broker, 1)
    mqadmin(broker, "updateTopic", "-b", broker.address, "-t", "T", "-r", "4", "-w", "1")
    unread = {"broker_name": "broker-a", "drained": False, "unread": COUNT - 1}
    assert mqadmin(broker, *drain, "1", status=3)[-1] == unread
    consume(broker, COUNT - 1)
    assert mqadmin(broker, *drain, "60")[-1] == {"broker_name": "broker-a", "drained": True, "unread": 0}


def test_queues_that_are_only_read_are_drained_too() -> None:
    """Fault: drainBroker reported a broker as drained while messages were unread in queues beyond writeQueueNums."""
    with running_broker() as broker:
        mqadmin(broker, "updateTopic", "-b", broker.address, "-t", "T", "-r", "4", "-w", "4")
        drain_queues_that_are_only_read(broker)
