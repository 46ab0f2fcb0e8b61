"""The two kinds of broker behind one handle, and what tests ask a broker directly."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from bench.control import Control, RequestFailed
from tests.support.broker import RunningBroker, running_broker

from .java_broker import JavaBroker, running_java_broker

AnyBroker = RunningBroker | JavaBroker
NameMaker = Callable[[str], str]  # a stem to a name that nothing else in this run has
DEADLINE_S = 60.0
LOOK_S = 0.05
LOG_TAIL = 6000  # characters
QUERY_CONSUMER_OFFSET = 14
QUERY_NOT_FOUND = 22


def decode(text: str) -> Any:
    """JSON as Java writes it: numbers that are keys have no quotes."""
    return json.loads(re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', text))


def offset_table(path: Path) -> dict[str, dict[str, int]]:
    """consumerOffset.json: topic@group to queue to offset."""
    table: dict[str, dict[str, int]] = decode(path.read_text())["offsetTable"]
    return table


@contextlib.contextmanager
def running_target(
    target: str, *, settings: dict[str, str] | None = None, store: Path | None = None
) -> Iterator[AnyBroker]:
    """A started broker of either kind; a failure within carries the end of its log."""
    start = running_java_broker if target == "java" else running_broker
    with start(settings, store=store) as broker:
        try:
            yield broker
        except BaseException as failure:
            failure.add_note(f"{target} broker:\n{broker.text()[-LOG_TAIL:]}")
            raise


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Fail after a time that no working broker needs."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(LOOK_S)


@contextlib.contextmanager
def asking(port: int) -> Iterator[Control]:
    with Control("127.0.0.1", port) as control:
        yield control


def max_offsets(broker: AnyBroker, topic: str, queues: int) -> list[int]:
    with asking(broker.port) as control:
        return [control.max_offset(topic, queue) for queue in range(queues)]


def committed_offsets(broker: AnyBroker, group: str, topic: str, queues: int) -> list[int]:
    """-1 where the group has none."""
    found = []
    with asking(broker.port) as control:
        for queue in range(queues):
            fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
            try:
                found.append(int(control.check(QUERY_CONSUMER_OFFSET, fields).fields["offset"]))
            except RequestFailed as refused:
                assert refused.code == QUERY_NOT_FOUND, refused
                found.append(-1)
    return found


def wait_stored(broker: AnyBroker, topic: str, queues: int, count: int) -> None:
    wait_until(lambda: sum(max_offsets(broker, topic, queues)) >= count, f"{count} messages in {topic}")


def wait_committed(broker: AnyBroker, group: str, topic: str, queues: int) -> None:
    """Until the group has committed all there is."""
    wait_until(
        lambda: committed_offsets(broker, group, topic, queues) == max_offsets(broker, topic, queues),
        f"the offsets of {group} in {topic}",
    )


def create_topic(broker: AnyBroker, topic: str, queues: int) -> None:
    """Create it and wait until clients can find it."""
    with asking(broker.port) as control:
        control.create_topic(topic, queues)
    with asking(broker.namesrv_port) as namesrv:
        wait_until(lambda: namesrv.has_route(topic), f"a route of {topic}")


@attrs.frozen
class TopicMaker:
    """Topics that nobody used before."""

    broker: AnyBroker
    names: NameMaker

    def __call__(self, stem: str, queues: int = 4) -> str:
        topic = self.names(stem)
        create_topic(self.broker, topic, queues)
        return topic
