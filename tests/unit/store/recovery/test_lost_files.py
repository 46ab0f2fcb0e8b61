"""Files that are lost or damaged are made again from the log."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.message.record import decode_record
from rocketpy.message.tags import string_hash
from rocketpy.native.core import lib
from rocketpy.remoting.work import result_of
from rocketpy.store.dispatch import sync_units
from rocketpy.store.formats.consume_queue_ext import read_ext_unit
from rocketpy.store.formats.unit import CQ_UNIT, ConsumeQueueUnit
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store, save_checkpoint
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.reopened_store import TOPICS, Filled, another_boot, check, fill, kill, reopen
from tests.support.store_writer import StoreWriter


def test_a_queue_that_the_block_does_not_know_is_entered(config: MessageStoreConfig) -> None:
    """What dispatch will find there must be counted on from, not counted again."""
    opened = open_store(config)
    fill(opened, 20)
    end = opened.control.published_phy_offset
    opened.control.reset()
    opened.control.header.published_phy_offset = end
    assert lib.rp_recovery_next_offsets(opened.control.block, os.fsencode(opened.paths.commitlog)) == 0
    assert [state.next_offset for state in opened.control.queues()] == [7, 7, 6]
    kill(opened)


def test_whoever_dies_while_queues_are_made_again_leaves_that_to_the_next(config: MessageStoreConfig) -> None:
    """Emptied, and not yet whole: such a queue must not be shown, however little is behind the dispatched position."""
    opened = open_store(config)
    puts = fill(opened)
    shutil.rmtree(opened.paths.consumequeue / "A" / "1")
    size = config.mapped_file_size_consume_queue
    directory = os.fsencode(opened.paths.consumequeue)
    assert lib.rp_recovery_check_queues(opened.control.block, directory, size) == 1
    kill(opened)
    opened = reopen(config)
    assert [state.max_offset for state in opened.control.queues()] == [50, 50, 50]
    assert not opened.control.header.rebuilding
    check(opened, puts)
    kill(opened)


@pytest.mark.parametrize("damage", ["file", "directory", "topic", "short", "zeros", "stale"])
def test_a_damaged_queue_is_made_again(config: MessageStoreConfig, damage: str) -> None:
    """Whatever the last unit's file looks like: every queue is whole again before the first message is sent."""
    opened = open_store(config)
    puts = fill(opened)
    kill(opened)
    directory = opened.paths.consumequeue / "A" / "1"
    path = max(directory.iterdir())
    image = path.read_bytes()
    if damage == "file":
        path.unlink()
    elif damage == "directory":
        shutil.rmtree(directory)
    elif damage == "topic":
        shutil.rmtree(directory.parent)
    elif damage == "short":
        path.write_bytes(b"")
    elif damage == "zeros":
        path.write_bytes(bytes(len(image)))
    else:  # its last unit names another record
        with path.open("r+b") as file:
            file.seek((50 - 1) * 20 % 1_000)
            file.write(struct.pack(">qiq", 7, 200, 0))
    opened = reopen(config)
    assert opened.report.queues_rebuilt == (2 if damage == "topic" else 1)
    assert [state.max_offset for state in opened.control.queues()] == [50, 50, 50]
    check(opened, puts)
    kill(opened)


@pytest.mark.parametrize("control", ["lost", "short", "garbage", "other size"])
@pytest.mark.parametrize("was_clean", [True, False])
def test_without_its_control_block_the_store_is_found_again(
    config: MessageStoreConfig, control: str, was_clean: bool
) -> None:
    opened = open_store(config)
    puts = fill(opened)
    close_store(opened, clean=was_clean)
    path = opened.paths.control
    if control == "lost":
        path.unlink()
    elif control == "short":
        os.truncate(path, 5000)
    elif control == "garbage":
        with path.open("r+b") as file:
            file.write(os.urandom(4096))
    else:
        with path.open("r+b") as file:
            file.seek(40)
            file.write(struct.pack("<Q", 1 << 30))
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FILES
    check(opened, puts)
    kill(opened)


@pytest.mark.parametrize("was_clean", [True, False])
def test_with_nothing_but_the_log(config: MessageStoreConfig, was_clean: bool) -> None:
    """Holds: store, indexes made again from the log."""
    opened = open_store(config)
    puts = fill(opened)
    close_store(opened, clean=was_clean)
    opened.paths.control.unlink()
    shutil.rmtree(opened.paths.consumequeue)
    shutil.rmtree(opened.paths.index)
    opened = reopen(config)
    check(opened, puts)
    kill(opened)


@pytest.mark.parametrize("has_block", [True, False])
def test_a_lost_queue_directory_is_made_again(config: MessageStoreConfig, has_block: bool) -> None:
    """Holds: store, consume queues rebuilt from the log."""
    opened = open_store(config)
    puts = fill(opened)
    close_store(opened, clean=True)
    if not has_block:
        opened.paths.control.unlink()
    shutil.rmtree(opened.paths.consumequeue / "A" / "1")
    opened = reopen(config)
    assert opened.report.queues_rebuilt >= 1
    check(opened, puts)
    kill(opened)


EARLY = ("early", 0)  # a queue whose messages are in the log's first files alone


@pytest.mark.parametrize("lost_again", ["consumequeue", "consumequeue_ext"])
@pytest.mark.parametrize("way", ["trusted", "flushed", "clean files", "files"])
def test_units_made_again_are_not_promised_before_they_are_on_the_disk(
    config: MessageStoreConfig, way: str, lost_again: str
) -> None:
    """The power fails after a recovery that made a queue again, and the control block is lost with it.
    Fault: During the rebuild of a lost queue the checkpoint still promised its units, so a power failure hid
    messages."""
    config = attrs.evolve(
        config, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1_024, message_index_enable=False
    )
    opened = open_store(config)
    expected = fill_over_minutes(opened, has_late_one="files" in way)
    paths = opened.paths
    close_store(opened, clean=way in ("trusted", "clean files"))
    if way == "flushed":
        another_boot(paths)
    elif way != "trusted":
        paths.control.unlink()
    shutil.rmtree(paths.consumequeue / EARLY[0])
    opened = reopen(config)
    assert opened.report.queues_rebuilt == 1
    assert bodies_of(opened, *EARLY) == expected
    save_checkpoint(opened.control, paths, opened.files)  # at any time: it says no more than what was synced
    kill(opened)
    paths.control.unlink()
    shutil.rmtree(paths.root / lost_again / EARLY[0])
    opened = reopen(config)
    assert bodies_of(opened, *EARLY) == expected
    kill(opened)


def fill_over_minutes(opened: OpenedStore, *, has_late_one: bool) -> list[bytes]:
    """The bodies of EARLY; everything is on the disk, and the checkpoint says so."""
    bodies = [b"early %d" % i for i in range(10)] + [b"late"] * has_late_one
    with StoreWriter(opened.config, opened.control) as writer:
        for i in range(100 + len(bodies)):
            is_early = i < 10 or i >= 100 + 10
            topic, queue_id, body = (*EARLY, bodies[min(i, len(bodies) - 1)]) if is_early else ("A", 0, b"x" * 1000)
            writer.put(topic, queue_id, body, b"TAGS\x01Tag", store_timestamp_ms=1_700_000_000_000 + i * 10_000)
        flush = lib.rp_flush_open(os.fsencode(opened.paths.commitlog), opened.control.header)
        assert lib.rp_flush_log(flush) == 0
        lib.rp_flush_close(flush)
        sync_units(writer.dispatch)
    save_checkpoint(opened.control, opened.paths, opened.files)
    return bodies


def bodies_of(opened: OpenedStore, topic: str, queue_id: int) -> list[bytes]:
    """Through the units, each of which leads to its tags code."""
    with StoreWriter(opened.config, opened.control) as writer:
        writer.dispatch.run_to_end()
    store = MessageStore(opened.config, opened.control)
    images = store.get_message(topic, queue_id, 0, 32).records
    store.close()
    for unit in read_units(opened.paths.consumequeue / topic / str(queue_id))[: len(images)]:
        ext = read_ext_unit(opened.files, opened.paths.consumequeue_ext / topic / str(queue_id), 1_024, unit.tags_code)
        assert ext is not None and ext.tags_code == string_hash("Tag")
    return [record.body for record in map(decode_record, images) if record is not None]


def read_units(directory: Path) -> list[ConsumeQueueUnit]:
    data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
    return [ConsumeQueueUnit(*unit) for unit in CQ_UNIT.iter_unpack(data)]


def newest(directory: Path) -> Path:
    return max(directory.iterdir(), key=lambda path: int(path.name))


def check_index(opened: OpenedStore, puts: Filled) -> None:
    """Every key finds its record, once."""
    store = MessageStore(opened.config, opened.control)
    for (topic, queue_id), expected in puts.items():
        for number, put in enumerate(expected):
            key = f"key{TOPICS.index((topic, queue_id)) + 3 * number}"
            assert result_of(store.message_query(topic, key, 64, 0, 1 << 60)).records == [put.image]
    store.close()


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("what", ["all", "newest"])
@pytest.mark.parametrize("means", ["block", "files", "power"])
def test_lost_index_files_are_made_again(config: MessageStoreConfig, was_clean: bool, what: str, means: str) -> None:
    """Fault: Deleted index files were never rebuilt, so their keys found nothing."""
    config = attrs.evolve(config, max_index_num=60)
    opened = open_store(config)
    puts = fill(opened)
    close_store(opened, clean=was_clean)
    if what == "all":
        shutil.rmtree(opened.paths.index)
    else:
        newest(opened.paths.index).unlink()
    if means == "files":
        opened.paths.control.unlink()
    elif means == "power":
        another_boot(opened.paths)
    opened = reopen(config)
    check_index(opened, puts)
    check(opened, puts)
    kill(opened)


def test_a_queue_lost_beside_a_crash_is_made_again(config: MessageStoreConfig) -> None:
    """The checkpoint lets recovery begin late, behind most of what the queue has lost.
    Fault: A queue directory lost beside a crash was rebuilt without its older messages."""
    opened = open_store(config)
    puts = fill(opened)
    paths = opened.paths
    kill(opened)
    last = newest(paths.commitlog)
    with last.open("r+b") as file:  # its first record is old enough to be begun with
        file.seek(56)
        file.write(struct.pack(">q", 1_700_000_000_000 - 10_000))
    paths.checkpoint.write_bytes(struct.pack(">qqq", *[1_700_000_000_000] * 3) + bytes(4072))
    paths.control.unlink()
    shutil.rmtree(paths.consumequeue / "A" / "1")
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FILES and opened.report.queues_rebuilt >= 1
    store = MessageStore(opened.config, opened.control)
    assert (store.min_offset("A", 1), store.max_offset("A", 1)) == (0, len(puts["A", 1]))
    store.close()
    kill(opened)


def test_a_half_written_header_page_falls_back_to_the_files(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = fill(opened)
    opened.control.header.durable_phy_offset = 1 << 40
    kill(opened)
    another_boot(opened.paths)
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FILES
    check(opened, puts)
    kill(opened)
