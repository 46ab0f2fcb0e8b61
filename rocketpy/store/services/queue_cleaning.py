"""Removes queues at the manager's request: units of a deleted topic (CLEAN_TOPIC), and the files of queues whose
records were all deleted from the log (CLEAN_EXPIRED, code 306).

Both run in the thread of dispatch, so that no unit is written meanwhile, and in steps, so that dispatch continues
between them. Offsets of a queue continue after a removal (docs/adr/0030): no offset is ever used twice, so the log can
be dispatched again from any point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rocketpy.errors import StoreError

from ..control_block import ControlBlock
from ..dispatch import Dispatch
from .queue_trim import QueueTrim
from .threads import StoreThreads

QUEUES_PER_STEP = 1024
SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"  # a message may become due long after the rest of its log file has expired


class QueueCleaning:
    """The lock of `threads` is held while a queue is changed: the cleaner's thread has its own `QueueTrim`."""

    def __init__(self, control: ControlBlock, dispatch: Dispatch, trim: QueueTrim, threads: StoreThreads) -> None:
        self._control = control
        self._dispatch = dispatch
        self._trim = trim
        self._lock = threads.queue_lock
        self._faults = threads.faults
        self.has_removed = False  # since the caller cleared it
        self._unfinished: dict[int, Any] = {}  # by index: queues with files that could not be removed

    def delete_topic(self, topic: str) -> Iterator[None]:
        """Remove the units of the topic's records below `deleted_below` that are dispatched so far."""
        yield from self._delete(self._control.entries_of(topic))

    def finish_deletions(self) -> Iterator[None]:
        """Complete deletions that the previous store worker did not finish, of all topics."""
        yield from self._delete(self._control.entries())

    def expire(self) -> Iterator[None]:
        """Remove the files of queues whose records were all deleted from the log; unused queues and delay levels stay.

        The reference also resets their offsets to 0: then consumers read messages again or miss some, and concurrent
        sends may get old and new offsets. Here offsets continue (docs/understand/compatibility/administration.md).
        """
        for count, entry in enumerate(self._control.entries(), start=1):
            is_past = 0 < entry.max_phy_offset <= self._control.min_phy_offset
            if is_past and self._control.topic_of(entry) != SCHEDULE_TOPIC:
                self._try(entry, self._dispatch.expire_queue)
            if count % QUEUES_PER_STEP == 0:
                yield

    def release_files(self) -> None:
        """Close files that were removed."""
        self._trim.release_files()

    def retry(self) -> None:
        """Try again to remove files that could not be removed; called from time to time."""
        entries, self._unfinished = self._unfinished, {}
        for entry in entries.values():
            self._try(entry, self._remove_rest)

    def _delete(self, entries: Iterator[Any]) -> Iterator[None]:
        for count, entry in enumerate(entries, start=1):
            if entry.deleted_below and entry.max_offset > entry.min_offset:
                self._try(entry, self._delete_units)
            if count % QUEUES_PER_STEP == 0:
                yield

    def _delete_units(self, entry: Any) -> None:
        if entry.max_phy_offset <= entry.deleted_below:
            self._dispatch.expire_queue(entry)
        else:  # the topic was created again and has messages
            self._trim.trim(entry, entry.deleted_below)

    def _remove_rest(self, entry: Any) -> None:
        if entry.min_offset == entry.max_offset:
            self._dispatch.expire_queue(entry)
        else:
            self._trim.remove_front(entry)

    def _try(self, entry: Any, remove: Callable[[Any], object]) -> None:
        self.has_removed = True
        try:
            with self._lock:
                remove(entry)
        except (StoreError, OSError) as exc:
            self._unfinished[self._control.index_of(entry)] = entry
            self._faults.report("cannot remove files of a consume queue", exc)
