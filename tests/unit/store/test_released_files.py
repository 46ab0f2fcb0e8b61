"""An open file keeps its disk space: files of removed queues are closed by everybody who has read or written them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.native.core import ffi, lib
from rocketpy.store.formats.unit import rounded_file_size
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.lifecycle import OpenedStore
from tests.support.store_writer import StoreWriter

TOPICS = 40


def open_removed_files(root: Path) -> list[str]:
    """Files below `root` that this process has open and that have no name any more."""
    targets = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue
    return [target for target in targets if target.startswith(str(root)) and target.endswith(" (deleted)")]


@pytest.fixture
def config(config: MessageStoreConfig) -> MessageStoreConfig:
    return attrs.evolve(config, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1_024)


def test_files_of_removed_queues_are_closed(
    config: MessageStoreConfig, opened: OpenedStore, writer: StoreWriter, store: MessageStore
) -> None:
    """Fault: Removed consume queue files stayed open in three workers, and their disk space stayed taken."""
    control, root = opened.control, opened.paths.root
    for number in range(TOPICS):
        for _ in range(60):  # two files
            writer.put(f"T{number}", 0)
        assert len(store.consume_queue_units(f"T{number}", 0, 0, 60)) == 60  # as the manager reads
    size = rounded_file_size(config.mapped_file_size_consume_queue)
    reader = lib.rp_cq_reader_open(control.block, os.fsencode(opened.paths.consumequeue), size, 4096)  # as pull reads
    units = ffi.new("uint8_t[]", 20)
    for entry in control.entries():
        assert lib.rp_cq_read(reader, entry, 0, 1, units) == 1
    for entry in control.entries():
        writer.dispatch.expire_queue(entry)
    releases: list[Callable[[], object]] = [
        lambda: lib.rp_cq_release(reader),
        store.trim,
        writer.dispatch.release_files,
    ]
    before = len(open_removed_files(root))
    assert before >= 4 * TOPICS
    for release in releases:
        release()
        now = len(open_removed_files(root))
        assert now <= before - TOPICS, f"{release}: {now} of {before} are still open"
        before = now
    assert before == 0
    put = writer.put("T7", 0)  # and everybody goes on
    assert store.get_message("T7", 0, put.queue_offset, 1).records == [put.image]
    lib.rp_cq_close(reader)


def test_a_file_that_was_opened_while_it_was_removed_is_not_read_for_the_next_of_its_name(
    config: MessageStoreConfig, opened: OpenedStore, writer: StoreWriter
) -> None:
    """The pull worker opens a queue's file between the new generation and the removal; the file of the same name that
    comes next holds other units. From the old one consumers would have passed over them.
    Fault: A pull that opened a queue file during its removal skipped messages of the recreated topic."""
    control = opened.control
    writer.put()
    entry = control.queue("TopicTest", 0)
    size = rounded_file_size(config.mapped_file_size_consume_queue)
    reader = lib.rp_cq_reader_open(control.block, os.fsencode(opened.paths.consumequeue), size, 16)
    units = ffi.new("uint8_t[]", 20)
    entry.generation += 1
    assert lib.rp_cq_read(reader, entry, 0, 1, units) == 1
    entry.generation -= 1
    writer.dispatch.expire_queue(entry)
    put = writer.put()
    assert lib.rp_cq_read(reader, entry, put.queue_offset, 1, units) == 1
    assert int.from_bytes(bytes(units)[:8], "big") == put.phy_offset
    lib.rp_cq_close(reader)
