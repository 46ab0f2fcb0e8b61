"""`requestLogSample` of a real broker: sends and pulls that C serves have lines, and nothing waits for them."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client import Message, ProducerOptions, PullOptions
from rocketpy.client.sync import Producer, PullConsumer
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.kills import wait_for
from tests.support.waiting import metric
from tests.support.wire import Wire, pull_request, send_request

SEND, PULL = "SEND_MESSAGE_V2", "PULL_MESSAGE"
DROPPED = "rocketpy_worker_request_log_dropped_total"


def settings(every: int, **more: str) -> dict[str, str]:
    return {"logFormat": "json", "requestLogSample": str(every), "logLevel": "INFO"} | more


def lines(broker: RunningBroker, *requests: str) -> list[dict[str, Any]]:
    """The lines about requests of these names to the broker."""
    objects = [json.loads(line) for line in broker.text().splitlines() if line.startswith("{")]
    return [found for found in objects if found["process"] != "namesrv" and found.get("request") in requests]


def test_a_send_and_a_pull_of_the_client_have_a_line_each() -> None:
    with running_broker(settings(1)) as broker:
        with Producer("senders", ProducerOptions(name_servers=broker.namesrv)) as producer:
            producer.send(Message("T", b"makes the topic"))
            sent = producer.send(Message("T", b"body"))
        with PullConsumer("pullers", PullOptions(name_servers=broker.namesrv)) as consumer:
            pulled = consumer.pull(sent.queue, sent.queue_offset)
            assert [message.body for message in pulled.messages] == [b"body"]
        wait_for(lambda: len(lines(broker, SEND, PULL)) == 3, broker)
        _, send, pull = lines(broker, SEND, PULL)
        for line, group in ((send, "senders"), (pull, "pullers")):
            assert line["event"] == (
                "served request ... of client ...: topic ..., group ..., queue ..., offset ..., answered ..., "
                "duration ... ms"
            )
            found = [line[name] for name in ("process", "topic", "group", "queue", "offset", "code")]
            assert found == ["manager", "T", group, sent.queue.queue_id, sent.queue_offset, 0]
            assert line["opaque"] > 0 and int(line["connection"], 16) > 0 and 0 <= line["durationMs"] < 60_000
        assert send["connection"] != pull["connection"]


def test_the_opaque_is_that_of_the_request_and_refusals_have_their_code() -> None:
    with running_broker(settings(1, autoCreateTopicEnable="false")) as broker, Wire.open(broker.port) as wire:
        refused = wire.ask(send_request("Absent", b"body"))
        pulled = wire.ask(pull_request("Absent", 0))
        wait_for(lambda: len(lines(broker, SEND, PULL)) == 2, broker)
        found = [(line["opaque"], line["topic"], line["code"]) for line in lines(broker, SEND, PULL)]
        assert found == [(one.opaque, "Absent", one.code) for one in (refused, pulled)]
        assert refused.code and pulled.code


def test_a_tenth_of_the_sends_and_of_the_pulls() -> None:
    with running_broker(settings(10)) as broker:
        with Producer("senders", ProducerOptions(name_servers=broker.namesrv)) as producer:
            queues = [producer.send(Message("T", b"body")).queue for _ in range(50)]
        with PullConsumer("pullers", PullOptions(name_servers=broker.namesrv)) as consumer:
            for queue in queues[:30]:
                consumer.pull(queue, 0)
        wait_for(lambda: len(lines(broker, SEND)) >= 5 and len(lines(broker, PULL)) >= 3, broker)
        assert broker.stop() == 0
        assert (len(lines(broker, SEND)), len(lines(broker, PULL))) == (5, 3)


def test_without_sampling_there_is_no_line() -> None:
    with running_broker(settings(0)) as broker:
        with Wire.open(broker.port) as wire:
            assert wire.ask(send_request("T", b"body")).code == 0
            wire.ask(pull_request("T", 0))
        assert broker.stop() == 0
        assert "served request" not in broker.text()


def test_a_manager_that_stands_still_delays_no_send_and_lines_are_dropped_and_counted() -> None:
    port, _ = free_ports()
    with running_broker(settings(1, metricsPort=str(port))) as broker, Wire.open(broker.port) as wire:
        assert wire.ask(send_request("T", b"makes the topic")).code == 0
        manager = broker.workers()["manager"]
        os.kill(manager, signal.SIGSTOP)
        try:
            answers = wire.answers(wire.tell(*(send_request("T", b"body") for _ in range(2_000))))
        finally:
            os.kill(manager, signal.SIGCONT)
        assert {answer.code for answer in answers.values()} == {0}
        wait_for(lambda: len(lines(broker, SEND)) + metric(port, DROPPED) == 2_001, broker)
        assert 1 < len(lines(broker, SEND)) < 2_000 and broker.workers()["manager"] == manager
