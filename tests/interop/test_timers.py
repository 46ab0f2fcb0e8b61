"""Timers of official clients, each with its own setter, come once, whole, and not before their time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.interop.brokers import AnyBroker, TopicMaker
from tests.interop.programs import Launcher

COUNT, DELAY_MS, QUEUES = 60, 1500, 2
FAR_MS, SOON_MS = 3_600_000, 500
TIMES = ("TIMER_DELIVER_MS", "__STARTDELIVERTIME")  # properties of timers that are due at a time


def asked_ms(event: Mapping[str, Any]) -> int:
    """Return the due time: a fixed one, taken before the client found the broker, or a delay after the send."""
    times = (event["properties"].get(name) for name in TIMES)
    return next((int(time) for time in times if time), event["bornTimestamp"] + DELAY_MS)


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
        due_ms = int(event["properties"].get("TIMER_OUT_MS", asked_ms(event)))  # none: was due when it was sent
        assert event["storeTimestamp"] >= due_ms >= asked_ms(event) - 1000, "early"


@pytest.mark.parametrize(
    ("language", "timer"),
    [("java-5.3.3", "setDelayTimeMs"), ("java-4.9.8", "ons"), ("go", "TIMER_DELAY_MS")],
)
def test_pending_timers_are_cancelled_and_moved_by_properties(
    broker: AnyBroker, launch: Launcher, make_topic: TopicMaker, target: str, language: str, timer: str
) -> None:
    """Of timers that are far away a third is cancelled, a third is brought near, and the others stay. What was
    cancelled cannot be brought near."""
    if target == "java":
        pytest.skip("4.9 has no timers")
    topic = make_topic(f"changed_{timer}", QUEUES)
    consumer = launch.start(language, "push", topic=topic, group=f"{topic}_consumers")
    consumer.wait_ready()

    def send(keys: list[str] | None, count: int, delay_ms: int, name: str = "") -> dict[str, list[dict[str, Any]]]:
        more: dict[str, object] = {"property": name, "values": ",".join(keys)} if keys else {}
        producer = launch.run(
            language,
            "send",
            topic=topic,
            group=f"{topic}_producers",
            prefix=name or "t",
            mode="async",
            count=count,
            timer=timer,
            delay=delay_ms,
            **more,
        )
        return {kind: producer.of_kind(kind) for kind in ("sent", "failed")}

    sent = send(None, COUNT, FAR_MS)["sent"]
    keys = {event["key"]: event["msgId"] for event in sent}
    third = COUNT // 3
    cancelled, moved = list(keys)[:third], list(keys)[third : 2 * third]
    assert len(send([keys[key] for key in cancelled], third, FAR_MS, "TIMER_DEL_UNIQKEY")["sent"]) == third
    assert len(send([keys[key] for key in moved], third, SOON_MS, "TIMER_MOVE_UNIQKEY")["sent"]) == third
    refused = send([keys[key] for key in cancelled], third, SOON_MS, "TIMER_MOVE_UNIQKEY")
    assert not refused["sent"] and len(refused["failed"]) == third
    assert all("is pending" in event["error"] for event in refused["failed"]), refused["failed"][0]
    consumer.wait_messages(third)
    consumer.leave()
    assert sorted(event["key"] for event in consumer.messages) == sorted(moved)
    assert all(event["msgId"] == keys[event["key"]] for event in consumer.messages)
