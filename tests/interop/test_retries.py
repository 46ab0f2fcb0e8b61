"""What a consumer cannot handle is delivered again as often as its client asks, and then lies with the dead letters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.interop.brokers import AnyBroker, create_topic, wait_committed, wait_stored
from tests.interop.programs import LANGUAGES, Launcher

TOPIC = "failing"
COUNT = 3
ATTEMPTS = 2  # further ones
LEVELS = " ".join(["1s"] * 18)


def test_retries_end_with_the_dead_letters(
    start_broker: Callable[..., AbstractContextManager[AnyBroker]], launch_at: Callable[[AnyBroker], Launcher]
) -> None:
    """A group of each client, all at the same time, because what takes time here is waiting.
    Holds: broker, retries with growing intervals; broker, dead letters."""
    with start_broker(settings={"messageDelayLevel": LEVELS}) as broker:
        launch = launch_at(broker)
        groups = {language: f"failing_{language.replace('.', '_')}" for language in LANGUAGES}
        create_topic(broker, TOPIC, 2)
        for group in groups.values():  # else a consumer may find its own one seconds later
            create_topic(broker, f"%RETRY%{group}", 1)
        consumers = {
            language: launch.start(language, "push", topic=TOPIC, group=group, fail="true", attempts=ATTEMPTS)
            for language, group in groups.items()
        }
        for consumer in consumers.values():
            consumer.wait_until(lambda consumer=consumer: consumer.queues, "queues")
        launch.run("go", "send", topic=TOPIC, group="p", prefix="f", count=COUNT)
        expected = {f"f-{number}": list(range(1 + ATTEMPTS)) for number in range(COUNT)}
        for language, consumer in consumers.items():
            consumer.wait_messages(COUNT * (1 + ATTEMPTS))
            wait_stored(broker, f"%DLQ%{groups[language]}", 1, COUNT)
            wait_committed(broker, groups[language], f"%RETRY%{groups[language]}", 1)
            consumer.leave()
            attempts = defaultdict(list)
            for event in consumer.messages:
                attempts[event["key"]].append(event["reconsumeTimes"])
            assert attempts == expected, language
        for language, group in groups.items():
            reader = launch.start("go", "push", topic=f"%DLQ%{group}", group=f"{group}_undertaker")
            read = {event["key"]: event for event in reader.wait_messages(COUNT)}
            reader.leave()
            assert read.keys() == expected.keys(), language
            assert {event["properties"]["RETRY_TOPIC"] for event in read.values()} == {TOPIC}, language
