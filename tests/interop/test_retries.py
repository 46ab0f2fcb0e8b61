"""What a consumer cannot handle is delivered again as often as its client asks, and then lies with the dead letters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.interop.brokers import AnyBroker, NameMaker, committed_offsets, create_topic, max_offsets, wait_until
from tests.interop.programs import Launcher

COUNT = 3
ATTEMPTS = 2  # further ones
LEVELS = " ".join(["1s"] * 18)


@pytest.fixture(scope="module")
def hasty_broker(start_broker: Callable[..., AbstractContextManager[AnyBroker]]) -> Iterator[AnyBroker]:
    """Whose delays are short."""
    with start_broker(settings={"messageDelayLevel": LEVELS}) as broker:
        yield broker


def test_retries_end_with_the_dead_letters(
    hasty_broker: AnyBroker, launch_at: Callable[[AnyBroker], Launcher], names: NameMaker, language: str
) -> None:
    launch, topic, group = launch_at(hasty_broker), names("failing"), names("failing_group")
    create_topic(hasty_broker, topic, 2)
    consumer = launch.start(language, "push", topic=topic, group=group, fail="true", attempts=ATTEMPTS)
    consumer.wait_until(lambda: consumer.queues, "queues")
    launch.run("go", "send", topic=topic, group=f"{topic}_producer", prefix="f", count=COUNT)
    dead_letters, retries = f"%DLQ%{group}", f"%RETRY%{group}"
    consumer.wait_messages(COUNT * (1 + ATTEMPTS))
    wait_until(lambda: max_offsets(hasty_broker, dead_letters, 1) == [COUNT], "the dead letters")
    wait_until(
        lambda: committed_offsets(hasty_broker, group, retries, 1) == max_offsets(hasty_broker, retries, 1),
        "the offset of the retries",
    )
    consumer.leave()
    attempts = defaultdict(list)
    for event in consumer.messages:
        attempts[event["key"]].append(event["reconsumeTimes"])
    assert attempts == {f"f-{number}": list(range(1 + ATTEMPTS)) for number in range(COUNT)}

    reader = launch.start("java-4.9.8", "push", topic=dead_letters, group=names("undertaker"))
    read = {event["key"]: event for event in reader.wait_messages(COUNT)}
    reader.leave()
    assert sorted(read) == [f"f-{number}" for number in range(COUNT)]
    assert {event["properties"]["RETRY_TOPIC"] for event in read.values()} == {topic}
