"""The topics that messages of the log name, from a position on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.message.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from rocketpy.store.reading import log_topics
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore
from tests.support.store_writer import StoreWriter
from tests.unit.store.test_second_version import as_second_version

REAL = b"REAL_TOPIC\x01%s\x02REAL_QID\x01%s\x02"


@pytest.fixture
def store(config: MessageStoreConfig, opened: OpenedStore) -> Iterator[MessageStore]:
    store = MessageStore(config, opened.control)
    yield store
    store.close()


def topics_since(store: MessageStore, begin: int, size_max: int = 1 << 30) -> dict[str, int]:
    """In pieces of this size, as a master looks for them."""
    used: dict[str, int] = {}
    while begin < store.log_end():
        steps = store.topics_in_log(begin, store.log_end(), size_max)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found = end.value
                break
        assert begin < found.until <= store.log_end()
        begin = found.until
        used |= {topic: max(count, used.get(topic, 0)) for topic, count in found.used.items()}
    return used


def test_messages_that_wait_name_the_topic_to_which_they_go(store: MessageStore, writer: StoreWriter) -> None:
    """Dispatched or not."""
    writer.put("Before", 3)
    since = store.log_end()
    writer.put("Plain", 2)
    writer.put("Plain", 1, dispatch=False)
    writer.put(SCHEDULE_TOPIC, 1, b"", b"DELAY\x012\x02" + REAL % (b"Delayed", b"5"), dispatch=False)
    writer.put(TRANS_HALF_TOPIC, 0, b"", REAL % (b"Half", b"0"), dispatch=False)
    writer.put(TIMER_TOPIC, 0, b"", REAL % (b"Timed", b"7"), dispatch=False)
    writer.put("Delivered", 0, b"", REAL % (b"Elsewhere", b"0"), dispatch=False)
    assert topics_since(store, since) == {
        "Plain": 3, SCHEDULE_TOPIC: 2, "Delayed": 6, TRANS_HALF_TOPIC: 1, "Half": 1, TIMER_TOPIC: 1, "Timed": 8,
        "Delivered": 1,
    }  # fmt: skip
    assert "Before" in topics_since(store, 0)
    assert topics_since(store, store.log_end()) == {}


@pytest.mark.parametrize("chunk", [1, 100, 1_000, 1 << 20])
def test_every_record_of_every_file_is_read(
    store: MessageStore, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """Records of any size, the largest of them larger than what is read at once."""
    monkeypatch.setattr(log_topics, "CHUNK_BYTES", chunk)
    for number in range(60):
        writer.put(f"T{number}", number % 3, b"x" * (number * 37 % 4_000))
    assert store.control.published_phy_offset > 3 * store.log.file_size
    for size_max in (1, 5_000, 1 << 30):
        assert topics_since(store, 0, size_max) == {f"T{number}": number % 3 + 1 for number in range(60)}
    steps = sum(1 for _ in store.topics_in_log(0, store.log_end(), 1 << 30))
    assert steps > 3, "others run between the reads"


def test_names_that_no_topic_has(store: MessageStore, writer: StoreWriter) -> None:
    for properties in (b"", REAL % (b"a b", b"0"), REAL % (b"Good", b"-1"), REAL % (b"Good", b"70000")):
        writer.put(SCHEDULE_TOPIC, 0, b"", properties)
    assert topics_since(store, 0) == {SCHEDULE_TOPIC: 1}


def test_records_of_5x(store: MessageStore, writer: StoreWriter) -> None:
    put = writer.put("Topic", 2, b"body")
    found = list(log_topics._of_record(as_second_version(put.image, b"Topic", put.phy_offset)))
    assert found == [("Topic", 2)]


def test_a_record_whose_lengths_lie_is_passed_over(store: MessageStore, writer: StoreWriter) -> None:
    image = bytearray(writer.put(SCHEDULE_TOPIC, 2, b"body", REAL % (b"Delayed", b"5")).image)
    at = image.index(b"body") - 4
    for size in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\x00", len(image).to_bytes(4, "big")):
        image[at : at + 4] = size
        assert not {topic for topic, _ in log_topics._of_record(bytes(image))} & {SCHEDULE_TOPIC, "Delayed"}
