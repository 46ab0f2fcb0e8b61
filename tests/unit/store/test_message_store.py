"""The read facade against a small store written as the send worker writes it."""

from __future__ import annotations

import pytest

from rocketpy.remoting.work import result_of
from rocketpy.store.formats import index_file
from rocketpy.store.reading.message_store import MessageStore
from tests.support.store_writer import StoreWriter


def test_offsets_of_unknown_and_known_queues(store: MessageStore, writer: StoreWriter) -> None:
    assert (store.min_offset("none", 0), store.max_offset("none", 0)) == (0, 0)
    for _ in range(3):
        writer.put("T", 5)
    assert (store.min_offset("T", 5), store.max_offset("T", 5)) == (0, 3)
    assert [state.queue_id for state in store.queue_states("T")] == [5]
    assert store.dispatch_behind_bytes == 0
    writer.put("T", 5, dispatch=False)
    assert store.dispatch_behind_bytes > 0 and store.max_offset("T", 5) == 3


def test_look_message_by_offset(store: MessageStore, writer: StoreWriter) -> None:
    puts = [writer.put(body=b"x" * size) for size in (0, 1, 3000, 4096, 9000, 8000)]  # rolls on the way
    for put in puts:
        assert store.look_message_by_offset(put.phy_offset) == put.image
    assert store.look_message_by_offset(puts[-1].phy_offset + puts[-1].size) is None
    assert store.look_message_by_offset(-1) is None
    assert store.look_message_by_offset(1 << 50) is None


def test_an_offset_inside_a_body_reads_no_more_than_a_record(store: MessageStore, writer: StoreWriter) -> None:
    """Fault: An offset inside a body let one request copy up to 1 GiB into the manager's memory."""
    put = writer.put(body=b"SIZE" + (8_000).to_bytes(4, "big") + b"x" * 200)
    writer.put(body=b"x" * 9_000)
    inside = put.phy_offset + put.image.index(b"SIZE") + 4
    assert store.look_message_by_offset(inside, 7_999) is None
    assert len(store.look_message_by_offset(inside, 8_000) or b"") == 8_000


def test_behind_a_unit_file_that_is_gone_the_next_one_can_be_read(store: MessageStore, writer: StoreWriter) -> None:
    puts = [writer.put("T", 0) for _ in range(120)]  # 50 to a file
    (store.queues.directory / "T" / "0" / f"{1000:020}").unlink()
    assert len(store.consume_queue_units("T", 0, 0, 120)) == 50
    assert store.consume_queue_units("T", 0, 50, 64) == [] and store.max_offset("T", 0) == 120
    assert store.next_queue_file(50) == store.next_queue_file(99) == 100
    assert store.consume_queue_units("T", 0, 100, 64)[0].phy_offset == puts[100].phy_offset


def test_times(store: MessageStore, writer: StoreWriter) -> None:
    assert store.earliest_message_time() == -1
    for i in range(5):
        writer.put("T", 0, store_timestamp_ms=1000 + i)
    assert store.earliest_message_time() == 1000
    assert store.message_store_timestamp("T", 0, 3) == 1003
    assert store.message_store_timestamp("T", 0, 5) == -1
    assert store.message_store_timestamp("none", 0, 0) == -1


def test_query_message(store: MessageStore, writer: StoreWriter) -> None:
    wanted = []
    for i in range(30):
        put = writer.put("T", 0, b"", b"KEYS\x01odd" if i % 2 else b"KEYS\x01even k%d" % i)
        if i % 2:
            wanted.append(put.image)
    result = result_of(store.message_query("T", "odd", 64, 0, 1 << 60))
    assert result.records == wanted
    assert len(result_of(store.message_query("T", "k4", 64, 0, 1 << 60)).records) == 1
    assert result_of(store.message_query("T", "none", 64, 0, 1 << 60)).records == []
    assert result_of(store.message_query("Other", "odd", 64, 0, 1 << 60)).records == []
    assert len(result_of(store.message_query("T", "odd", 4, 0, 1 << 60)).records) == 4


@pytest.mark.parametrize("properties", [b"KEYS\x01Aa", b"UNIQ_KEY\x01Aa", b"KEYS\x01other Aa"])
def test_a_query_compares_topic_and_key(store: MessageStore, writer: StoreWriter, properties: bytes) -> None:
    """`Aa` and `BB` have the same hash, also as parts of longer names. Messages with the hash alone do not count.
    Fault: A query of one topic returned messages of another one, which the account of the client may not read."""
    wanted = [writer.put("TBB", 0, b"", properties).image for _ in range(2)]
    for topic, key in [("TAa", b"Aa"), ("TBB", b"BB"), ("TAa", b"BB")] * 3:
        writer.put(topic, 0, b"secret", b"UNIQ_KEY\x01" + key)
    assert result_of(store.message_query("TBB", "Aa", 64, 0, 1 << 60)).records == wanted
    assert result_of(store.message_query("TBB", "Aa", 1, 0, 1 << 60)).records == wanted[1:]
    assert result_of(store.message_query("TBB", "other Aa", 64, 0, 1 << 60)).records == []


def test_a_query_ends_after_many_records_with_the_same_hash(
    store: MessageStore, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "REJECTED_MAX", 5)
    first = writer.put("T", 0, b"", b"KEYS\x01Aa")
    for count in range(1, 6):
        writer.put("T", 0, b"", b"KEYS\x01BB")
        found = result_of(store.message_query("T", "Aa", 64, 0, 1 << 60)).records
        assert found == ([first.image] if count < 5 else [])


def test_statistics(store: MessageStore, writer: StoreWriter) -> None:
    put = writer.put("T", 0)
    statistics = store.statistics()
    assert statistics.published_phy_offset == statistics.dispatched_phy_offset == put.size
    assert statistics.flush_behind_bytes == put.size
    assert (statistics.queue_count, statistics.topic_count) == (1, 1)
    assert 0 < statistics.commitlog_disk_ratio <= 1
    assert store.is_in_disk(0) is False
