"""What recovery takes from the checkpoint and puts into it: which units and keys are on the disk."""

from __future__ import annotations

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.store.files import DiskFiles
from rocketpy.store.formats.checkpoint import StoreCheckpoint, read_checkpoint, write_checkpoint
from rocketpy.store.recovery.lifecycle import close_store, open_store
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


@pytest.mark.parametrize("kind", [RecoveryKind.TRUSTED, RecoveryKind.FILES])
def test_where_no_units_are_made_again_the_checkpoint_keeps_its_promises(
    config: MessageStoreConfig, kind: RecoveryKind
) -> None:
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
    assert opened.control.header.physic_timestamp_ms == STORED_MS + 9, "the next one that is saved says no less"
    kill(opened)


@pytest.mark.parametrize("is_safe", [True, False])
def test_with_a_safe_index_a_scan_begins_where_the_index_was_flushed(config: MessageStoreConfig, is_safe: bool) -> None:
    config = attrs.evolve(config, message_index_safe=is_safe)
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
    assert (opened.report.scanned_records == 60) is is_safe
    kill(opened)
