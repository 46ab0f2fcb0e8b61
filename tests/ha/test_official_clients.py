"""Clients over a failover: they follow brokerId 0, and get every message that was acknowledged, in the order of its
queue. The official ones of Java and Go, and ours; the Java client 5.3.3 of a group with TLS and accounts everywhere."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.interop import toolchain
from tests.interop.programs import Event, Launcher, Program, command_of, java_flags
from tests.support.ha.group import real_group
from tests.support.ha.guard import CLIENT, Guard

TOPIC = "Official"
STORED = ("SEND_OK", "SLAVE_NOT_AVAILABLE")  # the second by a master that is alone in sync
GO_NO_SLAVE = "sendStatus=3"
MESSAGES = 200  # before the failover, and after it
GUARDED = "java-5.3.3"
ACCOUNT = {"accessKey": CLIENT.access_key, "secretKey": CLIENT.secret_key}
POLL_MS = 1000  # clients of Java and ours ask for routes so often; those of Go every 30 s


@pytest.mark.parametrize("language", ["java-4.9.8", GUARDED, "go", "python"])
def test_producer_and_consumer_follow_the_master(
    tmp_path: Path, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        command_of(language, tmp_path)
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    guard, account = (Guard(tmp_path), ACCOUNT) if language == GUARDED else (None, {})
    if guard is not None:
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(java_flags(guard.authority.trusting())))
    with real_group(tmp_path, guard=guard) as group:
        first = group.master() or ""
        launcher = Launcher(group.namesrv.namesrv, tmp_path)
        try:
            common = {"topic": TOPIC, "poll": POLL_MS, **account}
            producer = launcher.start(language, "send", mode="stream", group="official_producers", prefix="m", **common)
            producer.wait_until(lambda: acknowledged(producer), "the topic")
            consumer = launcher.start(language, "push", group="official_consumers", orderly="true", **common)
            consumer.wait_messages(MESSAGES)
            group.history.happened(f"kill -9 of all of {first}")
            group.members[first].kill_all()
            before = len(acknowledged(producer))
            producer.wait_until(lambda: len(acknowledged(producer)) > before + MESSAGES, "messages after the failover")
            group.wait_for(lambda: group.master() == group.other(first), "the failover")
            group.members[first].begin()
            group.wait_in_sync()
            producer.leave()
            wanted = acknowledged(producer)
            consumer.wait_until(lambda: wanted <= {event["key"] for event in consumer.messages}, "all messages")
            consumer.leave()
        finally:
            launcher.close()
        check_order(consumer.messages)


def acknowledged(producer: Program) -> set[str]:
    return {
        event["key"]
        for event in producer.of_kind("sent")
        if event["status"] in STORED or GO_NO_SLAVE in event["status"]
    }


def check_order(messages: list[Event]) -> None:
    """No place has two messages; a queue has them in the order of the sends, and its consumer got them so."""
    places: dict[tuple[int, int], set[str]] = {}
    arrived: dict[int, list[int]] = {}
    for event in messages:
        queue_id, offset = event["queueId"], event["queueOffset"]
        if (queue_id, offset) not in places:
            arrived.setdefault(queue_id, []).append(offset)
        places.setdefault((queue_id, offset), set()).add(event["key"])
    assert [keys for keys in places.values() if len(keys) > 1] == [], "two messages at one place"
    for queue_id, offsets in arrived.items():
        assert offsets == sorted(offsets), f"queue {queue_id} arrived in another order"
        numbers = [number_of(*places[queue_id, offset]) for offset in sorted(offsets)]
        assert all(one < two for one, two in itertools.pairwise(numbers)), f"queue {queue_id} has another order"


def number_of(key: str) -> int:
    return int(key.rsplit("-", 1)[1])
