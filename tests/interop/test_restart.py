"""A restart of the broker, clean or by kill -9: messages and offsets are there, and clients go on by themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.interop.brokers import (
    AnyBroker,
    committed_offsets,
    create_topic,
    max_offsets,
    offset_table,
    wait_committed,
    wait_stored,
    wait_until,
)
from tests.interop.conftest import Launch
from tests.interop.expected import check_messages, of_prefix, places

TOPIC, GROUP, LEFT_GROUP = "restarted", "restarted_group", "left_group"
QUEUES = 4
COUNT = 40


def persisted_offsets(broker: AnyBroker, group: str) -> int:
    """The sum of a group's offsets in the broker's file: what survives a kill."""
    path = broker.store / "config" / "consumerOffset.json"
    if not path.exists():
        return 0
    return sum(offset_table(path).get(f"{TOPIC}@{group}", {}).values())


@pytest.mark.parametrize("end", ["clean", "kill"])
def test_restart(start_broker: Callable[..., AbstractContextManager[AnyBroker]], launch_at: Launch, end: str) -> None:
    with start_broker() as broker:
        launch = launch_at(broker)
        create_topic(broker, TOPIC, QUEUES)
        staying = [
            launch.start(name, "push", topic=TOPIC, group=GROUP, instance=f"member-{name}")
            for name in ("java-4.9.8", "go", "python")
        ]
        staying.append(launch.start("python", "push", topic=TOPIC, group=GROUP, instance="trio", backend="trio"))
        leaving = launch.start("java-5.3.3", "push", topic=TOPIC, group=LEFT_GROUP)
        for member in [*staying, leaving]:
            member.wait_until(lambda member=member: member.queues, "queues")
        launch.run("go", "send", topic=TOPIC, group="restarted_producer", prefix="before", count=COUNT)
        wait_stored(broker, TOPIC, QUEUES, COUNT)
        leaving.wait_messages(COUNT)
        wait_committed(broker, LEFT_GROUP, TOPIC, QUEUES)  # a client may leave with its last offset still on the way
        leaving.leave()
        for group in (GROUP, LEFT_GROUP):
            wait_committed(broker, group, TOPIC, QUEUES)
            if end == "kill":
                wait_until(lambda group=group: persisted_offsets(broker, group) == COUNT, f"offsets of {group} on disk")
        offsets = max_offsets(broker, TOPIC, QUEUES)

        if end == "clean":
            broker.stop()
        else:
            broker.kill_all()
        broker.start()

        assert max_offsets(broker, TOPIC, QUEUES) == offsets
        assert committed_offsets(broker, GROUP, TOPIC, QUEUES) == offsets
        assert committed_offsets(broker, LEFT_GROUP, TOPIC, QUEUES) == offsets
        launch.run("java-5.3.3", "send", topic=TOPIC, group="restarted_producer", prefix="after", count=COUNT)
        returned = launch.start("java-5.3.3", "push", topic=TOPIC, group=LEFT_GROUP)
        returned.wait_messages(COUNT)
        for group in (GROUP, LEFT_GROUP):
            wait_committed(broker, group, TOPIC, QUEUES)
        returned.leave()
        check_messages(returned.messages, "after", range(COUNT))
        for member in staying:
            member.leave()
        everything = [event for member in staying for event in member.messages]
        check_messages(of_prefix(everything, "before"), "before", range(COUNT))
        # While members come back one by one queues may change hands, so a message may be seen twice, never not at all.
        after = {event["key"]: event for event in of_prefix(everything, "after")}
        check_messages(after.values(), "after", range(COUNT))
        ends = [(queue, offset) for queue, end_offset in enumerate(offsets) for offset in range(end_offset)]
        assert set(ends) <= set(places(everything))
