"""Deletions of topics that outlive a control block."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.store.control_block import QUEUE_DELETED, QUEUE_LIVE, ControlBlock
from rocketpy.store.recovery.queue_loading import DeletedQueue, read_deleted, restore_deleted

LOG_END = 5_000
GONE = DeletedQueue(b"Gone", 2, QUEUE_DELETED, 1_000, 30, 900)


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlBlock]:
    control = ControlBlock(tmp_path / "control", 16_384)
    yield control
    control.close()


def add(control: ControlBlock, queue: DeletedQueue) -> None:
    entry = control.add_queue(queue.topic, queue.queue_id)
    entry.max_offset, entry.max_phy_offset = queue.max_offset, queue.max_phy_offset
    entry.deleted_below, entry.state = queue.deleted_below, queue.state


def test_queues_with_deleted_units_are_read_and_no_others(control: ControlBlock) -> None:
    add(control, GONE)
    add(control, DeletedQueue(b"Created again", 0, QUEUE_LIVE, 1_000, 40, 1_200))
    add(control, DeletedQueue(b"Kept", 0, QUEUE_LIVE, 0, 40, 1_200))
    again = DeletedQueue(b"Created again", 0, QUEUE_LIVE, 1_000, 0, 1_200)
    assert read_deleted(control) == [GONE, again]


def test_a_queue_whose_name_a_damaged_block_has_lost_is_left_out(control: ControlBlock) -> None:
    add(control, GONE)
    (entry,) = control.entries()
    entry.topic = 9
    assert read_deleted(control) == []


def test_a_queue_without_units_goes_on_at_its_offsets(control: ControlBlock) -> None:
    restore_deleted(control, [GONE], LOG_END)
    (entry,) = control.entries()
    assert (entry.min_offset, entry.max_offset, entry.next_offset, entry.max_phy_offset) == (30, 30, 30, 900)
    assert entry.state == QUEUE_DELETED and read_deleted(control) == [GONE]


def test_a_queue_with_units_of_later_messages_keeps_them(control: ControlBlock) -> None:
    add(control, DeletedQueue(b"Gone", 2, QUEUE_LIVE, 0, 35, 1_500))
    restore_deleted(control, [GONE], LOG_END)
    (entry,) = control.entries()
    assert (entry.min_offset, entry.max_offset, entry.max_phy_offset) == (0, 35, 1_500)
    assert (entry.state, entry.deleted_below) == (QUEUE_LIVE, 1_000)


def test_a_queue_that_had_newer_messages_has_none_of_them_yet(control: ControlBlock) -> None:
    """The block says so, and no file does: dispatch builds the units of the newer messages."""
    restore_deleted(control, [DeletedQueue(b"Created again", 0, QUEUE_LIVE, 1_000, 0, 1_200)], LOG_END)
    (entry,) = control.entries()
    assert (entry.max_offset, entry.max_phy_offset, entry.deleted_below, entry.state) == (0, 0, 1_000, QUEUE_LIVE)


def test_nothing_that_is_stored_later_is_deleted(control: ControlBlock) -> None:
    """The log has lost its end, and other messages come in its place."""
    restore_deleted(control, [GONE], 800)
    (entry,) = control.entries()
    assert (entry.deleted_below, entry.max_phy_offset, entry.max_offset) == (800, 800, 30)
