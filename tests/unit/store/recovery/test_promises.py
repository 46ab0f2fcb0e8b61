"""What recovery takes from the checkpoint and puts into it: which units and keys are on the disk."""

from __future__ import annotations

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.store.files import DiskFiles, file_name
from rocketpy.store.formats.checkpoint import StoreCheckpoint, read_checkpoint, write_checkpoint
from rocketpy.store.formats.unit import CQ_UNIT
from rocketpy.store.recovery.lifecycle import close_store, open_store, save_checkpoint
from rocketpy.store.recovery.log_files import FILES_SCANNED
from rocketpy.store.recovery.positions import RecoveryKind
from tests.support.reopened_store import another_boot, kill
from tests.support.store_writer import StoreWriter

STORED_MS = 1_700_000_000_000


def test_units_that_are_made_again_are_not_promised_by_the_checkpoint_on_the_disk(config: MessageStoreConfig) -> None:
    """If this start is cut short and its control block is lost, the next one has nothing but the checkpoint."""
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        puts = [writer.put("T", 0, b"x" * 500, store_timestamp_ms=STORED_MS + number) for number in range(60)]
    header, size = opened.control.header, config.mapped_file_size_commit_log
    first = next(number for number, put in enumerate(puts) if put.phy_offset >= size)
    header.durable_phy_offset, header.units_durable_phy_offset = header.published_phy_offset, puts[first + 2].phy_offset
    kill(opened)
    another_boot(opened.paths)
    write_checkpoint(DiskFiles(), opened.paths.checkpoint, StoreCheckpoint(*[STORED_MS + 59] * 3))
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.FLUSHED
    checkpoint = read_checkpoint(DiskFiles(), opened.paths.checkpoint)
    assert (checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms) == (
        STORED_MS + 59,
        STORED_MS + first,
    )
    kill(opened)


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("kind", [RecoveryKind.TRUSTED, RecoveryKind.FILES])
def test_where_no_units_are_made_again_the_checkpoint_keeps_its_promises(
    config: MessageStoreConfig, kind: RecoveryKind, has_index: bool
) -> None:
    config = attrs.evolve(config, message_index_enable=has_index)
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        for number in range(10):
            writer.put("T", 0, store_timestamp_ms=STORED_MS + number)
    close_store(opened, clean=True)
    before = read_checkpoint(DiskFiles(), opened.paths.checkpoint)
    if kind is RecoveryKind.FILES:
        opened.paths.control.unlink()
    opened = open_store(config)
    assert opened.report.kind is kind and before.logics_msg_timestamp_ms == STORED_MS + 9
    assert read_checkpoint(DiskFiles(), opened.paths.checkpoint) == before
    save_checkpoint(opened.control, opened.paths, opened.files)
    assert read_checkpoint(DiskFiles(), opened.paths.checkpoint) == before, "the next one that is saved says no less"
    assert opened.report.damaged_bytes == 0
    if not has_index:
        assert opened.report.dispatched_from == opened.report.log_end
    kill(opened)


def test_after_a_clean_stop_units_that_are_missing_are_promised_no_longer(config: MessageStoreConfig) -> None:
    """Those of the last records alone are made: the queues are whole before them."""
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        puts = [writer.put("T", 0, store_timestamp_ms=STORED_MS + number) for number in range(10)]
    close_store(opened, clean=True)
    opened.paths.control.unlink()
    with (opened.paths.consumequeue / "T" / "0" / file_name(0)).open("r+b") as file:
        file.seek(9 * CQ_UNIT.size)
        file.write(bytes(CQ_UNIT.size))
    opened = open_store(attrs.evolve(config, message_index_enable=False))
    assert opened.report.kind is RecoveryKind.FILES and opened.report.queues_rebuilt == 0
    assert opened.report.dispatched_from == puts[9].phy_offset
    assert read_checkpoint(DiskFiles(), opened.paths.checkpoint).logics_msg_timestamp_ms == STORED_MS
    kill(opened)


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("is_safe", [True, False])
def test_with_a_safe_index_a_scan_begins_where_the_index_was_flushed(
    config: MessageStoreConfig, is_safe: bool, has_index: bool
) -> None:
    config = attrs.evolve(config, message_index_safe=is_safe, message_index_enable=has_index)
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        for number in range(60):
            put = writer.put("T", 0, b"x" * 500, store_timestamp_ms=STORED_MS + number * 1000)
    assert put.phy_offset > config.mapped_file_size_commit_log
    kill(opened)
    another_boot(opened.paths)
    opened.paths.control.unlink()
    checkpoint = StoreCheckpoint(STORED_MS + 59_000, STORED_MS + 59_000, STORED_MS)
    write_checkpoint(DiskFiles(), opened.paths.checkpoint, checkpoint)
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.FILES
    assert (opened.report.scanned_records == 60) is (is_safe and has_index)
    kill(opened)


@pytest.mark.parametrize(
    ("was_clean", "later_ms", "files"), [(False, 3_000, 1), (False, 2_999, 2), (True, 9_000, FILES_SCANNED)]
)
def test_a_scan_begins_in_the_newest_file_that_was_flushed_for_certain(
    config: MessageStoreConfig, was_clean: bool, later_ms: int, files: int
) -> None:
    """Its first record is 3 s older than the checkpoint. After a clean stop two files may be pre-allocated."""
    opened = open_store(config)
    with StoreWriter(opened.config, opened.control) as writer:
        puts = [writer.put("T", 0, b"x" * 900, store_timestamp_ms=STORED_MS + number * 1000) for number in range(90)]
    size, header = config.mapped_file_size_commit_log, opened.control.header
    last = puts[-1].phy_offset // size
    first_ms = STORED_MS + 1000 * next(number for number, put in enumerate(puts) if put.phy_offset >= last * size)
    end = int(header.published_phy_offset)
    close_store(opened, clean=was_clean)
    opened.paths.control.unlink()
    write_checkpoint(DiskFiles(), opened.paths.checkpoint, StoreCheckpoint(*[first_ms + later_ms] * 3))
    opened = open_store(config)
    assert opened.report.kind is RecoveryKind.FILES and last > FILES_SCANNED
    assert opened.report.scanned_bytes == end - (last + 1 - files) * size
    kill(opened)
