"""All that a running broker tells of its store, asked over the wire in the same way of either kind of broker.

The consume queues' units, which no request shows of system topics, come from the files: both brokers write them through
the page cache, so they can be read beside a running broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import attrs

from bench.control import Control, RequestFailed
from rocketpy.bench.encoding import pull_fields
from rocketpy.message.properties import decode_properties
from rocketpy.message.record import StoredRecord, decode_record
from rocketpy.remoting import fastjson
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.inspection.reader import QueueDirectory

from .brokers import AnyBroker

PULL_MESSAGE, QUERY_MESSAGE, VIEW_MESSAGE_BY_ID = 11, 12, 33
GET_MAX_OFFSET, GET_MIN_OFFSET = 30, 31
GET_ALL_TOPIC_CONFIG, GET_ALL_CONSUMER_OFFSET, GET_ALL_DELAY_OFFSET = 21, 43, 45
GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GET_CONSUME_STATS = 201, 208
QUERY_NOT_FOUND = 22
PULL_ENDS = (19, 20, 21)
PER_PULL = 32
FOREVER_MS = (1 << 63) - 1
SYSTEM_TOPICS = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
READER = "store_reader"

Place = tuple[str, int]  # topic, queue id
Unit = tuple[int, int, int]  # phy offset, size, tags code or time of delivery


@attrs.frozen
class QueueReading:
    """Ends and records as the broker says them, units as they are on file."""

    min_offset: int
    max_offset: int
    units: dict[int, Unit]
    records: dict[int, bytes]


@attrs.frozen
class Reading:
    queues: dict[Place, QueueReading]
    by_key: dict[tuple[str, str], list[bytes]]
    consumer_offsets: dict[str, Any]
    delay_offsets: dict[str, Any]
    topics: dict[str, Any]
    groups: dict[str, Any]
    progress: dict[str, Any]  # by group: GET_CONSUME_STATS

    def records(self, topic: str) -> list[StoredRecord]:
        """By queue and offset."""
        return [
            decoded(image)
            for (of_topic, _), queue in sorted(self.queues.items())
            for _, image in sorted(queue.records.items())
            if of_topic == topic
        ]


def decoded(image: bytes) -> StoredRecord:
    phy_offset = int.from_bytes(image[28:36], "big")
    record = decode_record(memoryview(image), phy_offset, check_crc=True)
    assert record is not None and record.size == len(image)
    return record


def split_records(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        assert 0 < size <= len(data) - at, f"no record at byte {at} of {len(data)}"
        yield data[at : at + size]
        at += size


def keys_of(record: StoredRecord) -> list[tuple[str, bool]]:
    """(key, it is the unique one)."""
    properties = decode_properties(record.properties.decode())
    keys = [(key, False) for key in properties.get("KEYS", "").split(" ") if key]
    return keys + ([(properties["UNIQ_KEY"], True)] if "UNIQ_KEY" in properties else [])


def pull_all(control: Control, topic: str, queue_id: int, begin: int, end: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = begin
    while offset < end:
        reply = control.request(PULL_MESSAGE, pull_fields(topic, queue_id, str(offset), PER_PULL, group=READER))
        assert reply.code == 0, (topic, queue_id, offset, reply.code, reply.remark)
        for image in split_records(reply.body):
            record = decoded(image)
            assert (record.topic, record.queue_id) == (topic, queue_id) and record.queue_offset not in found
            found[record.queue_offset] = image
        assert int(reply.fields["nextBeginOffset"]) > offset
        offset = int(reply.fields["nextBeginOffset"])
    return found


def view(control: Control, phy_offset: int) -> bytes:
    return control.check(VIEW_MESSAGE_BY_ID, {"offset": str(phy_offset)}).body


def query(control: Control, topic: str, key: str, *, unique: bool) -> list[bytes]:
    """What the index knows under a key, each record once: after a restart the reference may have entered one twice."""
    fields = {"topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(FOREVER_MS)}
    try:
        body = control.check(QUERY_MESSAGE, fields | ({"_UNIQUE_KEY_QUERY": "true"} if unique else {})).body
    except RequestFailed as refused:
        assert refused.code == QUERY_NOT_FOUND, refused
        return []
    return sorted(set(split_records(body)))


def queues_on_file(store: Path) -> list[QueueDirectory]:
    return [queue for queue in StoreDump(store).queues() if any(queue.path.iterdir())]


def read_queue(control: Control, store: Path, queue: QueueDirectory) -> QueueReading:
    fields = {"topic": queue.topic, "queueId": str(queue.queue_id)}
    low, high = (int(control.check(code, fields).fields["offset"]) for code in (GET_MIN_OFFSET, GET_MAX_OFFSET))
    units = {offset: tuple(unit) for offset, unit in StoreDump(store).units(queue) if low <= offset < high}
    assert sorted(units) == list(range(low, high)), (queue, low, high, sorted(units))
    records = {offset: view(control, unit[0]) for offset, unit in units.items()}
    for offset, image in records.items():
        record = decoded(image)
        assert (record.topic, record.queue_id, record.queue_offset) == (queue.topic, queue.queue_id, offset)
        assert (record.phy_offset, record.size) == units[offset][:2]
    if queue.topic not in SYSTEM_TOPICS:
        assert pull_all(control, queue.topic, queue.queue_id, low, high) == records
    return QueueReading(low, high, units, records)


def read_index(control: Control, queues: dict[Place, QueueReading]) -> dict[tuple[str, str], list[bytes]]:
    """Every key of every record; each finds (at least) the record that has it."""
    found: dict[tuple[str, str], list[bytes]] = {}
    missing = []
    for (topic, queue_id), queue in queues.items():
        for offset, image in queue.records.items():
            for key, unique in keys_of(decoded(image)):
                if (topic, key) not in found:
                    found[topic, key] = query(control, topic, key, unique=unique)
                if image not in found[topic, key]:
                    missing.append((topic, queue_id, offset, key))
    assert not missing, f"{len(missing)} keys are not in the index: {missing[:5]}"
    return found


def table(control: Control, code: int, name: str, fields: dict[str, str] | None = None) -> dict[str, Any]:
    value = fastjson.loads(control.check(code, fields or {}).body)
    assert isinstance(value, dict)
    found = value.get(name) or {}
    assert isinstance(found, dict)
    return found


def read_store(
    broker: AnyBroker, *, topics: Collection[str], groups: Collection[str], without: Collection[Place] = ()
) -> Reading:
    """Everything of `topics` and of the system's, but the queues `without`; offsets and settings of `groups`."""
    with Control("127.0.0.1", broker.port, timeout_s=20) as control:
        queues = {
            (queue.topic, queue.queue_id): read_queue(control, broker.store, queue)
            for queue in queues_on_file(broker.store)
            if queue.topic in (*topics, *SYSTEM_TOPICS) and (queue.topic, queue.queue_id) not in without
        }
        skipped = {str(queue_id + 1) for topic, queue_id in without if topic == SYSTEM_TOPICS[0]}
        offsets = table(control, GET_ALL_CONSUMER_OFFSET, "offsetTable")
        delays = table(control, GET_ALL_DELAY_OFFSET, "offsetTable")
        return Reading(
            queues=queues,
            by_key=read_index(control, queues),
            consumer_offsets={name: value for name, value in offsets.items() if name.rpartition("@")[2] in groups},
            delay_offsets={str(level): offset for level, offset in delays.items() if str(level) not in skipped},
            topics=some(table(control, GET_ALL_TOPIC_CONFIG, "topicConfigTable"), topics),
            groups=some(table(control, GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable"), groups),
            progress={group: read_progress(control, group) for group in groups},
        )


def some(whole: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in whole.items() if name in names}


def read_progress(control: Control, group: str) -> dict[str, Any]:
    """consumerProgress: per queue the broker's end, the group's offset, and when the last consumed one was stored."""
    return dict(
        sorted(
            (str(queue), value)
            for queue, value in table(control, GET_CONSUME_STATS, "offsetTable", {"consumerGroup": group}).items()
        )
    )


def differences(read: Reading, expected: Reading) -> list[str]:
    """Return the differences of two readings, which are shorter than the readings."""
    found = []
    for field in attrs.fields(Reading):
        ours, theirs = getattr(read, field.name), getattr(expected, field.name)
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        found += [f"{field.name}[{name}]: {ours.get(name)!r:.600}, not {theirs.get(name)!r:.600}" for name in names[:3]]
    return found
