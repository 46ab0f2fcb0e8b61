"""Where the log of a store ends for a reader that must never see a record that is still being written.

A broker dispatches a record to its consume queue when it is complete. So the end is that of the last record that any
consume queue names. A store without consume queues is at rest: there it is the end of the last valid record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rocketpy.native.status import Status
from rocketpy.store.files import StorePaths, is_file_name
from rocketpy.store.formats.unit import BLANK_SIZE, CQ_STORE_UNIT_SIZE, CQ_UNIT

from .segments import Segment, mapped, walker


def end_of_log(root: Path, segments: list[Segment]) -> int:
    """The phy offset behind the last complete record; 0 for a log without files."""
    if not segments:
        return 0
    end = end_by_queues(root)
    return end_by_walk(segments[-1]) if end is None else max(segments[0].start, end)


def end_by_queues(root: Path) -> int | None:
    """The phy offset behind the last record that any consume queue names; None for a store without consume queues."""
    return max((_end_of_queue(queue) for queue in _queues(StorePaths.of(root).consumequeue)), default=None)


def end_by_walk(segment: Segment) -> int:
    """The phy offset behind the last record of a segment before which all are valid; its end if all are."""
    with mapped(segment) as image:
        if not image:
            return segment.start
        decoder = walker()
        with decoder.rows.image(image) as view:
            found = decoder.rows.find(view, segment.start, 0, segment.size)
    return segment.end if found.status is Status.END_OF_FILE else segment.start + found.position


def _queues(root: Path) -> Iterator[Path]:
    with suppress(OSError):
        for topic in os.scandir(root):
            with suppress(OSError):
                yield from (Path(queue.path) for queue in os.scandir(topic))


def _end_of_queue(queue: Path) -> int:
    """Behind the record of the last unit; 0 if there is none."""
    with suppress(OSError):
        for name in sorted(filter(is_file_name, os.listdir(queue)), reverse=True):
            if end := _end_of_file(queue / name):
                return end
    return 0


def _end_of_file(path: Path) -> int:
    """As `_end_of_queue`, of one file: blanks come before all units, zeros behind them."""
    with path.open("rb") as file:
        fd, low, high = file.fileno(), 0, os.fstat(file.fileno()).st_size // CQ_STORE_UNIT_SIZE
        last = 0
        while low < high:
            middle = (low + high) // 2
            phy_offset, size, _ = CQ_UNIT.unpack(os.pread(fd, CQ_STORE_UNIT_SIZE, middle * CQ_STORE_UNIT_SIZE))
            if size > 0:
                low, last = middle + 1, phy_offset + size if size != BLANK_SIZE else 0
            else:
                high = middle
    return last
