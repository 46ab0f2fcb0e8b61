"""Cleaning whole queues at the manager's request: those of a deleted topic (CLEAN_TOPIC), and those whose records have
all left the log (CLEAN_EXPIRED, code 306).

Both belong to the thread that dispatches, so that no unit is written meanwhile, and are done in steps, so that
dispatch goes on between them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

from rocketpy.errors import StoreError

from .control_block import QUEUE_DELETED, QUEUE_LIVE, ControlBlock
from .dispatch import Dispatch

logger = logging.getLogger(__name__)

QUEUES_PER_STEP = 1024
SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"  # what is due may be due long after its record's neighbours have gone


def clean_topic(control: ControlBlock, dispatch: Dispatch, lock: threading.Lock, topic: str) -> Iterator[None]:
    """Drop all queues of a topic; they start at 0 if it comes back."""
    with lock:
        for entry in control.entries_of(topic):
            entry.state = QUEUE_DELETED
            dispatch.drop_queue(entry)
            entry.next_offset = 0
    yield


def expire_queues(control: ControlBlock, dispatch: Dispatch, lock: threading.Lock) -> Iterator[None]:
    """Remove the files of queues of which the log has nothing left; never-written ones and delay levels stay.

    The reference forgets their offsets, too, and starts them at 0: consumers then read what they have read, or not
    what they should, and a send under way may meet both. Here they go on (docs/compatibility.md).
    """
    for count, entry in enumerate(control.entries(), start=1):
        is_past = entry.state == QUEUE_LIVE and 0 < entry.max_phy_offset <= control.min_phy_offset
        if is_past and control.topic_of(entry) != SCHEDULE_TOPIC:
            with lock:
                _expire(control, dispatch, entry)
        if count % QUEUES_PER_STEP == 0:
            yield
    yield


def _expire(control: ControlBlock, dispatch: Dispatch, entry: Any) -> None:
    try:
        dispatch.expire_queue(entry)
    except StoreError as exc:
        logger.error("queue %d of %s: %s", entry.queue_id, control.topic_of(entry).decode("utf-8", "replace"), exc)
