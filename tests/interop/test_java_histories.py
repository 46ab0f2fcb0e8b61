"""Invariant: what official Java producers were told is stored reaches official Java consumers, whatever worker dies: a
delayed message once and not early, and nothing of a topic that is deleted and created again while they send."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from rocketpy.codes import RequestCode
from rocketpy.message.properties import decode_properties
from rocketpy.remoting.command import RemotingCommand
from tests.fault.test_deletion import wait_dispatched
from tests.interop.brokers import AnyBroker, create_topic, wait_until
from tests.interop.programs import Launcher, Program
from tests.support.broker import RunningBroker
from tests.support.history import Reader
from tests.support.kills import wait_until_gone

SEED = int(os.environ.get("ROCKETPY_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))
DELAYS_MS = (1000, 2000, 3000, 5000, 8000)
LEVELS = " ".join(f"{delay // 1000}s" for delay in DELAYS_MS)
VICTIMS = ("manager", "send", "store", "pull", "codec 0", "selector 0", "manager", "send")
QUEUES = 4
CYCLES = 4
MESSAGES_PER_CYCLE = 100

StartBroker = Callable[..., AbstractContextManager[AnyBroker]]
LaunchAt = Callable[[AnyBroker], Launcher]


def kill(broker: RunningBroker, victim: str) -> None:
    wait_until_gone(broker, victim, broker.kill_worker(victim))


@pytest.mark.parametrize("language", ["java-4.9.8", "java-5.3.3"])
def test_delayed_messages_come_once_and_not_early(
    start_broker: StartBroker, launch_at: LaunchAt, target: str, language: str
) -> None:
    """Holds: broker, 18 delay levels."""
    if target == "java":
        pytest.skip("one process; its death is not survived")
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/{language}")
    with start_broker(settings={"messageDelayLevel": LEVELS, "codecWorkers": "1"}) as broker:
        assert isinstance(broker, RunningBroker)
        launch, topic = launch_at(broker), "delayed_history"
        create_topic(broker, topic, QUEUES)
        consumer = launch.start(language, "push", topic=topic, group="delayed_consumers")
        consumer.wait_ready()
        producer = launch.start(
            language, "send", mode="stream", topic=topic, group="delayed_producers", prefix="d", levels=len(DELAYS_MS)
        )
        for victim in choose.sample(VICTIMS, len(VICTIMS)):
            time.sleep(choose.uniform(0.5, 3.0))
            kill(broker, victim)
        time.sleep(2)
        producer.leave()
        acknowledged = {event["key"] for event in producer.of_kind("sent")}
        wait_until(
            lambda: acknowledged <= {event["key"] for event in consumer.messages}, "all acknowledged messages consumed"
        )
        time.sleep(DELAYS_MS[-1] / 1000 + 1)  # a second copy would come by then
        consumer.leave()
        check_delays(consumer, acknowledged)


def check_delays(consumer: Program, acknowledged: set[str]) -> None:
    places = Counter((event["queueId"], event["queueOffset"]) for event in consumer.messages)
    stored = {(event["key"], event["queueId"], event["queueOffset"]) for event in consumer.messages}
    copies = Counter(key for key, _, _ in stored)
    print(
        f"{len(acknowledged)} acknowledged, {len(copies)} delivered, "
        f"{sum(places.values()) - len(places)} consumed again"
    )
    assert len(acknowledged) > 500
    assert [key for key, count in copies.items() if count > 1] == [], "delivered twice"
    assert acknowledged <= copies.keys(), "lost"
    for event in consumer.messages:
        delay_ms = DELAYS_MS[int(event["properties"]["DELAY"]) - 1]
        early_ms = event["bornTimestamp"] + delay_ms - event["consumedMs"]
        assert early_ms <= 0, f"{event['key']} came {early_ms} ms early"


@pytest.mark.parametrize("language", ["java-4.9.8", "java-5.3.3"])
def test_what_is_sent_to_a_topic_that_was_deleted_is_there(
    start_broker: StartBroker, launch_at: LaunchAt, target: str, language: str
) -> None:
    print(f"ROCKETPY_FAULT_SEED={SEED}")
    choose = random.Random(f"{SEED}/{language}/deletion")
    with start_broker() as broker:
        launch, topic = launch_at(broker), "deleted_history"
        create_topic(broker, topic, QUEUES)
        producer = launch.start(language, "send", mode="stream", topic=topic, group="producers", prefix="x", pause=1)
        wait_sent(producer, MESSAGES_PER_CYCLE)
        for cycle in range(CYCLES):
            if isinstance(broker, RunningBroker) and cycle % 2:
                kill(broker, choose.choice(["manager", "send", "store"]))
            delete(broker, topic)
            wait_sent(producer, len(producer.of_kind("sent")) + 2)  # what was on its way has been answered
            since = len(producer.of_kind("sent"))
            wait_sent(producer, since + MESSAGES_PER_CYCLE)
            expect(broker, topic, producer, since)
        producer.leave()
        expect(broker, topic, producer, since)
        if isinstance(broker, RunningBroker):
            broker.kill_all()
            broker.start()
            expect(broker, topic, producer, since)


def wait_sent(producer: Program, count: int) -> None:
    producer.wait_until(lambda: len(producer.of_kind("sent")) >= count, f"{count} messages sent")


def delete(broker: AnyBroker, topic: str) -> None:
    reader = Reader(broker.port)
    reply = reader.ask(RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": topic}))
    reader.close()
    assert reply.code == 0, reply


def expect(broker: AnyBroker, topic: str, producer: Program, since: int) -> None:
    """Everything acknowledged from the `since`th message on is at its place."""
    sent = producer.of_kind("sent")[since:]
    wanted = {(event["queueId"], event["queueOffset"]): event["key"] for event in sent}
    reader = Reader(broker.port)
    wait_dispatched(reader, topic, wanted)
    found = {
        (queue, record.queue_offset): decode_properties(record.properties.decode())["KEYS"]
        for queue in range(QUEUES)
        for record in reader.records(topic, queue)
    }
    reader.close()
    lost = {place: key for place, key in wanted.items() if found.get(place) != key}
    assert not lost, f"{len(lost)} of {len(wanted)} acknowledged messages are not there: {sorted(lost.items())[:5]}"
