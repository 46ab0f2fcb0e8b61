"""Push consumers of every client, over messages of every client: all of them, once, and only those asked for."""

from __future__ import annotations

import attrs
import pytest

from tests.interop.brokers import AnyBroker, NameMaker, TopicMaker, wait_committed
from tests.interop.expected import check_messages, of_prefix, places
from tests.interop.programs import LANGUAGES, Launcher

QUEUES = 4
COUNT = 12  # per producer and way of sending
LARGE = 50_000
TAGS = "TagA,TagB,TagC"


@attrs.frozen
class Mixed:
    """A topic with messages of every client: single ones, a batch, and large ones."""

    topic: str
    total: int


@pytest.fixture(scope="module")
def mixed(module_launch: Launcher, make_topic: TopicMaker) -> Mixed:
    topic = make_topic("push_mixed", QUEUES)
    total = 0
    for name in LANGUAGES:
        for mode, count, size in (("sync", COUNT, 0), ("batch", COUNT, 0), ("async", 2, LARGE)):
            module_launch.run(
                name,
                "send",
                topic=topic,
                group=f"{topic}_producer",
                prefix=f"{name}-{mode}",
                mode=mode,
                count=count,
                size=size,
                tags=TAGS,
            )
            total += count
    return Mixed(topic, total)


def check_all(read: list[dict[str, object]], mixed: Mixed) -> None:
    assert len(read) == mixed.total
    assert len(set(places(read))) == mixed.total
    for name in LANGUAGES:
        check_messages(of_prefix(read, f"{name}-sync"), f"{name}-sync", range(COUNT), tags=TAGS)
        check_messages(of_prefix(read, f"{name}-batch"), f"{name}-batch", range(COUNT), tags=TAGS)
        check_messages(of_prefix(read, f"{name}-async"), f"{name}-async", range(2), tags=TAGS, size=LARGE)


def test_clustered(launch: Launcher, broker: AnyBroker, mixed: Mixed, names: NameMaker, language: str) -> None:
    """Holds: cluster, four roles; client, publishers and subscribers do not know each other; client, clustering."""
    group = names("push_clustered")
    consumer = launch.start(language, "push", topic=mixed.topic, group=group)
    consumer.wait_messages(mixed.total)
    wait_committed(broker, group, mixed.topic, QUEUES)
    consumer.leave()
    check_all(consumer.messages, mixed)


def test_broadcast(launch: Launcher, mixed: Mixed, names: NameMaker, language: str) -> None:
    """Both members get everything.
    Holds: client, broadcasting."""
    group = names("push_broadcast")
    members = [
        launch.start(language, "push", topic=mixed.topic, group=group, model="broadcasting", instance=f"member-{i}")
        for i in range(2)
    ]
    for member in members:
        member.wait_messages(mixed.total)
    for member in members:
        member.leave()
        check_all(member.messages, mixed)


def test_tag_filter(launch: Launcher, mixed: Mixed, names: NameMaker, language: str) -> None:
    """Holds: filter, tags by hash on the broker and by text on the client."""
    group = names("push_tags")
    consumer = launch.start(language, "push", topic=mixed.topic, group=group, expression="TagA || TagC")
    wanted = len(LANGUAGES) * (8 + 8 + 1)  # two thirds of 12, twice, and of the two large ones the first
    consumer.wait_messages(wanted)
    consumer.leave()
    assert len(set(places(consumer.messages))) == len(consumer.messages) == wanted
    assert {event["tags"] for event in consumer.messages} == {"TagA", "TagC"}
    for name in LANGUAGES:
        kept = [i for i in range(COUNT) if i % 3 != 1]
        check_messages(of_prefix(consumer.messages, f"{name}-sync"), f"{name}-sync", kept, tags=TAGS)


def test_new_messages_reach_a_waiting_consumer(
    launch: Launcher, make_topic: TopicMaker, names: NameMaker, language: str
) -> None:
    """Long polling: the consumer is there before the messages are.
    Holds: client, push and pull consumers."""
    topic = make_topic("push_waiting", QUEUES)
    consumer = launch.start(language, "push", topic=topic, group=names("push_waiting_group"))
    consumer.wait_until(lambda: consumer.queues == list(range(QUEUES)), "all queues")
    launch.run("go", "send", topic=topic, group=f"{topic}_producer", prefix="later", count=COUNT, tags=TAGS)
    consumer.wait_messages(COUNT)
    consumer.leave()
    check_messages(consumer.messages, "later", range(COUNT), tags=TAGS)
