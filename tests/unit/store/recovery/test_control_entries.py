"""Entries of deleted queues leave the control block when neither the log nor a file has anything of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy.config import MessageStoreConfig
from rocketpy.errors import StoreError
from rocketpy.native.core import ffi
from rocketpy.store.control_block import QUEUE_DELETED, QUEUE_LIVE, ControlBlock
from rocketpy.store.files import DiskFiles, StorePaths
from rocketpy.store.recovery import control_entries
from rocketpy.store.recovery.control_entries import give_back
from rocketpy.store.recovery.lifecycle import close_store, open_store

FILE_SIZE = 16_384
LOG_BEGIN, LOG_END = 32_768, 40_000


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_entries, "QUEUES_CROWDED", 7)
    monkeypatch.setattr(control_entries, "TOPICS_CROWDED", 7)


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    found = StorePaths.of(tmp_path / "store")
    found.consumequeue.mkdir(parents=True)
    return found


@pytest.fixture
def control(paths: StorePaths) -> Iterator[ControlBlock]:
    """Of a store that was stopped cleanly, with four live queues of topic Kept."""
    block = ControlBlock(paths.control, FILE_SIZE)
    header = block.header
    header.clean, header.min_phy_offset = 1, LOG_BEGIN
    header.published_phy_offset = header.dispatched_phy_offset = LOG_END
    for queue_id in range(4):
        add(block, "Kept", queue_id, max_offset=10 + queue_id, end=LOG_END, state=QUEUE_LIVE)
    yield block
    block.close()


def add(
    block: ControlBlock, topic: str, queue_id: int, *, max_offset: int = 0, end: int = 0, state: int = QUEUE_DELETED
) -> Any:
    entry = block.add_queue(topic.encode(), queue_id)
    entry.next_offset = entry.max_offset = max_offset
    entry.min_offset = 0 if state == QUEUE_LIVE else max_offset
    entry.max_phy_offset, entry.state, entry.deleted_below, entry.generation = end, state, end, 2
    return entry


def give(paths: StorePaths) -> int:
    return give_back(paths, DiskFiles(), FILE_SIZE)


def reopened(paths: StorePaths) -> dict[str, list[int]]:
    """The topics of the block on the disk, with the numbers of their queues."""
    block = ControlBlock(paths.control, FILE_SIZE)
    found: dict[str, list[int]] = {}
    for entry in block.entries():
        found.setdefault(block.topic_of(entry).decode(), []).append(entry.queue_id)
    block.close()
    return found


def test_they_go_and_all_else_stays(paths: StorePaths, control: ControlBlock) -> None:
    """Fault: Topics that were ever deleted filled the block for good, and none could be created."""
    for queue_id in range(4):
        add(control, "Unused", queue_id)
        add(control, "Expired", queue_id, max_offset=5, end=LOG_BEGIN)
    control.header.last_store_timestamp_ms = 1_234
    before = {entry.queue_id: bytes(ffi.buffer(entry)) for entry in control.entries_of("Kept")}
    control.close()
    assert give(paths) == 8
    block = ControlBlock(paths.control, FILE_SIZE)
    header = block.header
    assert (header.queue_count, header.topic_count, header.clean) == (4, 1, 1)
    assert (header.last_store_timestamp_ms, header.min_phy_offset) == (1_234, LOG_BEGIN)
    assert {entry.queue_id: bytes(ffi.buffer(entry)) for entry in block.entries_of("Kept")} == before
    found = block.queue("Kept", 3)
    assert found is not None and found.max_offset == 13 and block.queue("Unused", 0) is None
    assert block.add_queue(b"Unused", 0).max_offset == 0
    block.close()
    assert give(paths) == 0
    assert sorted(os.listdir(paths.root)) == ["consumequeue", "control"]


@pytest.mark.parametrize(
    "reason",
    [
        *("messages", "units", "files", "extensions", "offsets", "offsets of Java", "not deleted", "few", "unclean"),
        *("not dispatched", "roomy", "records to come"),
    ],
)
def test_a_block_that_stays_as_it_is(
    paths: StorePaths, control: ControlBlock, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """Neither may a message of a deleted topic come back, nor an offset be given twice, nor a group miss messages."""
    end = LOG_BEGIN + 1 if reason == "messages" else LOG_BEGIN
    for queue_id in range(4):
        entry = add(control, "Gone", queue_id, max_offset=5, end=end)
        entry.min_offset -= reason == "units"
        if reason == "records to come":
            entry.deleted_below = LOG_END + 1
        entry.state = QUEUE_LIVE if reason == "not deleted" else QUEUE_DELETED
    for queue_id in range(4, 13 if reason == "few" else 4):
        add(control, "Kept", queue_id, max_offset=5, end=LOG_END, state=QUEUE_LIVE)
    if reason in ("files", "extensions"):
        ((paths.consumequeue if reason == "files" else paths.consumequeue_ext) / "Gone").mkdir(parents=True)
    if reason.startswith("offsets"):
        (paths.root / "config").mkdir()
        queues = '{"0": 5}' if reason == "offsets" else "{0:5}"
        (paths.root / "config" / "consumerOffset.json").write_text(f'{{"offsetTable": {{"Gone@g": {queues}}}}}')
    control.header.clean = reason != "unclean"
    control.header.dispatched_phy_offset -= reason == "not dispatched"
    if reason == "roomy":
        monkeypatch.setattr(control_entries, "QUEUES_CROWDED", 8)
    control.close()
    assert give(paths) == 0
    assert reopened(paths)["Gone"] == [0, 1, 2, 3]


def test_many_topics_of_one_queue(paths: StorePaths, control: ControlBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_entries, "QUEUES_CROWDED", 100)
    for number in range(8):
        add(control, f"T{number}", 0)
    control.close()
    assert give(paths) == 8
    assert reopened(paths) == {"Kept": [0, 1, 2, 3]}


def test_a_full_disk_keeps_the_old_block(
    paths: StorePaths, control: ControlBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue_id in range(8):
        add(control, "Gone", queue_id)
    control.close()

    def no_room(*_: object) -> None:
        raise StoreError(os.strerror(errno.ENOSPC))

    monkeypatch.setattr(control_entries, "_copy", no_room)
    assert give(paths) == 0
    assert reopened(paths)["Gone"] == list(range(8))


def test_files_that_are_no_control_block(paths: StorePaths) -> None:
    assert give(paths) == 0
    paths.control.write_bytes(b"short")
    assert give(paths) == 0
    paths.control.write_bytes(b"x" * 8192)
    assert give(paths) == 0


def test_a_start_gives_them_back(paths: StorePaths) -> None:
    config = MessageStoreConfig(store_path_root_dir=str(paths.root), store_path_commit_log=str(paths.commitlog))
    opened = open_store(config)
    for queue_id in range(8):
        add(opened.control, "Gone", queue_id)
    opened.control.add_queue(b"Kept", 0)
    close_store(opened, clean=False)
    opened = open_store(config)  # after an unclean stop
    assert opened.control.header.queue_count == 9
    close_store(opened, clean=True)
    opened = open_store(config)
    assert [opened.control.topic_of(entry) for entry in opened.control.entries()] == [b"Kept"]
    assert opened.control.add_queue(b"Gone", 0).state == QUEUE_LIVE
    close_store(opened, clean=True)
