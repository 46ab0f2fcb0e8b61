"""The order configuration of a topic fixes the list of its queues for producers: a key stays in its queue, also while
the broker of that queue is not there. Consumers read all queues as before. The Go client (2.1.2) does not read that
configuration, with any name server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.interop.brokers import AnyBroker, create_topic, decode, wait_until
from tests.interop.mqadmin import MqAdmin
from tests.interop.programs import LANGUAGES, Launcher

TOPIC, QUEUES, LISTED = "ordered", 4, 2
COUNT = 2 * QUEUES
CLIENTS = [language for language in LANGUAGES if language != "go"]
SETTINGS = {"brokerName": "broker-a", "registerNameServerPeriod": "10000"}


def is_marked(broker: AnyBroker) -> bool:
    """Whether the broker has the topic as an order topic; it learns that when it registers."""
    table = decode((broker.store / "config" / "topics.json").read_text())
    marked: bool = table["topicConfigTable"][TOPIC]["order"]
    return marked


def test_the_order_configuration_fixes_the_queues_of_producers(
    start_broker: Callable[..., AbstractContextManager[AnyBroker]],
    launch_at: Callable[[AnyBroker], Launcher],
    mqadmin: MqAdmin,
) -> None:
    """Holds: trap, order topics need orderMessageEnable."""
    with start_broker(settings=SETTINGS) as broker:
        launch = launch_at(broker)
        create_topic(broker, TOPIC, QUEUES)
        sent = set()

        def queues_of(language: str, prefix: str) -> set[int]:
            producer = launch.run(language, "send", topic=TOPIC, group="p", prefix=prefix, count=COUNT)
            sent.update(event["key"] for event in producer.of_kind("sent"))
            return {event["queueId"] for event in producer.of_kind("sent")}

        mqadmin(broker, "updateOrderConf", "-t", TOPIC, "-m", "put", "-v", f"broker-a:{LISTED}")
        wait_until(lambda: is_marked(broker), "the broker marks the topic as ordered")
        assert queues_of("go", "disabled") == set(range(QUEUES)), "orderMessageEnable is off by default"

        mqadmin(broker, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
        for language in CLIENTS:
            assert queues_of(language, f"enabled-{language}") == set(range(LISTED)), language

        mqadmin(broker, "updateOrderConf", "-t", TOPIC, "-m", "put", "-v", f"broker-a:{LISTED};broker-b:{LISTED}")
        stream = launch.start(
            "java-4.9.8", "send", mode="stream", topic=TOPIC, group="p", prefix="strict", shards=2 * LISTED, pause=20
        )
        stream.wait_until(
            lambda: min(len(stream.of_kind("sent")), len(stream.of_kind("failed"))) >= COUNT, "both outcomes"
        )
        stream.leave()
        sent.update(event["key"] for event in stream.of_kind("sent"))
        for kind, shards in (("sent", range(LISTED)), ("failed", range(LISTED, 2 * LISTED))):
            numbers = {int(event["key"].rpartition("-")[2]) for event in stream.of_kind(kind)}
            assert {number % (2 * LISTED) for number in numbers} == set(shards), "keys of an absent broker do not move"
        assert all(
            event["queueId"] == int(event["key"].rpartition("-")[2]) % (2 * LISTED) for event in stream.of_kind("sent")
        )

        mqadmin(broker, "updateOrderConf", "-t", TOPIC, "-m", "delete")
        wait_until(lambda: not is_marked(broker), "the broker removes the mark")
        assert queues_of("go", "deleted") == set(range(QUEUES))

        consumer = launch.start("go", "push", topic=TOPIC, group="readers")
        consumer.wait_messages(len(sent))
        consumer.leave()
        assert sent == {event["key"] for event in consumer.messages}
