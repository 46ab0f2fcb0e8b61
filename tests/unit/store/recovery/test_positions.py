"""Positions and times after recovery: from a block that contradicts itself, and after a lost end of the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.native.core import lib
from rocketpy.remoting.work import result_of
from rocketpy.store.control_block import QUEUE_DELETED, ControlBlock
from rocketpy.store.files import DiskFiles, file_name
from rocketpy.store.formats.checkpoint import StoreCheckpoint, read_checkpoint, write_checkpoint
from rocketpy.store.formats.index_file import INDEX_HEADER, index_end
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery import positions, store_lock
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store
from rocketpy.store.recovery.positions import LOG_END_MAX, RecoveryKind
from tests.support.reopened_store import another_boot, check, fill, kill
from tests.support.store_writer import Put, StoreWriter

STORED_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    "changes",
    [
        {"dispatched_phy_offset": 1 << 40},
        {"min_phy_offset": 1 << 40},
        {"durable_phy_offset": 1 << 40},
        {"published_phy_offset": LOG_END_MAX},
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_block_that_contradicts_itself_is_not_trusted(
    config: MessageStoreConfig, changes: dict[str, int], clean: bool
) -> None:
    opened = open_store(config)
    puts = fill(opened, 30)
    close_store(opened, clean=clean)
    opened = open_store(config)
    for name, position in changes.items():
        setattr(opened.control.header, name, position)
    opened.control.sync()
    kill(opened)
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.FILES
    check(opened, puts)
    kill(opened)


class Core:
    """The compiled core, but for one function."""

    def __init__(self, name: str, status: int) -> None:
        setattr(self, name, lambda *_: status)

    def __getattr__(self, name: str) -> object:
        return getattr(lib, name)


@pytest.mark.parametrize(
    ("name", "status", "text"),
    [
        ("rp_recovery_check_queues", -1, "cannot check the consume queues in"),
        ("rp_recovery_next_offsets", lib.RP_IO_ERROR, "cannot read the log in"),
    ],
)
def test_a_start_that_cannot_read_the_store_fails_and_changes_nothing(
    config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch, name: str, status: int, text: str
) -> None:
    """There are no descriptors, or there is no memory."""
    monkeypatch.setattr(store_lock, "ORPHANS_WAIT_S", 0.0)
    opened = open_store(config)
    puts = fill(opened, 30)
    close_store(opened, clean=True)
    with monkeypatch.context() as patch:
        patch.setattr(positions, "lib", Core(name, status))
        with pytest.raises(StoreError, match=text):
            open_store(config)
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.TRUSTED
    check(opened, puts)
    kill(opened)


def test_a_start_leaves_no_mapping_of_what_it_has_dispatched(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    fill(opened, 30)
    kill(opened)
    another_boot(opened.paths)
    opened = open_store(config)
    assert opened.report.dispatched_to > opened.report.dispatched_from
    kill(opened)
    assert str(opened.paths.root) not in Path("/proc/self/maps").read_text()


def put_keyed(opened: OpenedStore, *keys: str, queue_id: int = 0) -> list[Put]:
    with StoreWriter(opened.config, opened.control) as writer:
        return [writer.put("T", queue_id, b"x" * 500, b"KEYS\x01%s" % key.encode()) for key in keys]


def found(opened: OpenedStore, key: str) -> list[bytes]:
    store = MessageStore(opened.config, opened.control)
    try:
        return result_of(store.message_query("T", key, 64, 0, 1 << 60)).records
    finally:
        store.close()


def lose_end(opened: OpenedStore, at: int) -> None:
    """The bytes of the log from `at` on, which is in its last file, never reached the disk."""
    size = opened.config.mapped_file_size_commit_log
    path = opened.paths.commitlog / file_name(at - at % size)
    image = path.read_bytes()
    path.write_bytes(image[: at % size].ljust(size, b"\0"))


@pytest.mark.parametrize("kind", [RecoveryKind.FLUSHED, RecoveryKind.FILES])
def test_messages_in_the_place_of_lost_ones_are_indexed(config: MessageStoreConfig, kind: RecoveryKind) -> None:
    """The index names places of the log that is lost: it ends with the log, so that dispatch goes on there."""
    opened = open_store(config)
    (first, *lost) = put_keyed(opened, "first", *(f"lost{number}" for number in range(10)))
    opened.control.header.durable_phy_offset = lost[0].phy_offset
    kill(opened)
    another_boot(opened.paths)
    if kind is RecoveryKind.FILES:
        opened.paths.control.unlink()
    lose_end(opened, lost[0].phy_offset)
    opened = open_store(config)
    assert opened.report.kind is kind and opened.report.log_end == lost[0].phy_offset
    again = put_keyed(opened, *(f"again{number}" for number in range(10)))
    assert found(opened, "first") == [first.image] and found(opened, "lost3") == []
    assert [found(opened, f"again{number}") for number in range(10)] == [[put.image] for put in again]
    kill(opened)


@pytest.mark.parametrize("kind", [RecoveryKind.FLUSHED, RecoveryKind.FILES])
def test_an_index_that_is_switched_off_meanwhile_ends_with_the_log_as_well(
    config: MessageStoreConfig, kind: RecoveryKind
) -> None:
    opened = open_store(config)
    (_, *lost) = put_keyed(opened, "first", *(f"lost{number}" for number in range(10)))
    opened.control.header.durable_phy_offset = lost[0].phy_offset
    kill(opened)
    another_boot(opened.paths)
    if kind is RecoveryKind.FILES:
        opened.paths.control.unlink()
    lose_end(opened, lost[0].phy_offset)
    (newest,) = opened.paths.index.iterdir()
    entries = newest.read_bytes()[INDEX_HEADER.size :]
    opened = open_store(attrs.evolve(config, message_index_enable=False))
    assert newest.read_bytes()[INDEX_HEADER.size :] == entries, "nobody asks for its keys now"
    assert opened.report.kind is kind and opened.report.log_end == lost[0].phy_offset
    assert index_end(DiskFiles(), opened.paths.index) <= lost[0].phy_offset, "a Java broker indexes nothing before it"
    kill(opened)
    opened = open_store(config)
    again = put_keyed(opened, *(f"again{number}" for number in range(10)))
    assert [found(opened, f"again{number}") for number in range(10)] == [[put.image] for put in again]
    kill(opened)


def test_the_old_block_is_gone_from_the_disk_before_queues_are_cut(
    config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It promises units that are removed then: after a power failure it must not come back."""
    opened = open_store(config)
    put_keyed(opened, "a", "b")
    kill(opened)
    another_boot(opened.paths)
    steps: list[object] = []
    sync, load = ControlBlock.sync, positions.load_queues

    def noted_sync(control: ControlBlock) -> None:
        steps.append(int(control.header.published_phy_offset))
        sync(control)

    def noted_load(*arguments: Any, **options: Any) -> int:
        steps.append("queues")
        return load(*arguments, **options)

    monkeypatch.setattr(ControlBlock, "sync", noted_sync)
    monkeypatch.setattr(positions, "load_queues", noted_load)
    opened = open_store(config)
    assert steps[: steps.index("queues")][-1:] == [0]
    kill(opened)


@pytest.mark.parametrize("kind", [RecoveryKind.TRUSTED, RecoveryKind.FLUSHED, RecoveryKind.FILES])
def test_store_times_go_on_after_the_last_record(config: MessageStoreConfig, kind: RecoveryKind) -> None:
    """Otherwise a clock that was set back would give later messages earlier times."""
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        writer.put("T", 0, store_timestamp_ms=STORED_MS + 5)
    opened.control.header.durable_phy_offset = opened.control.published_phy_offset
    kill(opened)
    if kind is not RecoveryKind.TRUSTED:
        another_boot(opened.paths)
    if kind is RecoveryKind.FILES:
        opened.paths.control.unlink()
    opened = open_store(config)
    assert opened.report.kind is kind
    assert opened.control.header.last_store_timestamp_ms == STORED_MS + 5
    kill(opened)


@pytest.mark.parametrize("is_same_boot", [True, False])
def test_after_a_failed_sync_all_is_synced_again(config: MessageStoreConfig, is_same_boot: bool) -> None:
    """In the same boot the records that were found may be in the page cache only."""
    opened = open_store(config)
    (put, *_) = put_keyed(opened, "a", "b")
    opened.control.header.durable_phy_offset = put.phy_offset + put.size
    opened.control.header.units_lost = 1
    kill(opened)
    if not is_same_boot:
        another_boot(opened.paths)
    opened = open_store(config)
    header = opened.control.header
    assert opened.report.kind is RecoveryKind.FLUSHED
    assert bool(header.flush_begun) is is_same_boot
    assert header.durable_phy_offset == (put.phy_offset + put.size if is_same_boot else header.published_phy_offset)
    kill(opened)


def test_an_empty_store_stays_empty_over_a_power_failure(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    kill(opened)
    another_boot(opened.paths)
    opened = open_store(config)
    assert (opened.report.kind, opened.report.log_end) == (RecoveryKind.FLUSHED, 0)
    kill(opened)


def test_a_trusted_block_whose_log_has_lost_its_newest_file_is_not_trusted(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    puts = put_keyed(opened, *(f"key{number}" for number in range(60)))
    paths, size = opened.paths, config.mapped_file_size_commit_log
    opened.control.header.durable_phy_offset = puts[1].phy_offset
    last = puts[-1].phy_offset // size * size
    kill(opened)
    (paths.commitlog / file_name(last)).unlink()
    opened = open_store(config)
    assert last > 0 and (opened.report.kind, opened.report.log_end) == (RecoveryKind.FILES, last)
    kill(opened)


def test_deletions_of_a_block_that_another_program_has_outrun_do_not_count(config: MessageStoreConfig) -> None:
    opened = open_store(config)
    put_keyed(opened, "a")
    (entry,) = opened.control.entries()
    entry.deleted_below = opened.control.published_phy_offset
    opened.control.header.queues_replaced = 1
    kill(opened)
    opened.paths.lock.write_bytes(b"lock")
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.FILES
    assert [entry.deleted_below for entry in opened.control.entries()] == [0]
    kill(opened)


@pytest.mark.parametrize("has_keys", [True, False])
def test_what_has_units_on_the_disk_is_not_dispatched_again(config: MessageStoreConfig, has_keys: bool) -> None:
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        puts = [writer.put("T", 0, properties=b"KEYS\x01key%d" % i if has_keys else b"") for i in range(20)]
    header = opened.control.header
    header.durable_phy_offset = header.published_phy_offset
    header.units_durable_phy_offset = puts[15].phy_offset
    kill(opened)
    another_boot(opened.paths)
    opened = open_store(config)
    report = opened.report
    assert report.kind is RecoveryKind.FLUSHED and report.dispatched_to == report.log_end
    assert puts[14 if has_keys else 15].phy_offset <= report.dispatched_from <= puts[15].phy_offset  # one may be torn
    assert (report.scanned_bytes, report.queues_rebuilt) == (0, 0)
    if has_keys:
        assert [found(opened, f"key{number}") for number in range(20)] == [[put.image] for put in puts]
    kill(opened)


@pytest.mark.parametrize(
    ("changes", "rebuilt"),
    [
        pytest.param({}, 1, id="lost"),
        pytest.param({"state": QUEUE_DELETED}, 0, id="deleted"),
        pytest.param({"min_offset": 30}, 0, id="cleaned"),
        pytest.param({"max_phy_offset": 0}, 0, id="blanks only"),
        pytest.param({"max_phy_offset": 1 << 30}, 0, id="behind the units on the disk"),
        pytest.param({"topic": 99}, 0, id="without a name"),
    ],
)
def test_after_a_power_failure_a_queue_without_files_is_made_again_if_it_had_some(
    config: MessageStoreConfig, changes: dict[str, int], rebuilt: int
) -> None:
    """The last unit of the lost queue was of the last record whose units were on the disk."""
    opened = open_store(config)
    put_keyed(opened, "a")
    header = opened.control.header
    header.durable_phy_offset = header.units_durable_phy_offset = end = header.published_phy_offset
    entry = opened.control.add_queue(b"Else", 0)
    entry.max_offset, entry.next_offset, entry.max_phy_offset = 30, 30, end
    for name, value in changes.items():
        setattr(entry, name, value)
    kill(opened)
    another_boot(opened.paths)
    opened = open_store(config)
    assert (opened.report.kind, opened.report.queues_rebuilt) == (RecoveryKind.FLUSHED, rebuilt)
    kill(opened)


@pytest.mark.parametrize("kind", [RecoveryKind.TRUSTED, RecoveryKind.FLUSHED, RecoveryKind.FILES])
@pytest.mark.parametrize("sys_flag", [0x4, 0xC])
def test_records_without_units_take_no_queue_offset(
    config: MessageStoreConfig, kind: RecoveryKind, sys_flag: int
) -> None:
    """Prepared messages and the ends of rolled back ones, as a Java broker writes them with the topic's own name."""
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        puts = [writer.put("T", 0, b"first")]
        writer.put("T", 0, b"no unit", sys_flag=sys_flag, dispatch=False)
        writer.put("Else", 3, b"no unit", sys_flag=sys_flag, dispatch=False)
    opened.control.header.durable_phy_offset = opened.control.published_phy_offset
    kill(opened)
    if kind is not RecoveryKind.TRUSTED:
        another_boot(opened.paths)
    if kind is RecoveryKind.FILES:
        opened.paths.control.unlink()
    opened = open_store(config)
    assert opened.report.kind is kind and opened.report.queues_rebuilt == 0
    assert {state.topic: state.next_offset for state in opened.control.queues() if state.next_offset} == {"T": 1}
    check(opened, {("T", 0): puts}, with_index=False)
    kill(opened)


@pytest.mark.parametrize("has_block", [True, False])
def test_a_record_of_another_place_is_not_in_the_log(config: MessageStoreConfig, has_block: bool) -> None:
    """A file system may show old blocks of another file after a power failure: their records have valid CRCs."""
    opened = open_store(config)
    (old, last) = put_keyed(opened, "old", "last")
    end = last.phy_offset + last.size
    kill(opened)
    another_boot(opened.paths)
    if not has_block:
        opened.paths.control.unlink()
    with (opened.paths.commitlog / file_name(0)).open("r+b") as file:
        file.seek(end)
        file.write(old.image)
    opened = open_store(config)
    assert opened.report.kind is (RecoveryKind.FLUSHED if has_block else RecoveryKind.FILES)
    assert opened.report.log_end == end
    kill(opened)


@pytest.mark.parametrize(("properties", "lost"), [(b"", 6), (b"KEYS\x01k", 3)], ids=["topic", "properties"])
def test_a_record_with_a_torn_end_is_lost(config: MessageStoreConfig, properties: bytes, lost: int) -> None:
    """The body has its CRC. Without properties, the two bytes after the topic are zeros anyway."""
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        writer.put("T", 0)
        torn = writer.put("TornTopic", 0, properties=properties)
    kill(opened)
    another_boot(opened.paths)
    with (opened.paths.commitlog / file_name(0)).open("r+b") as file:
        file.seek(torn.phy_offset + torn.size - lost)
        file.write(bytes(lost))
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.FLUSHED and opened.report.log_end == torn.phy_offset
    kill(opened)


@pytest.mark.parametrize(("flushed", "first"), [(29, 0), (99, 3)])
def test_of_two_parts_of_the_log_the_newest_that_was_flushed_is_taken(
    config: MessageStoreConfig, flushed: int, first: int
) -> None:
    """The name of file 2 never reached the disk. What comes after it is the log only if that was flushed once."""
    opened = open_store(config)
    size, paths = config.mapped_file_size_commit_log, opened.paths
    with StoreWriter(opened.config, opened.control) as writer:
        times = range(STORED_MS, STORED_MS + 100)
        puts = [writer.put("T", 0, b"x" * 500, store_timestamp_ms=at) for at in times]
    assert [put.phy_offset // size for put in puts[-1:]] == [3] and puts[30].phy_offset // size == 1
    kill(opened)
    another_boot(paths)
    paths.control.unlink()
    (paths.commitlog / file_name(2 * size)).unlink()
    write_checkpoint(DiskFiles(), paths.checkpoint, StoreCheckpoint(*[STORED_MS + flushed] * 3))
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.FILES
    assert opened.control.header.min_phy_offset == first * size
    assert opened.report.log_end == (puts[-1].phy_offset + puts[-1].size if first else 2 * size)
    kill(opened)


def test_nothing_stays_behind_the_end_that_a_power_failure_leaves(config: MessageStoreConfig) -> None:
    """Whole records after a damaged one: a later scan would walk into them once the gap is filled."""
    opened = open_store(config)
    size, paths = config.mapped_file_size_commit_log, opened.paths
    puts = put_keyed(opened, *(f"key{number}" for number in range(80)))
    assert puts[-1].phy_offset > 2 * size
    kill(opened)
    another_boot(paths)
    damaged = puts[10]
    with (paths.commitlog / file_name(0)).open("r+b") as file:
        file.seek(damaged.phy_offset + 90)
        file.write(b"\xff")
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.FLUSHED and opened.report.log_end == damaged.phy_offset
    (left,) = paths.commitlog.glob("0*")
    assert not any(left.read_bytes()[damaged.phy_offset :])
    kill(opened)


@pytest.mark.parametrize("kind", [RecoveryKind.FLUSHED, RecoveryKind.FILES])
def test_units_that_are_made_again_are_promised_no_later_than_before(
    config: MessageStoreConfig, kind: RecoveryKind
) -> None:
    opened = open_store(config)
    paths = opened.paths
    with StoreWriter(opened.config, opened.control) as writer:
        for number in range(60):
            put = writer.put("T", 0, b"x" * 500, store_timestamp_ms=STORED_MS + number)
    assert put.phy_offset > config.mapped_file_size_commit_log
    header = opened.control.header
    header.durable_phy_offset = header.units_durable_phy_offset = put.phy_offset
    kill(opened)
    another_boot(paths)
    if kind is RecoveryKind.FILES:
        paths.control.unlink()
    before = StoreCheckpoint(STORED_MS + 3, STORED_MS + 2, STORED_MS + 1)
    write_checkpoint(DiskFiles(), paths.checkpoint, before)
    opened = open_store(config)
    after, header = read_checkpoint(DiskFiles(), paths.checkpoint), opened.control.header
    assert opened.report.kind is kind and after.logics_msg_timestamp_ms <= before.logics_msg_timestamp_ms
    assert header.logics_timestamp_ms <= before.logics_msg_timestamp_ms
    assert header.index_timestamp_ms == before.index_msg_timestamp_ms
    if kind is RecoveryKind.FILES:
        assert after == before, "a scan begins with a file that is older"
    kill(opened)


@pytest.mark.parametrize("loses_file", [True, False])
def test_after_a_clean_stop_only_what_has_no_units_is_dispatched(config: MessageStoreConfig, loses_file: bool) -> None:
    """The last file of the log may be gone, as after a restore of a backup."""
    opened = open_store(config)
    puts = put_keyed(opened, *(f"key{number}" for number in range(60)))
    paths, size = opened.paths, config.mapped_file_size_commit_log
    close_store(opened, clean=True)
    paths.control.unlink()
    if loses_file:
        (paths.commitlog / file_name(puts[-1].phy_offset // size * size)).unlink()
    opened = open_store(config)
    report = opened.report
    assert report.kind is RecoveryKind.FILES
    assert report.log_end - size // 8 < report.dispatched_from <= report.dispatched_to == report.log_end
    again = put_keyed(opened, *(f"again{number}" for number in range(10)))
    assert [found(opened, f"again{number}") for number in range(10)] == [[put.image] for put in again]
    assert found(opened, "key59") == ([] if loses_file else [puts[59].image])
    kill(opened)
