"""Deletions of topics, which outlive a control block whose positions are discarded (docs/adr/0121)."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from rocketpy.native.core import lib

from ..control_block import ControlBlock


@attrs.frozen
class DeletedQueue:
    """A queue with units that went with their topic. It may have newer ones: the topic was created again."""

    topic: bytes
    queue_id: int
    state: int
    deleted_below: int
    max_offset: int  # 0: it has newer units
    max_phy_offset: int


def read_deleted(control: ControlBlock) -> list[DeletedQueue]:
    """The deletions that a block knows."""
    return [
        DeletedQueue(
            control.topic_of(entry),
            entry.queue_id,
            entry.state,
            entry.deleted_below,
            entry.max_offset if lib.rp_control_is_deleted(entry) else 0,
            entry.max_phy_offset,
        )
        for entry in control.entries()
        if entry.deleted_below and control.topic_of(entry)
    ]


def restore_deleted(control: ControlBlock, deleted: Iterable[DeletedQueue], log_end: int) -> None:
    """Enter the deletions into a block that was loaded from the files. A queue without units goes on at its offsets,
    and dispatch passes over its records.

    Args:
        log_end: of the log; nothing that is stored later is deleted.
    """
    for queue in deleted:
        entry = control.add_queue(queue.topic, queue.queue_id)
        entry.deleted_below = min(queue.deleted_below, log_end)
        if queue.max_offset and not entry.max_offset:
            entry.state = queue.state
            entry.min_offset = entry.max_offset = entry.next_offset = queue.max_offset
            entry.max_phy_offset = min(queue.max_phy_offset, log_end)
