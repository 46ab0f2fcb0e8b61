"""From record to unit and key: golden bytes of a Java broker, and the rules of which record gets what."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.errors import StoreError
from rocketpy.message.tags import INDEX_KEYS_MAX, string_hash
from rocketpy.native.core import lib
from rocketpy.remoting.work import result_of
from rocketpy.store.control_block import QUEUE_DELETED
from rocketpy.store.dispatch import Dispatch, sync_units
from rocketpy.store.files import file_name
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.store_writer import Put, StoreWriter, small_config

NOW = 1_700_000_000_123


def unit_bytes(opened: OpenedStore, topic: str, queue_id: int, offset: int) -> bytes:
    path = opened.paths.consumequeue / topic / str(queue_id) / file_name(offset // 50 * 1000)
    assert path.stat().st_size == 1000
    return path.read_bytes()[offset % 50 * 20 :][:20]


@pytest.mark.parametrize("tag", ["TagA", "tag-with-a-very-long-name-0123456789", "标签", "polygenelubricants", "", "𝄞"])
def test_tags_code(writer: StoreWriter, opened: OpenedStore, tag: str) -> None:
    put = writer.put("T", 0, b"", f"TAGS\x01{tag}".encode())
    assert unit_bytes(opened, "T", 0, 0) == struct.pack(">qiq", 0, put.size, string_hash(tag) if tag else 0)


@pytest.mark.parametrize(
    ("delay", "code"),
    [
        ("3", NOW + 10_000),
        ("+3", NOW + 10_000),
        ("99", NOW + 7_200_000),
        ("0", string_hash("A")),
        ("x", string_hash("A")),
        ("4294967299", string_hash("A")),  # beyond 32 bits
    ],
)
def test_units_of_the_delay_topic_hold_the_time_of_delivery(
    writer: StoreWriter, store: MessageStore, delay: str, code: int
) -> None:
    properties = f"DELAY\x01{delay}\x02TAGS\x01A".encode()
    writer.put("SCHEDULE_TOPIC_XXXX", 2, b"", properties, store_timestamp_ms=NOW)
    writer.put("Other", 2, b"", properties, store_timestamp_ms=NOW)
    assert store.consume_queue_units("SCHEDULE_TOPIC_XXXX", 2, 0, 1)[0].tags_code == code
    assert store.consume_queue_units("Other", 2, 0, 1)[0].tags_code == string_hash("A")


@pytest.mark.parametrize(("kind", "units", "keys"), [(0, 1, 1), (4, 0, 1), (8, 1, 1), (12, 0, 0)])
def test_transaction_kinds(writer: StoreWriter, store: MessageStore, kind: int, units: int, keys: int) -> None:
    writer.put("T", 0, b"", b"KEYS\x01k", sys_flag=kind)
    assert store.max_offset("T", 0) == units
    assert len(result_of(store.message_query("T", "k", 9, 0, 1 << 60)).records) == keys


def test_a_queue_that_begins_in_the_middle_is_blank_before(writer: StoreWriter, opened: OpenedStore) -> None:
    writer.control.add_queue(b"T", 0).next_offset = 63
    put = writer.put("T", 0)
    directory = opened.paths.consumequeue / "T" / "0"
    assert [path.name for path in directory.iterdir()] == [file_name(1000)]
    assert {unit_bytes(opened, "T", 0, offset) for offset in range(50, 63)} == {
        bytes.fromhex("00000000000000007fffffff0000000000000000")
    }
    assert unit_bytes(opened, "T", 0, 63) == struct.pack(">qiq", 0, put.size, 0)
    assert not any((directory / file_name(1000)).read_bytes()[14 * 20 :])


def test_units_are_stored_to_the_mapped_page_of_a_queue_that_is_there(writer: StoreWriter, opened: OpenedStore) -> None:
    """Fault: A mapping kept the disk space of a removed queue file."""
    directory = str(opened.paths.consumequeue / "T" / "0")
    puts = [writer.put("T", 0) for _ in range(60)]  # more than a file of 50
    units = [unit_bytes(opened, "T", 0, offset) for offset in range(60)]
    assert units == [struct.pack(">qiq", put.phy_offset, put.size, 0) for put in puts]
    assert Path("/proc/self/maps").read_text().count(directory) == 1
    entry = opened.control.queue("T", 0)
    writer.dispatch.expire_queue(entry)
    assert directory not in Path("/proc/self/maps").read_text()


def test_a_full_queue_file_was_modified_when_it_got_its_last_unit(writer: StoreWriter, opened: OpenedStore) -> None:
    """Searches by time, ours and Java's, choose the file by that.
    Fault: A search by time passed over the last messages of a full queue file."""
    for _ in range(49):
        writer.put("T", 0)
    path = opened.paths.consumequeue / "T" / "0" / file_name(0)
    os.utime(path, (0, 0))
    writer.put("T", 0)
    assert path.stat().st_mtime > 0


def test_no_page_of_a_full_queue_file_stays_mapped(writer: StoreWriter, opened: OpenedStore) -> None:
    """Fault: An expired file of a queue kept its disk space until the queue had two more messages."""
    maps = Path("/proc/self/maps")
    directory = str(opened.paths.consumequeue / "T" / "0")
    for _ in range(50):
        writer.put("T", 0)
    assert maps.read_text().count(directory) == 1
    writer.put("T", 0)
    assert directory not in maps.read_text()


def test_keys_are_split_at_single_spaces(writer: StoreWriter, store: MessageStore) -> None:
    """Holds: store, index keys."""
    writer.put("T", 0, b"", "UNIQ_KEY\x01u1\x02KEYS\x01 a  b 号码 ".encode())
    assert writer.dispatch.counts().keys == 4
    for key in ("u1", "a", "b", "号码"):
        assert len(result_of(store.message_query("T", key, 9, 0, 1 << 60)).records) == 1
    assert result_of(store.message_query("T", "", 9, 0, 1 << 60)).records == []


@pytest.mark.parametrize("unique", ["", "UNIQ_KEY\x01u1\x02"])
def test_the_index_takes_so_many_keys_of_a_message(writer: StoreWriter, store: MessageStore, unique: str) -> None:
    """16 000 keys of one message would fill an index file in no time.
    Fault: One message of 32 KB put 16 000 entries into the index."""
    for count in (lib.RP_INDEX_KEYS_MAX, lib.RP_INDEX_KEYS_MAX + 1, 1_600):
        before = writer.dispatch.counts()
        keys = " ".join(chr(0x4E00 + i) if count < 1_600 else "k" for i in range(count))
        writer.put("T", 0, b"", f"{unique}KEYS\x01{keys}".encode())
        after = writer.dispatch.counts()
        assert after.keys - before.keys == lib.RP_INDEX_KEYS_MAX + bool(unique)
        assert after.cut_short - before.cut_short == (count > lib.RP_INDEX_KEYS_MAX)
        if count < 1_600:
            first, *_, last = keys.split(" ")[: lib.RP_INDEX_KEYS_MAX]
            for key in (first, last):
                assert len(result_of(store.message_query("T", key, 9, 0, 1 << 60)).records) >= 1
    assert lib.RP_INDEX_KEYS_MAX == INDEX_KEYS_MAX


MANY = 1_100  # queues: more than a thin batch begins with
ROUNDS = 9  # MANY * ROUNDS is more than the records of an ordinary batch


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OpenedStore, list[Put]]]:
    """One log file of messages to many queues in turn, not dispatched."""
    config = small_config(tmp_path_factory.mktemp("many") / "store", mapped_file_size_commit_log=4 << 20)
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        puts = [writer.put("T", i % MANY, b"", b"KEYS\x01k%d" % i, dispatch=False) for i in range(MANY * ROUNDS)]
    yield opened, puts
    close_store(opened, clean=False)


def check_many(opened: OpenedStore, puts: list[Put]) -> None:
    """Every unit in its place, every key found."""
    store = MessageStore(opened.config, opened.control)
    for queue_id in range(MANY):
        units = store.consume_queue_units("T", queue_id, 0, ROUNDS + 1)
        assert [(unit.phy_offset, unit.size) for unit in units] == [
            (put.phy_offset, put.size) for put in puts[queue_id::MANY]
        ]
    for i in (0, 1, 8_191, 8_192, MANY * ROUNDS - 1):
        assert result_of(store.message_query("T", f"k{i}", 9, 0, 1 << 60)).records == [puts[i].image]
    store.close()


def test_many_queues_in_turn_and_an_error_on_the_way(many: tuple[OpenedStore, list[Put]]) -> None:
    """A large batch that cannot write one of its queues is done again, and nothing of it comes twice."""
    opened, puts = many
    header = opened.control.header
    obstacle = opened.paths.consumequeue / "T" / "700" / file_name(0)
    obstacle.mkdir(parents=True)
    dispatch = Dispatch(opened.config, opened.control)
    with pytest.raises(StoreError):
        dispatch.run_to_end()
    ends = [state.max_offset for state in opened.control.queues()]
    # One batch: it has not ended, though it had more records than an ordinary one, and what was written is shown whole.
    assert header.dispatched_phy_offset == 0
    assert set(ends[:512]) == {ROUNDS} and set(ends[768:]) == {0} and ends[700] == 0
    obstacle.rmdir()
    dispatch.run_to_end()
    assert header.dispatched_phy_offset == header.published_phy_offset
    counts = dispatch.counts()
    # The last record that was indexed before its units is looked at again, and found to be there.
    assert (counts.keys, counts.resets, counts.unplaced) == (MANY * ROUNDS + 1, 0, 0)
    check_many(opened, puts)
    header.dispatched_phy_offset = puts[3].phy_offset  # the previous worker died before it moved on
    dispatch.run_to_end()
    assert dispatch.counts().units == counts.units
    dispatch.close()
    check_many(opened, puts)


@pytest.mark.parametrize("before", [0, 3])
def test_a_death_between_end_and_units_loses_no_unit(writer: StoreWriter, opened: OpenedStore, before: int) -> None:
    """What is known of a queue's records moves first, what can be read of its units then."""
    for _ in range(before):
        writer.put("T", 0)
    dispatched = opened.control.dispatched_phy_offset
    writer.put("T", 0, dispatch=False)
    writer.put("T", 0)
    queue = opened.control.queue("T", 0)
    assert queue is not None
    queue.max_offset = before
    opened.control.header.dispatched_phy_offset = dispatched
    writer.dispatch.run_to_end()
    assert queue.max_offset == before + 2
    assert writer.dispatch.counts().resets == 0


def test_records_of_a_dropped_queue_stay_dropped(writer: StoreWriter, opened: OpenedStore) -> None:
    """Dispatched again by a restarted worker, they do not bring it back."""
    dispatched = opened.control.dispatched_phy_offset
    writer.put("T", 0)
    queue = opened.control.queue("T", 0)
    assert queue is not None
    writer.dispatch.drop_queue(queue)
    opened.control.header.dispatched_phy_offset = dispatched
    writer.dispatch.run_to_end()
    assert queue.max_offset == 0


def test_a_drop_that_was_interrupted_is_finished(writer: StoreWriter, opened: OpenedStore) -> None:
    """Units of the earlier life would lie behind those of the next one.
    Fault: A death while a queue was dropped left its units behind those of the queue's next life."""
    for _ in range(120):
        writer.put("T", 0)
    queue = opened.control.queue("T", 0)
    assert queue is not None
    queue.state, queue.max_offset, queue.min_offset = QUEUE_DELETED, 0, 0
    directory = opened.paths.consumequeue / "T" / "0"
    (directory / file_name(0)).unlink()
    assert len(list(directory.iterdir())) == 2
    Dispatch(opened.config, opened.control).close()
    assert not directory.exists()


def test_the_checkpoint_promises_no_unit_that_is_not_there(writer: StoreWriter, opened: OpenedStore) -> None:
    """Fault: The checkpoint promised units of undispatched records; without a control block they were never made.
    Holds: store, checkpoint of the last flushes."""
    writer.put("T", 0, store_timestamp_ms=1_700_000_000_000)
    writer.put("T", 0, store_timestamp_ms=1_700_000_009_000, dispatch=False)
    sync_units(writer.dispatch)
    assert opened.control.header.logics_timestamp_ms == 1_700_000_000_000
    writer.dispatch.run_to_end()
    sync_units(writer.dispatch)
    assert opened.control.header.logics_timestamp_ms == 1_700_000_009_000


def test_units_that_a_sync_has_lost_are_made_again(writer: StoreWriter, opened: OpenedStore) -> None:
    """The kernel reports a failure once. What is durable stays where it was, for restarted workers as well, until the
    store is opened again.
    Fault: After a failed fsync, a new store worker called lost consume queue units durable."""
    control = opened.control
    writer.put("T", 0)
    lib.rp_flush_log(flush := lib.rp_flush_open(os.fsencode(opened.paths.commitlog), control.header))
    lib.rp_flush_close(flush)
    sync_units(writer.dispatch)
    durable = control.units_durable_phy_offset
    writer.put("T", 0)
    path = opened.paths.consumequeue / "T" / "0" / file_name(0)
    content = path.read_bytes()
    path.unlink()
    path.symlink_to("/dev/null")  # which cannot be synced
    with pytest.raises(StoreError, match="could not be flushed"):
        sync_units(writer.dispatch)
    path.unlink()
    path.write_bytes(content)
    restarted = Dispatch(opened.config, control)
    with pytest.raises(StoreError, match="could not be flushed"):
        sync_units(restarted)
    restarted.close()
    assert control.units_durable_phy_offset == durable < control.dispatched_phy_offset
    path.write_bytes(content[:20] + bytes(len(content) - 20))  # what a power failure would have left, or an eviction
    writer.close()
    close_store(opened, clean=False)
    again = open_store(opened.config)
    assert again.report.kind is RecoveryKind.FLUSHED
    assert again.control.header.units_lost == 0
    assert path.read_bytes() == content
    close_store(again, clean=True)


def test_a_queue_that_cannot_be_entered_now_is_entered_later(
    writer: StoreWriter, opened: OpenedStore, store: MessageStore
) -> None:
    """The block is new, and its disk has no room for entries: no record may be passed over for that.
    Fault: A record whose queue found no room in the control block was skipped by dispatch for ever."""
    put = writer.put(dispatch=False)
    end = opened.control.published_phy_offset
    opened.control.reset()
    opened.control.header.published_phy_offset = end
    aside = opened.paths.control.with_name("aside")
    opened.paths.control.rename(aside)
    with pytest.raises(StoreError, match="No such file"):
        writer.dispatch.run_to_end()
    assert lib.rp_recovery_next_offsets(opened.control.block, os.fsencode(opened.paths.commitlog)) < 0
    aside.rename(opened.paths.control)
    writer.dispatch.run_to_end()
    assert writer.dispatch.counts().unplaced == 0
    assert store.get_message("TopicTest", 0, 0, 1).records == [put.image]
