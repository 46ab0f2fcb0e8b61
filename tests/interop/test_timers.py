"""Timers of official clients, each with its own setter, come once, whole, and not before their time."""

from __future__ import annotations

import pytest

from tests.interop.brokers import AnyBroker, TopicMaker
from tests.interop.programs import Launcher

COUNT, DELAY_MS, QUEUES = 60, 1500, 2


@pytest.mark.parametrize(
    ("language", "timer"),
    [
        ("java-5.3.3", "setDelayTimeMs"),
        ("java-5.3.3", "setDelayTimeSec"),
        ("java-5.3.3", "setDeliverTimeMs"),
        ("java-4.9.8", "ons"),
        ("go", "TIMER_DELAY_MS"),
    ],
)
def test_timers_come_once_and_not_early(
    broker: AnyBroker, launch: Launcher, make_topic: TopicMaker, target: str, language: str, timer: str
) -> None:
    if target == "java":
        pytest.skip("4.9 has no timers")
    topic = make_topic(f"timers_{timer}", QUEUES)
    consumer = launch.start(language, "push", topic=topic, group=f"{topic}_consumers")
    consumer.wait_ready()
    producer = launch.run(
        language, "send", topic=topic, group=f"{topic}_producers", prefix="t", count=COUNT, timer=timer, delay=DELAY_MS
    )
    sent = {event["key"]: event for event in producer.of_kind("sent")}
    assert len(sent) == COUNT and all(event["status"] == "SEND_OK" for event in sent.values())
    consumer.wait_messages(COUNT)
    consumer.leave()
    came = [event["key"] for event in consumer.messages]
    assert sorted(came) == sorted(sent), "each once"
    for event in consumer.messages:
        assert event["msgId"] == sent[event["key"]]["msgId"]
        assert event["storeTimestamp"] >= int(event["properties"]["TIMER_OUT_MS"]), "early"
        assert int(event["properties"]["TIMER_OUT_MS"]) >= event["bornTimestamp"] + DELAY_MS - 1000
