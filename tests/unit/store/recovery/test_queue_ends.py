"""Where queues begin and end after recovery; files that do not belong are named."""

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
from rocketpy.native.core import lib
from rocketpy.store.files import file_name
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import close_store, open_store, save_checkpoint
from rocketpy.store.services.queue_trim import QueueTrim
from tests.support.reopened_store import another_boot, fill, kill, reopen
from tests.support.store_writer import StoreWriter


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
    """Damage in the log leaves pre-blank units in the middle of a queue (docs/adr/0050).
    Fault: Blank units in the middle of a queue hid all earlier messages after a restart or after cleaning."""
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


@pytest.mark.parametrize("has_block", [True, False])
def test_a_queue_that_was_being_removed_has_a_gap(config: MessageStoreConfig, has_block: bool) -> None:
    """A power failure keeps any of its files' names.
    Fault: A queue with some files removed by a power failure kept the broker from starting."""
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
