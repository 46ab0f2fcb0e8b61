"""Pull consumers of every client: shared by subscription, and with queues of their own choice."""

from __future__ import annotations

import time

import pytest

from tests.interop.brokers import (
    AnyBroker,
    NameMaker,
    TopicMaker,
    committed_offsets,
    max_offsets,
    wait_committed,
    wait_until,
)
from tests.interop.expected import check_messages, places
from tests.interop.programs import DEADLINE_S, Launcher, Program, wait_for_all

QUEUES = 2
COUNT = 40


@pytest.fixture(autouse=True)
def _answered_by_target(target: str, language: str) -> None:
    """The client 5.3.3 pulls with request code 361, which rocketpy answers and the broker 4.9.7 does not know."""
    if target == "java" and language == "java-5.3.3":
        pytest.skip("the official broker 4.9.7 does not know LITE_PULL_MESSAGE (361)")


@pytest.fixture(scope="module")
def filled(module_launch: Launcher, make_topic: TopicMaker) -> str:
    topic = make_topic("lite_pull", QUEUES)
    module_launch.run("go", "send", topic=topic, group=f"{topic}_producer", prefix=topic, count=COUNT)
    return topic


def test_subscribe(launch: Launcher, broker: AnyBroker, filled: str, names: NameMaker, language: str) -> None:
    """Holds: client, push and pull consumers."""
    group = names("lite_subscribe")
    first = launch.start(language, "litepull", topic=filled, group=group)
    first.wait_messages(COUNT)
    first.leave()
    check_messages(first.messages, filled, range(COUNT))
    wait_committed(broker, group, filled, QUEUES)


def from_begin(reader: Program) -> list[tuple[int, int]]:
    """(queue, offset) of what was read, from the first message of queue 1 on."""
    read = places(reader.messages)
    return read[read.index((1, 0)) :] if (1, 0) in read else []


def test_assign(launch: Launcher, broker: AnyBroker, filled: str, names: NameMaker, language: str) -> None:
    group = names("lite_assign")
    reader = launch.start(language, "litepull", topic=filled, group=group, mode="assign", queues="1", begin="true")
    offset = max_offsets(broker, filled, QUEUES)[1]
    # A Java client begins to read when a queue is assigned, which may be before it seeks to the begin.
    wait_until(lambda: len(from_begin(reader)) >= offset, "the queue is read from its begin")
    reader.leave()
    assert from_begin(reader) == [(1, i) for i in range(offset)]
    if language != "go":  # its commits are about the queues of its group, not about those it reads by hand
        assert committed_offsets(broker, group, filled, QUEUES) == [0, offset]


def test_two_members_share_the_queues(
    launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, names: NameMaker, language: str
) -> None:
    topic, group = make_topic("lite_shared", QUEUES), names("lite_shared_group")
    members = [launch.start(language, "litepull", topic=topic, group=group) for _ in range(2)]
    for member in members:
        member.wait_ready()
    sent = 0
    deadline = time.monotonic() + DEADLINE_S
    while not all(member.messages for member in members):  # until the group is balanced
        assert time.monotonic() < deadline, "one member gets nothing"
        launch.run("go", "send", topic=topic, group=f"{topic}_producer", prefix=f"round{sent}", count=QUEUES)
        sent += QUEUES
    wait_for_all(members, sent)
    for member in members:
        member.leave()
    seen = [place for member in members for place in places(member.messages)]
    assert set(seen) == {(queue, i) for queue in range(QUEUES) for i in range(sent // QUEUES)}
