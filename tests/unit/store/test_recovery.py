"""Opening again: after a clean stop, after a kill, after a power failure, after Java, after a lost file.

Every case ends in the same check: what was acknowledged is there, whole, once, and queues go on where they were.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.message.record import decode_record
from rocketpy.message.tags import string_hash
from rocketpy.native.core import ffi, lib
from rocketpy.remoting.work import result_of
from rocketpy.store.control_block import ControlBlock
from rocketpy.store.dispatch import Dispatch, sync_units
from rocketpy.store.files import StorePaths, file_name
from rocketpy.store.formats.consume_queue_ext import read_ext_unit
from rocketpy.store.formats.unit import CQ_UNIT, ConsumeQueueUnit
from rocketpy.store.inspection.dump import StoreDump
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store, save_checkpoint
from rocketpy.store.recovery.positions import RecoveryKind
from rocketpy.store.services.queue_trim import QueueTrim
from tests.support.store_writer import Put, StoreWriter

TOPICS = (("A", 0), ("A", 1), ("B", 7))
Filled = dict[tuple[str, int], list[Put]]


def fill(opened: OpenedStore, count: int = 150, *, dispatch_until: int | None = None) -> Filled:
    """Messages over three queues and many files; the last ones are not dispatched if so wished."""
    puts: Filled = {queue: [] for queue in TOPICS}
    with StoreWriter(opened.config, opened.control) as writer:
        for i in range(count):
            topic, queue_id = TOPICS[i % len(TOPICS)]
            properties = b"KEYS\x01key%d\x02TAGS\x01Tag" % i
            dispatched = dispatch_until is None or i < dispatch_until
            put = writer.put(topic, queue_id, b"%d" % i * 50, properties, dispatch=dispatched)
            puts[topic, queue_id].append(put)
    return puts


def check(opened: OpenedStore, puts: Filled, *, with_index: bool = True) -> None:
    """Everything is there; and one more message gets the next offset of its queue."""
    store = MessageStore(opened.config, opened.control)
    with StoreWriter(opened.config, opened.control) as writer:
        writer.dispatch.run_to_end()  # as the store worker does
        for (topic, queue_id), expected in puts.items():
            found: list[bytes] = []
            while len(found) < len(expected):
                result = store.get_message(topic, queue_id, len(found), 32)
                assert result.records, (topic, queue_id, len(found), result.status)
                found += result.records
            assert found == [put.image for put in expected]
            assert store.max_offset(topic, queue_id) == len(expected)
            assert writer.put(topic, queue_id).queue_offset == len(expected)
            assert store.max_offset(topic, queue_id) == len(expected) + 1
            if with_index and expected:
                key = f"key{TOPICS.index((topic, queue_id)) + 3 * (len(expected) - 1)}"
                assert expected[-1].image in result_of(store.message_query(topic, key, 64, 0, 1 << 60)).records
    store.close()


def another_boot(paths: StorePaths) -> None:
    """As if the machine had gone down: the boot id (16 bytes at 24) is another one."""
    with paths.control.open("r+b") as file:
        file.seek(24)
        file.write(bytes(16))


def kill(opened: OpenedStore) -> None:
    """All processes are gone; the page cache is not."""
    close_store(opened, clean=False)


def reopen(config: MessageStoreConfig) -> OpenedStore:
    return open_store(config)


def test_a_clean_stop_needs_no_recovery(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = fill(opened)
    paths = opened.paths
    assert paths.abort.exists()
    close_store(opened, clean=True)
    assert not paths.abort.exists()
    physic, logics, index = struct.unpack(">qqq", paths.checkpoint.read_bytes()[:24])
    assert physic == logics == index == 1_700_000_000_000 and paths.checkpoint.stat().st_size == 4096
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.TRUSTED and opened.report.scanned_bytes == 0
    check(opened, puts)
    close_store(opened, clean=True)


def test_a_clean_stop_survives_a_reboot(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = fill(opened)
    close_store(opened, clean=True)
    another_boot(opened.paths)
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.TRUSTED
    check(opened, puts)
    kill(opened)


def test_a_clean_stop_removes_unused_files(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    fill(opened, 10)
    ahead = opened.paths.commitlog / file_name(16_384)
    ahead.write_bytes(bytes(16_384))
    close_store(opened, clean=True)
    assert [path.name for path in opened.paths.commitlog.iterdir()] == [file_name(0)]


@pytest.mark.parametrize("dispatch_until", [0, 40, 149, None])
def test_kill_9_loses_nothing_and_scans_nothing(config: MessageStoreConfig, dispatch_until: int | None) -> None:
    opened = open_store(config)
    puts = fill(opened, dispatch_until=dispatch_until)
    kill(opened)
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.TRUSTED and opened.report.scanned_records == 0
    check(opened, puts)
    kill(opened)


def test_catching_up_is_left_to_the_store_worker(config: MessageStoreConfig) -> None:
    """Sends go on at once, behind records that have no units yet; what was readable stays so."""
    opened = open_store(config)
    puts = fill(opened, dispatch_until=40)
    kill(opened)
    opened = reopen(config)
    report, header = opened.report, opened.control.header
    assert report.dispatched_from == report.dispatched_to == header.dispatched_phy_offset
    assert report.dispatched_to == puts["A", 1][13].phy_offset < report.log_end  # the 41st
    assert [state.max_offset for state in opened.control.queues()] == [14, 13, 13]
    assert [state.next_offset for state in opened.control.queues()] == [50, 50, 50]
    with StoreWriter(config, opened.control) as writer:
        for queue in TOPICS:
            puts[queue].append(writer.put(*queue, b"before dispatch", dispatch=False))
            assert puts[queue][-1].queue_offset == 50
    check(opened, puts, with_index=False)
    kill(opened)


@pytest.mark.parametrize("step", [1, 700, 5_000])
def test_a_store_worker_that_dies_while_it_catches_up(config: MessageStoreConfig, step: int) -> None:
    """Again and again, between batches and within one (units written, position not moved); sends go on meanwhile."""
    opened = open_store(config)
    puts = fill(opened, 60, dispatch_until=10)
    kill(opened)
    opened = reopen(config)
    header = opened.control.header
    with StoreWriter(config, opened.control) as writer:
        for life in range(20):
            position = header.dispatched_phy_offset
            dispatch = Dispatch(config, opened.control)
            assert lib.rp_dispatch_run(dispatch.handle, step) >= 0
            dispatch.close()
            if life % 3 == 0:
                header.dispatched_phy_offset = position  # it died between writing and moving on
            queue = TOPICS[life % 3]
            puts[queue].append(writer.put(*queue, b"life %d" % life, dispatch=False))
            assert puts[queue][-1].queue_offset == len(puts[queue]) - 1
    check(opened, puts, with_index=False)
    assert StoreDump(opened.paths.root).verify().problems == []
    kill(opened)


def test_cleaning_may_overtake_what_a_dead_worker_left(config: MessageStoreConfig) -> None:
    """Log files below the dispatched position go; the minimum above it counts as dispatched when files were lost."""
    opened = open_store(config)
    puts = fill(opened, dispatch_until=149)
    kill(opened)
    (opened.paths.commitlog / file_name(0)).unlink()
    opened.control = ControlBlock(opened.paths.control, config.mapped_file_size_commit_log)
    opened.control.header.dispatched_phy_offset = 100
    opened.control.close()
    opened = reopen(config)
    header = opened.control.header
    assert header.min_phy_offset == header.dispatched_phy_offset == 16_384
    assert [state.next_offset for state in opened.control.queues()] == [50, 50, 50]
    with StoreWriter(config, opened.control) as writer:
        writer.dispatch.run_to_end()
        assert writer.dispatch.counts().resets == 0
    for state in opened.control.queues():
        assert state.max_offset == len(puts[state.topic, state.queue_id])
    kill(opened)


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


def test_a_torn_record_is_never_seen(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = fill(opened, 20)
    with StoreWriter(config, opened.control) as writer:
        at, _ = writer.reserve(2000)
        image = puts["A", 0][0].image

        ffi.memmove(at, image, len(image))  # whole, but never published: nobody was told
    kill(opened)
    opened = reopen(config)
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
    """The power fails after a recovery that made a queue again, and the control block is lost with it."""
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
    """The checkpoint lets recovery begin late, behind most of what the queue has lost."""
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


def test_java_in_between_is_noticed(config: MessageStoreConfig) -> None:
    """Another program that held the lock has written the file `lock`: the block is not trusted."""
    opened = open_store(config)
    puts = fill(opened)
    close_store(opened, clean=True)
    opened.paths.lock.write_bytes(b"lock")
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FILES
    check(opened, puts)
    kill(opened)


def test_stale_bytes_behind_the_end_are_wiped(config: MessageStoreConfig) -> None:
    """Records of an earlier life behind the end must never be walked into."""
    opened = open_store(config)
    puts = fill(opened, 60)
    close_store(opened, clean=False)
    opened.paths.control.unlink()
    cut = puts["A", 0][10]  # this record is damaged: the log ends before it
    path = opened.paths.commitlog / file_name(cut.phy_offset - cut.phy_offset % 16_384)
    with path.open("r+b") as file:
        file.seek(cut.phy_offset % 16_384 + 90)
        file.write(b"\xff\xff\xff")
    opened = reopen(config)
    assert opened.report.log_end == cut.phy_offset
    assert not any(path.read_bytes()[cut.phy_offset % 16_384 :])
    left = {queue: [put for put in list_ if put.phy_offset < cut.phy_offset] for queue, list_ in puts.items()}
    check(opened, left, with_index=False)
    kill(opened)


def test_units_behind_the_end_are_dropped(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = fill(opened, 60)
    close_store(opened, clean=True)
    opened.paths.control.unlink()
    last = max(int(path.name) for path in opened.paths.commitlog.iterdir())
    (opened.paths.commitlog / file_name(last)).unlink()
    opened = reopen(config)
    assert opened.report.log_end == last
    left = {queue: [put for put in list_ if put.phy_offset < last] for queue, list_ in puts.items()}
    check(opened, left, with_index=False)
    kill(opened)


def forget(paths: StorePaths, name: str) -> None:
    """Zero a file, as one whose pages never reached the disk."""
    for path in paths.root.rglob(name):
        path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("lost", ["queues", "log tail", "both", "index"])
def test_power_failure_keeps_what_was_flushed(config: MessageStoreConfig, lost: str) -> None:
    opened = open_store(config)
    first = fill(opened, 90)
    header = opened.control.header
    header.durable_phy_offset = flushed = header.published_phy_offset  # what flush and the units' sync have covered
    header.units_durable_phy_offset = units = first["A", 0][10].phy_offset
    with StoreWriter(config, opened.control) as writer:
        tail = [writer.put("A", 0, b"tail") for _ in range(5)]
    kill(opened)
    paths = opened.paths
    another_boot(paths)
    if lost in ("queues", "both"):  # every unit behind the synced ones
        for topic, queue_id in TOPICS:
            gone = sum(1 for put in first[topic, queue_id] if put.phy_offset < units)
            directory = paths.consumequeue / topic / str(queue_id)
            for path in directory.iterdir():
                image = bytearray(path.read_bytes())
                keep = max(0, gone * 20 - int(path.name))
                image[keep:] = bytes(len(image[keep:]))
                path.write_bytes(image)
    if lost in ("log tail", "both"):
        path = paths.commitlog / file_name(tail[1].phy_offset - tail[1].phy_offset % 16_384)
        image = bytearray(path.read_bytes())
        image[tail[1].phy_offset % 16_384 :] = bytes(16_384 - tail[1].phy_offset % 16_384)
        path.write_bytes(image)
        tail = tail[:1]
    if lost == "index":
        shutil.rmtree(paths.index)
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FLUSHED
    assert opened.report.log_end >= flushed and opened.report.scanned_records == len(tail)
    check(opened, {**first, ("A", 0): first["A", 0] + tail}, with_index=False)
    kill(opened)


@pytest.mark.parametrize("has_block", [True, False])
def test_a_record_that_lost_the_middle_of_its_properties_is_torn(config: MessageStoreConfig, has_block: bool) -> None:
    """Its body is sound, and so are the properties' ends."""
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        writer.put("T", 0)
        put = writer.put("T", 0, b"body", b"p\x01" + b"x" * 2_000)
    kill(opened)
    another_boot(opened.paths)
    if not has_block:
        opened.paths.control.unlink()
    with (opened.paths.commitlog / file_name(0)).open("r+b") as file:
        file.seek(1_024)  # a sector
        file.write(bytes(512))
    opened = reopen(config)
    assert opened.report.kind is (RecoveryKind.FLUSHED if has_block else RecoveryKind.FILES)
    assert opened.report.log_end == put.phy_offset
    kill(opened)


ZEROS = b"KEYS\x01key\x02p\x01" + b"x" * 600 + bytes(700)  # at their end, and before a sector's boundary
STORED_MS = 1_700_000_000_000


def fill_with_zeros(opened: OpenedStore) -> Filled:
    """Messages whose properties a Java broker takes as they are."""
    with StoreWriter(opened.config, opened.control) as writer:
        return {("A", 0): [writer.put("A", 0, b"%d" % i, ZEROS) for i in range(30)]}


@pytest.mark.parametrize("end", ["closed", "closed, Java came", "killed", "killed, Java came", "killed, units lost"])
def test_zeros_in_properties_are_no_damage_while_the_machine_is_up(config: MessageStoreConfig, end: str) -> None:
    opened = open_store(config)
    puts = fill_with_zeros(opened)
    opened.control.header.units_lost = end == "killed, units lost"
    log_end = opened.control.published_phy_offset
    close_store(opened, clean=end.startswith("closed"))
    if end.endswith("Java came"):
        opened.paths.lock.write_bytes(b"lock")
    opened = reopen(config)
    files = RecoveryKind.FLUSHED if end == "killed, units lost" else RecoveryKind.TRUSTED
    assert opened.report.kind is (RecoveryKind.FILES if end.endswith("Java came") else files)
    assert opened.report.log_end == log_end
    check(opened, puts, with_index=False)
    kill(opened)


@pytest.mark.parametrize("known", ["durable offset", "durable offset, Java came", "checkpoint", "block's checkpoint"])
def test_zeros_in_durable_properties_are_no_damage(config: MessageStoreConfig, known: str) -> None:
    """The power fails. Behind what is durable, they are those of a torn record."""
    opened = open_store(config)
    puts = fill_with_zeros(opened)
    header, paths = opened.control.header, opened.paths
    end = header.published_phy_offset
    if known.startswith("durable"):
        header.durable_phy_offset = header.units_durable_phy_offset = end
    else:
        times = struct.pack(">qqq", *[STORED_MS + 1] * 3)
        paths.checkpoint.write_bytes(times + bytes(4072))
    with StoreWriter(opened.config, opened.control) as writer:
        sound = writer.put("A", 0, b"sound", store_timestamp_ms=STORED_MS + 1)
        writer.put("A", 0, b"torn", ZEROS, store_timestamp_ms=STORED_MS + 1)
    kill(opened)
    another_boot(paths)
    if known.endswith("Java came"):
        paths.lock.write_bytes(b"lock")
    elif known == "checkpoint":
        paths.control.unlink()
    opened = reopen(config)
    is_block_ours = known in ("durable offset", "block's checkpoint")
    assert opened.report.kind is (RecoveryKind.FLUSHED if is_block_ours else RecoveryKind.FILES)
    assert opened.report.log_end == end + sound.size
    check(opened, {("A", 0): [*puts["A", 0], sound]}, with_index=False)
    kill(opened)


def test_zeros_in_properties_are_torn_after_a_failed_sync(config: MessageStoreConfig) -> None:
    """The kernel may have dropped the pages that it could not write, and read them again."""
    opened = open_store(config)
    fill_with_zeros(opened)
    opened.control.header.running_flags = lib.RP_FLAG_NOT_WRITEABLE
    kill(opened)
    opened = reopen(config)
    assert (opened.report.kind, opened.report.log_end) == (RecoveryKind.FLUSHED, 0)
    kill(opened)


def test_what_was_scanned_is_not_called_durable(config: MessageStoreConfig) -> None:
    """It may be in the page cache alone: the next flush begins where the scan did."""
    opened = open_store(config)
    fill(opened)
    kill(opened)
    opened.paths.control.unlink()
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FILES
    assert opened.control.durable_phy_offset == 0 < opened.control.published_phy_offset
    kill(opened)


def test_what_a_failed_sync_has_left_is_written_again_though_another_program_came_between(
    config: MessageStoreConfig,
) -> None:
    """The kernel calls its pages clean: the next sync would succeed, and write nothing."""
    opened = open_store(config)
    fill(opened)
    opened.control.header.running_flags = lib.RP_FLAG_NOT_WRITEABLE
    kill(opened)
    opened.paths.lock.write_bytes(b"lock")
    opened = reopen(config)
    assert opened.report.kind is RecoveryKind.FILES and opened.control.header.flush_begun
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


def _resize(path: Path) -> None:
    os.truncate(path, 100)


def _stray(path: Path) -> None:
    (path.parent / "notes.txt").write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("spoil", [_resize, _stray])
@pytest.mark.parametrize("place", ["commitlog", "consumequeue/A/0"])
def test_files_that_do_not_belong_are_named(
    config: MessageStoreConfig, spoil: Callable[[Path], None], place: str
) -> None:
    opened = open_store(config)
    fill(opened)
    close_store(opened, clean=True)
    opened.paths.control.unlink()
    directory = opened.paths.root / place
    spoil(directory / file_name(0))
    with pytest.raises(StoreError, match=str(directory)):
        open_store(config)


def test_another_file_size_is_refused(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    fill(opened, 3)
    close_store(opened, clean=True)
    with pytest.raises(StoreError, match="16384 bytes, 65536 are configured"):
        open_store(attrs.evolve(config, mapped_file_size_commit_log=65_536))


def test_an_empty_log_drops_all_queues(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    fill(opened)
    close_store(opened, clean=True)
    shutil.rmtree(opened.paths.commitlog)
    opened = reopen(config)
    assert opened.report.log_end == 0 and opened.control.queues() == []
    assert not any(opened.paths.consumequeue.rglob("0*"))
    with StoreWriter(config, opened.control) as writer:
        assert writer.put("A", 0).queue_offset == 0
    kill(opened)


def test_a_queue_of_nothing_but_blanks_is_removed(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    close_store(opened, clean=True)
    directory = opened.paths.consumequeue / "T" / "0"
    directory.mkdir(parents=True)
    blanks = struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * 5
    (directory / file_name(0)).write_bytes(blanks + bytes(900))
    opened.paths.control.unlink()
    opened = reopen(config)
    assert opened.control.queues() == [] and not directory.exists()
    kill(opened)


def test_the_oldest_records_decide_the_minimum(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = fill(opened)
    close_store(opened, clean=True)
    opened.paths.control.unlink()
    (opened.paths.commitlog / file_name(0)).unlink()
    opened = reopen(config)
    for state in opened.control.queues():
        first = next(put for put in puts[state.topic, state.queue_id] if put.phy_offset >= 16_384)
        assert state.min_offset == first.queue_offset
    kill(opened)


@pytest.mark.parametrize("is_oldest_deleted", [False, True])
@pytest.mark.parametrize("is_found_again", [False, True])
def test_a_hole_in_a_queue_does_not_hide_the_messages_before_it(
    config: MessageStoreConfig, is_found_again: bool, is_oldest_deleted: bool
) -> None:
    """Damage in the log leaves pre-blank units in the middle of a queue (docs/adr/0050)."""
    opened = open_store(config)
    with StoreWriter(config, opened.control) as writer:
        puts = [writer.put("A", 0, b"x" * 1_900) for _ in range(20)]
        writer.control.queue("A", 0).next_offset += 9  # their records were damaged
        puts += [writer.put("A", 0, b"x" * 1_900) for _ in range(15)]
    assert opened.control.queue("A", 0).max_offset == 44
    deleted = 16_384 if is_oldest_deleted else 0
    if is_found_again:
        close_store(opened, clean=True)
        opened.paths.control.unlink()
        if is_oldest_deleted:
            (opened.paths.commitlog / file_name(0)).unlink()
        opened = reopen(config)
    elif is_oldest_deleted:
        trim = QueueTrim(config, opened.control, opened.files)
        trim.trim(opened.control.queue("A", 0), deleted)
        trim.close()
    first = next(put for put in puts if put.phy_offset >= deleted)
    assert opened.control.queue("A", 0).min_offset == first.queue_offset
    kill(opened)


@pytest.mark.parametrize("dispatched", [0, 7, 20])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_new_send_worker_goes_on_with_the_next_offsets(
    config: MessageStoreConfig, dispatched: int, is_damaged: bool
) -> None:
    """The previous one died between publishing and counting on; a damaged record behind dispatch is passed over."""
    opened = open_store(config)
    puts = fill(opened, 20, dispatch_until=dispatched)
    if is_damaged and dispatched < 15:
        damaged = puts["B", 7][4].phy_offset
        with (opened.paths.commitlog / file_name(0)).open("r+b") as file:
            file.seek(damaged + 4)
            file.write(b"\xff")
    for entry in opened.control.entries():
        entry.next_offset = 3
    directory = os.fsencode(opened.paths.commitlog)
    assert lib.rp_recovery_next_offsets(opened.control.block, directory) == 0
    assert {state.next_offset for state in opened.control.queues()} == {7, 6}
    assert [state.next_offset for state in opened.control.queues()] == [len(puts[queue]) for queue in TOPICS]
    kill(opened)


@pytest.mark.parametrize("has_block", [True, False])
def test_a_queue_that_was_being_removed_has_a_gap(config: MessageStoreConfig, has_block: bool) -> None:
    """A power failure keeps any of its files' names."""
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        puts = [writer.put("T", 0, b"%d" % i) for i in range(220)]  # 50 to a file
        writer.dispatch.sync(with_index=True)
    flush = lib.rp_flush_open(os.fsencode(opened.paths.commitlog), opened.control.header)
    assert lib.rp_flush_log(flush) == 0
    lib.rp_flush_close(flush)
    save_checkpoint(opened.control, opened.paths, opened.files)
    directory = opened.paths.consumequeue / "T" / "0"
    kill(opened)
    another_boot(opened.paths)
    if not has_block:  # as Java leaves it
        opened.paths.control.unlink()
        opened.paths.abort.unlink()
    (directory / file_name(1_000)).unlink()
    (directory / file_name(2_000)).unlink()
    opened = reopen(config)
    store = MessageStore(opened.config, opened.control)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (150, 220)
    assert store.get_message("T", 0, 150, 1).records == [puts[150].image]
    assert not (directory / file_name(0)).exists()
    with StoreWriter(opened.config, opened.control) as writer:
        assert writer.put("T", 0).queue_offset == 220
    store.close()
    kill(opened)
