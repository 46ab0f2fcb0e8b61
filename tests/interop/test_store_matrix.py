"""One store directory, in turn in the hands of the Java broker 4.9.7 and of rocketpy; each adds messages of every kind,
and whoever opens it tells the same of it as the one before. Ended in order, and killed.

Log, consume queue and index files are small, so that all of them roll.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.control import Control
from rocketpy.bench.encoding import SEND_MESSAGE_V2, send_fields
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import StoredRecord
from rocketpy.store.inspection.dump import StoreDump
from tests.interop.brokers import AnyBroker, create_topic, decode, max_offsets, running_target, wait_until
from tests.interop.store_filling import (
    DELAYED,
    HALF,
    OP,
    QUEUES,
    SCHEDULE,
    SMALL_FILES,
    TOPIC,
    TRANSACTIONS,
    Expected,
    Sent,
    ends,
    fill,
)
from tests.interop.store_reading import Reading, differences, read_store

DUE, GROUP = "matrix_due", "matrix_group"
UPDATE_CONSUMER_OFFSET, UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 15, 200
LATE_LEVEL, LATE = 3, 4  # sent as the last thing of a turn, due in the next (10 s)
COMPRESSED = 1


def send_late(broker: AnyBroker, prefix: str) -> None:
    """Delayed messages that fall due when another broker has the directory."""
    with Control("127.0.0.1", broker.port) as control:
        for number in range(LATE):
            key = f"{prefix}-late-{number}"
            properties = f"KEYS\x01{key}\x02UNIQ_KEY\x01{key.upper()}\x02DELAY\x01{LATE_LEVEL}\x02WAIT\x01true"
            fields = send_fields(DUE, number % 2, properties, born_timestamp_ms=int(time.time() * 1000), batch=False)
            control.check(SEND_MESSAGE_V2, fields, key.encode())


def create_group(broker: AnyBroker) -> None:
    config = (
        b'{"groupName":"%s","consumeEnable":true,"consumeFromMinEnable":true,"consumeBroadcastEnable":false,'
        b'"retryQueueNums":2,"retryMaxTimes":7,"brokerId":0,"whichBrokerWhenConsumeSlowly":1,'
        b'"notifyConsumerIdsChangedEnable":true}' % GROUP.encode()
    )
    with Control("127.0.0.1", broker.port) as control:
        control.check(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config)


def commit(broker: AnyBroker, turn: int) -> dict[str, int]:
    """The group is half through the queues, but has no offset of the last one. Returns what it has."""
    offsets = {queue_id: end // 2 + turn for queue_id, end in enumerate(max_offsets(broker, TOPIC, QUEUES - 1))}
    with Control("127.0.0.1", broker.port) as control:
        for queue_id, offset in offsets.items():
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id), "commitOffset": str(offset)}
            control.check(UPDATE_CONSUMER_OFFSET, fields)
    return {str(queue_id): offset for queue_id, offset in offsets.items()}


def late_delays(turns: int) -> dict[str, int]:
    """delayOffset.json, as far as it is sure to be written; late messages are those of the turns before."""
    return {"1": turns * DELAYED} | ({str(LATE_LEVEL): (turns - 1) * LATE} if turns > 1 else {})


def wait_written_down(broker: AnyBroker, expected: Expected, reading_offsets: dict[str, int]) -> None:
    """What a killed broker must not forget: the reference writes its offsets every now and then, first after 10 s."""
    config = broker.store / "config"

    def offsets() -> bool:
        try:
            consumer = decode((config / "consumerOffset.json").read_text())["offsetTable"].get(f"{TOPIC}@{GROUP}")
            delays = decode((config / "delayOffset.json").read_text())["offsetTable"]
        except (OSError, ValueError):  # not there yet, or just being written
            return False
        return bool(consumer == reading_offsets and late_delays(expected.turns).items() <= delays.items())

    wait_until(offsets, f"{reading_offsets} and {late_delays(expected.turns)} in {config}")


def check_contents(reading: Reading, expected: Expected, sent: list[Sent]) -> None:
    """All that was ever sent is there once, at the offset that its id says."""
    by_key: dict[str, list[StoredRecord]] = {}
    for record in (record for topic in (TOPIC, HALF, SCHEDULE) for record in reading.records(topic)):
        key = decode_properties(record.properties.decode()).get("KEYS", "").split(" ")[0]
        by_key.setdefault(key, []).append(record)
    assert sum(queue.max_offset for (topic, _), queue in reading.queues.items() if topic == TOPIC) == expected.messages
    for message in (message for message in sent if message.key != "null"):
        found = {record.topic for record in by_key[message.key]}
        assert len(found) == len(by_key[message.key]), f"{message.key} is there twice in a topic"
        unique = decode_properties(by_key[message.key][0].properties.decode())["UNIQ_KEY"]
        assert unique == message.unique_id.split(",")[0]
        if message.kind in ("single", "large", "batch"):
            (record,) = by_key[message.key]
            assert int(message.offset_ids[0][16:], 16) == record.phy_offset
        if message.kind == "large":
            assert record.sys_flag & COMPRESSED and len(record.body) < 5000
        if message.kind == "soon":
            assert found == {TOPIC, SCHEDULE}
        if message.kind == "long":
            assert found == {SCHEDULE}
        if message.kind == "transaction":
            assert HALF in found
    assert len(reading.progress[GROUP]) == QUEUES and reading.consumer_offsets.keys() == {f"{TOPIC}@{GROUP}"}
    assert (reading.topics.keys(), reading.groups.keys()) == ({TOPIC}, {GROUP}) and reading.delay_offsets["1"] > 0
    assert len(reading.records(HALF)) == expected.turns * TRANSACTIONS
    assert len(reading.records(OP)) == expected.ended


@contextlib.contextmanager
def opened(kind: str, store: Path, end: str) -> Iterator[AnyBroker]:
    with running_target(kind, settings=SMALL_FILES, store=store) as broker:
        yield broker
        if end == "clean":
            broker.stop()
        else:
            broker.kill_all()
    report = StoreDump(store).verify()
    assert report.problems == [] and report.records > 0


def read(broker: AnyBroker) -> Reading:
    return read_store(broker, topics=(TOPIC,), groups=(GROUP,), without=[(SCHEDULE, LATE_LEVEL - 1)])


def turn(classes: Path, broker: AnyBroker, expected: Expected, sent: list[Sent]) -> Reading:
    """Messages of every kind, offsets, and what is left to the next one; all of it as the broker tells it."""
    prefix = f"turn{expected.turns}"
    sent += fill(classes, broker, expected, prefix)
    late = (expected.turns - 1) * LATE
    wait_until(lambda: ends(broker, DUE, 2) >= late, f"{late} messages that fell due")
    wait_written_down(broker, expected, commit(broker, expected.turns))
    assert ends(broker, DUE, 2) == late and ends(broker, TOPIC, QUEUES) == expected.messages
    send_late(broker, prefix)
    reading = read(broker)
    check_contents(reading, expected, sent)
    return reading


@pytest.mark.parametrize("end", ["clean", "kill"])
@pytest.mark.parametrize("first", ["java", "rocketpy"])
def test_there_and_back_twice(filler: Path, tmp_path: Path, first: str, end: str) -> None:
    store, second = tmp_path / "store", "rocketpy" if first == "java" else "java"
    expected, sent = Expected(), list[Sent]()
    reading: Reading | None = None
    for kind in (first, second, first, second):
        with opened(kind, store, end) as broker:
            if reading is None:
                create_topic(broker, TOPIC, QUEUES)
                create_topic(broker, DUE, 2)
                create_group(broker)
            else:
                assert differences(read(broker), reading) == []
            reading = turn(filler, broker, expected, sent)
    assert {len(list((store / directory).rglob("0*"))) > 2 for directory in ("commitlog", "consumequeue")} == {True}
    assert len(list((store / "index").iterdir())) > 2
    with opened(first, store, end) as broker:
        assert differences(read(broker), reading) == []
        wait_until(lambda: ends(broker, DUE, 2) >= 4 * LATE, "the last messages that fell due")
        due = read_store(broker, topics=(DUE,), groups=()).records(DUE)
        keys = sorted(decode_properties(record.properties.decode())["KEYS"] for record in due)
        assert keys == sorted(f"turn{number}-late-{late}" for number in range(4) for late in range(LATE))
