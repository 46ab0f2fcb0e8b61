"""SQL92 subscriptions of official clients and ours: each gets what its expression selects, or is told why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import attrs
import pytest

from tests.interop.brokers import AnyBroker, NameMaker, create_topic, wait_committed
from tests.interop.conftest import Launch
from tests.interop.expected import TEXT, check_messages, of_prefix, places

Starter = Callable[..., AbstractContextManager[AnyBroker]]

QUEUES = 4
COUNT = 24  # per producer
TAGS = "TagA,TagB,TagC"
WITH_BITS = {
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
    "enableConsumeQueueExt": "true",
}


@attrs.frozen
class Filter:
    """An expression, and the numbers of the messages that it selects."""

    expression: str
    selects: Callable[[int], bool]

    @property
    def numbers(self) -> list[int]:
        return [number for number in range(COUNT) if self.selects(number)]


FILTERS = (
    Filter(
        "number BETWEEN 4 AND 15 AND TAGS <> 'TagB' AND missing IS NULL",
        lambda number: 4 <= number <= 15 and number % 3 != 1,
    ),
    Filter(
        f"(TAGS IN ('TagB', 'TagX') AND text = '{TEXT}') OR number = 0 OR missing > 3",
        lambda number: number % 3 == 1 or number == 0,
    ),
)


@pytest.fixture(scope="module")
def filtering(start_broker: Starter) -> Iterator[AnyBroker]:
    with start_broker(settings=WITH_BITS) as running:
        yield running


def test_each_client_gets_what_the_expression_selects(
    filtering: AnyBroker, launch_at: Launch, names: NameMaker, language: str
) -> None:
    """Messages stored before the subscription have no filter bits; messages stored after it have.
    Holds: filter, SQL92 over properties."""
    launch, topic = launch_at(filtering), names("filtered")
    create_topic(filtering, topic, QUEUES)

    def send(client: str, prefix: str) -> None:
        launch.run(client, "send", topic=topic, group=f"{topic}_p", prefix=prefix, count=COUNT, tags=TAGS)

    send("python", "before")
    groups = [names("filtered_group") for _ in FILTERS]
    consumers = [
        launch.start(language, "push", topic=topic, group=group, sql=wanted.expression)
        for group, wanted in zip(groups, FILTERS, strict=True)
    ]
    for consumer, wanted in zip(consumers, FILTERS, strict=True):
        consumer.wait_messages(len(wanted.numbers))
    send("go", "after")
    for consumer, wanted, group in zip(consumers, FILTERS, groups, strict=True):
        consumer.wait_messages(2 * len(wanted.numbers))
        wait_committed(filtering, group, topic, QUEUES)  # nothing more can come
        consumer.leave()
        assert len(set(places(consumer.messages))) == len(consumer.messages) == 2 * len(wanted.numbers)
        for prefix in ("before", "after"):
            check_messages(of_prefix(consumer.messages, prefix), prefix, wanted.numbers, tags=TAGS)


@pytest.fixture(scope="module")
def without_filters(start_broker: Starter) -> Iterator[AnyBroker]:
    with start_broker(settings={"enablePropertyFilter": "false"}) as running:
        yield running


def reason(launch_at: Launch, broker: AnyBroker, topic: str, client: str, expression: str) -> str:
    """What a consumer is told that cannot start."""
    create_topic(broker, topic, QUEUES)
    consumer = launch_at(broker).start(client, "push", topic=topic, group=f"{topic}_g", sql=expression)
    consumer.wait_until(lambda: consumer.of_kind("failed") or consumer.of_kind("ready"), "its start or failure")
    assert not consumer.of_kind("ready")
    return str(consumer.of_kind("failed")[0]["error"])


CHECKING = ("java-4.9.8", "java-5.3.3", "python")  # the Go client starts without asking


@pytest.mark.parametrize("client", CHECKING)
def test_without_the_property_a_consumer_is_told_why(
    without_filters: AnyBroker, launch_at: Launch, names: NameMaker, client: str
) -> None:
    """Holds: trap, enablePropertyFilter is off by default."""
    error = reason(launch_at, without_filters, names("unfiltered"), client, FILTERS[0].expression)
    assert "The broker does not support consumer to filter message by SQL92" in error


@pytest.mark.parametrize("client", CHECKING)
def test_a_mistake_in_an_expression_is_told(
    filtering: AnyBroker, launch_at: Launch, names: NameMaker, client: str, target: str
) -> None:
    error = reason(launch_at, filtering, names("mistaken"), client, "number BETWEEN 4 OR 9")
    assert target == "java" or "character 18: 'OR' does not fit" in error
