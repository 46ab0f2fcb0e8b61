"""The end of a store's log for a reader that must never see a record that is still being written.

A broker dispatches a record to its consume queue when it is complete. So the log ends after the last record that any
consume queue names. A store without consume queues is at rest: its log ends after the last valid record.
"""

from __future__ import annotations

from pathlib import Path

from rocketpy.native import Status

from .consume_queues import each_queue, end_of_queue
from .segments import Segment, mapped, walker


def end_of_log(root: Path, segments: list[Segment]) -> int:
    """The phy offset after the last complete record; 0 for a log without files."""
    if not segments:
        return 0
    end = end_by_queues(root)
    return end_by_walk(segments[-1]) if end is None else max(segments[0].start, end)


def end_by_queues(root: Path) -> int | None:
    """The phy offset after the last record that any consume queue names; None for a store without consume queues."""
    return max((end_of_queue(files) for _, files in each_queue(root)), default=None)


def end_by_walk(segment: Segment) -> int:
    """The phy offset up to which all records of a segment are valid; its end if all are."""
    with mapped(segment) as image:
        if not image:
            return segment.start
        decoder = walker()
        with decoder.rows.image(image) as view:
            found = decoder.rows.find(view, segment.start, 0, segment.size)
    return segment.end if found.status is Status.END_OF_FILE else segment.start + found.position
