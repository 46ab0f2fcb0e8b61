"""Groups of every client are moved to a time by both mqadmin: running ones (members are told), and stopped ones."""

from __future__ import annotations

import time

from tests.interop.admin_tools import python_tool
from tests.interop.brokers import (
    AnyBroker,
    NameMaker,
    TopicMaker,
    committed_offsets,
    max_offsets,
    wait_committed,
    wait_stored,
)
from tests.interop.expected import check_messages, of_prefix
from tests.interop.mqadmin import MqAdmin
from tests.interop.programs import LANGUAGES, Launcher, Program

QUEUES = 4
COUNT = 20
APART_S = 1.0  # a search by time finds the message that is nearest to it


def reset(broker: AnyBroker, java: MqAdmin, tool: str, *options: str) -> None:
    if tool == "java":
        java(broker, "resetOffsetByTime", *options)
    else:
        printed = python_tool(["resetOffsetByTime", "-n", broker.namesrv, *options])
        assert printed.succeeded, printed


def test_groups_are_moved_to_a_time(
    launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, names: NameMaker, mqadmin: MqAdmin
) -> None:
    """Holds: client, replay from a time; answer, offset resets (222, 223)."""
    topic = make_topic("replayed", QUEUES)
    groups = {language: names("replay") for language in LANGUAGES}

    def send(prefix: str) -> None:
        launch.run("go", "send", topic=topic, group=f"{topic}_p", prefix=prefix, count=COUNT)

    def start() -> dict[str, Program]:
        return {
            language: launch.start(language, "push", topic=topic, group=group) for language, group in groups.items()
        }

    def wait_consumed(members: dict[str, Program], count: int) -> None:
        for language, member in members.items():
            member.wait_messages(count)
            wait_committed(broker, groups[language], topic, QUEUES)

    def committed() -> list[list[int]]:
        return [committed_offsets(broker, group, topic, QUEUES) for group in groups.values()]

    def move(java: str, *options: str) -> None:
        """The group of `java` by the official tool, the others by ours."""
        for language, group in groups.items():
            reset(broker, mqadmin, "java" if language == java else "rocketpy", "-g", group, "-t", topic, *options)

    members = start()
    send("before")
    wait_stored(broker, topic, QUEUES, COUNT)
    offsets = max_offsets(broker, topic, QUEUES)
    time.sleep(APART_S)
    send("after")
    wait_consumed(members, 2 * COUNT)
    time_ms = min(event["storeTimestamp"] for event in of_prefix(members["go"].messages, "after"))

    move("go", "-s", str(time_ms))  # back, while they run
    wait_consumed(members, 3 * COUNT)
    for member in members.values():
        member.leave()
        check_messages(member.messages[2 * COUNT :], "after", range(COUNT))

    send("later")
    wait_stored(broker, topic, QUEUES, 3 * COUNT)
    move("go", "-s", "now", "-f", "false")
    assert [sum(of_group) for of_group in committed()] == [2 * COUNT] * len(groups), "nothing moves on without force"
    move("java-5.3.3", "-s", "now")
    assert committed() == [max_offsets(broker, topic, QUEUES)] * len(groups)
    move("java-4.9.8", "-s", str(time_ms))
    assert committed() == [offsets] * len(groups)
    members = start()
    wait_consumed(members, 2 * COUNT)
    for member in members.values():
        member.leave()
        for prefix in ("after", "later"):
            check_messages(of_prefix(member.messages, prefix), prefix, range(COUNT))
        assert len(member.messages) == 2 * COUNT
