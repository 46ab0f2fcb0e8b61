"""A store directory moves between the Java broker 4.9.7 and rocketpy and back, as clients and mqadmin see it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.interop.brokers import (
    AnyBroker,
    committed_offsets,
    create_topic,
    max_offsets,
    offset_table,
    running_target,
    wait_committed,
    wait_stored,
    wait_until,
)
from tests.interop.conftest import Launch
from tests.interop.mqadmin import MqAdmin, rows
from tests.interop.programs import Launcher

PLAIN, GROUP = "both_ways", "both_ways_group"
QUEUES = 4
READER = "go"
ROUND = 14 + 12 + 3  # messages of one round of writing
FIELDS = (
    "queueId",
    "queueOffset",
    "phyOffset",
    "msgId",
    "key",
    "tags",
    "flag",
    "sysFlag",
    "bodySize",
    "bodyCrc",
    "bornTimestamp",
    "storeTimestamp",
    "reconsumeTimes",
)
CLIENT_PROPERTIES = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}  # added on the way to the consumer


@attrs.frozen
class Contents:
    """All that clients can see of a store; equal before and after the move."""

    messages: list[dict[str, Any]]
    end_offsets: list[int]
    consumer_offsets: list[int]
    by_key: list[list[list[str]]]


def write(launch: Launcher, broker: AnyBroker, prefix: str, rounds: int) -> None:
    """Normal, tagged and keyed messages, a batch, and compressed ones; `rounds` have been written after this."""
    common = {"topic": PLAIN, "group": "both_ways_producer"}
    launch.run("java-4.9.8", "send", prefix=f"{prefix}-single", count=14, tags="TagA,TagB,TagC", **common)
    launch.run("go", "send", prefix=f"{prefix}-batch", count=12, mode="batch", tags="TagA,TagB", **common)
    launch.run("go", "send", prefix=f"{prefix}-large", count=3, size=100_000, **common)
    wait_stored(broker, PLAIN, QUEUES, ROUND * rounds)


def consume(launch: Launcher, broker: AnyBroker) -> None:
    """The group consumes all there is, and the broker has written down how far it is."""
    consumer = launch.start("go", "push", topic=PLAIN, group=GROUP)
    wait_committed(broker, GROUP, PLAIN, QUEUES)
    consumer.leave()
    assert committed_offsets(broker, GROUP, PLAIN, QUEUES) == max_offsets(broker, PLAIN, QUEUES), "leaving undid it"
    ends = dict(enumerate(max_offsets(broker, PLAIN, QUEUES)))
    path = broker.store / "config" / "consumerOffset.json"

    def written() -> bool:
        if not path.exists():
            return False
        offsets = offset_table(path).get(f"{PLAIN}@{GROUP}", {})
        return {int(queue): offset for queue, offset in offsets.items()} == ends

    wait_until(written, f"the consumer offsets {ends} in {path}")


def contents(launch: Launcher, mqadmin: MqAdmin, broker: AnyBroker, keys: list[str]) -> Contents:
    ends = max_offsets(broker, PLAIN, QUEUES)
    filled = ",".join(str(queue) for queue, end in enumerate(ends) if end)
    reader = launch.start(READER, "litepull", topic=PLAIN, group="both_ways_reader", mode="assign", queues=filled)
    reader.wait_messages(sum(ends))
    reader.leave()
    messages = [
        {name: event[name] for name in FIELDS}
        | {"properties": {k: v for k, v in event["properties"].items() if k not in CLIENT_PROPERTIES}}
        for event in sorted(reader.messages, key=lambda event: (event["queueId"], event["queueOffset"]))
    ]
    assert [(message["queueId"], message["queueOffset"]) for message in messages] == [
        (queue, offset) for queue, end in enumerate(ends) for offset in range(end)
    ]
    queries = mqadmin.each(broker, [("queryMsgByKey", "-t", PLAIN, "-k", key) for key in keys])
    found = [rows(output) for output in queries]
    assert all(len(of_key) == 1 for of_key in found), dict(zip(keys, found, strict=True))
    return Contents(messages, ends, committed_offsets(broker, GROUP, PLAIN, QUEUES), found)


@contextlib.contextmanager
def opened(kind: str, store: Path, end: str) -> Iterator[AnyBroker]:
    """The directory in one of the two brokers, ended as the test wants it."""
    with running_target(kind, settings={"flushConsumerOffsetInterval": "1000"}, store=store) as broker:
        yield broker
        if end == "clean":
            broker.stop()
        else:
            broker.kill_all()


@pytest.mark.parametrize(("first", "end"), [("java", "kill"), ("rocketpy", "clean")])  # the rest: test_store_matrix
def test_there_and_back(launch_at: Launch, mqadmin: MqAdmin, tmp_path: Path, first: str, end: str) -> None:
    """Written by one, read and continued by the other, read by the one again.
    Fault: An offset of a pull, held back for 5 ms, undid the later update of a leaving consumer."""
    store = tmp_path / "store"
    second = "rocketpy" if first == "java" else "java"
    keys = ["one-single-3", "one-batch-5"]
    with opened(first, store, end) as broker:
        launch = launch_at(broker)
        create_topic(broker, PLAIN, QUEUES)
        write(launch, broker, "one", 1)
        consume(launch, broker)
        write(launch, broker, "one-more", 2)  # beyond what the group has consumed
        written = contents(launch, mqadmin, broker, keys)
    assert sum(written.consumer_offsets) == ROUND

    with opened(second, store, end) as broker:
        launch = launch_at(broker)
        assert contents(launch, mqadmin, broker, keys) == written
        write(launch, broker, "two", 3)
        consume(launch, broker)
        keys += ["two-single-7", "two-batch-11"]
        continued = contents(launch, mqadmin, broker, keys)
    assert sum(continued.end_offsets) == 3 * ROUND
    ends = written.end_offsets
    kept = [message for message in continued.messages if message["queueOffset"] < ends[message["queueId"]]]
    assert kept == written.messages

    with opened(first, store, end) as broker:
        launch = launch_at(broker)
        assert contents(launch, mqadmin, broker, keys) == continued
        write(launch, broker, "three", 4)
