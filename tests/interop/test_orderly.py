"""Ordered consumption: a selector keeps a key in one queue, and each key is consumed in the order it was sent."""

from __future__ import annotations

from collections import defaultdict

from tests.interop.brokers import AnyBroker, NameMaker, TopicMaker, wait_committed
from tests.interop.expected import check_messages, places
from tests.interop.programs import LANGUAGES, Launcher, wait_for_all

QUEUES = 4
SHARDS = 8
COUNT = 80


def test_order_of_keys(
    launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, names: NameMaker, language: str
) -> None:
    """Two members, of two clients, and the selector of the client under test."""
    topic, group = make_topic("orderly", QUEUES), names("orderly_group")
    other = LANGUAGES[(LANGUAGES.index(language) + 1) % len(LANGUAGES)]
    members = []
    for name in sorted((language, other), key="go".__eq__):  # Go keeps locks that it gives away until they expire
        members.append(launch.start(name, "push", topic=topic, group=group, orderly="true", instance=f"member-{name}"))
        members[-1].wait_until(lambda: members[-1].queues, "queues")
    for member in members:
        member.wait_until(lambda member=member: len(member.queues or ()) == 2, "half the queues")
    launch.run(language, "send", topic=topic, group=f"{topic}_producer", prefix=topic, count=COUNT, shards=SHARDS)
    wait_for_all(members, COUNT)
    wait_committed(broker, group, topic, QUEUES)
    for member in members:
        member.leave()
    everything = [event for member in members for event in member.messages]
    check_messages(everything, topic, range(COUNT))
    assert len(set(places(everything))) == COUNT
    for member in members:
        numbers = defaultdict(list)
        for event in member.messages:
            numbers[int(event["properties"]["number"]) % SHARDS].append(int(event["properties"]["number"]))
            assert event["queueId"] == int(event["properties"]["number"]) % SHARDS % QUEUES
        assert len(numbers) == SHARDS // 2, "both members took part"
        for shard, of_shard in numbers.items():
            assert of_shard == list(range(shard, COUNT, SHARDS))
