"""The consume queues of a store, as far as they say where in the log records begin.

Units of a queue are in the order of the log: blanks come before all units, zeros behind them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rocketpy.store.files import StorePaths, is_file_name
from rocketpy.store.formats.unit import BLANK_SIZE, CQ_STORE_UNIT_SIZE, CQ_UNIT

HINT_QUEUES_MAX = 8  # of the largest consume queues, asked for each boundary

Queue = tuple[str, str]
"""Topic and queue id, as directories name them."""


def list_queues(root: Path) -> dict[Queue, list[Path]]:
    """The files of each consume queue, in order; none if there are no queues."""
    queues: dict[Queue, list[Path]] = {}
    with suppress(OSError):
        for topic in os.scandir(StorePaths.of(root).consumequeue):
            for queue in os.scandir(topic):
                names = sorted(name for name in os.listdir(queue.path) if is_file_name(name))
                queues[topic.name, queue.name] = [Path(queue.path) / name for name in names]
    return queues


def largest_queues(root: Path) -> list[list[Path]]:
    """Files of the queues with the most units, each queue's in order."""
    sizes = []
    for files in list_queues(root).values():
        with suppress(OSError):
            sizes.append((sum(path.stat().st_blocks for path in files), files))
    sizes.sort(key=lambda queue: -queue[0])
    return [files for _, files in sizes[:HINT_QUEUES_MAX]]


def first_place_from(files: list[Path], place: int) -> int | None:
    """The phy offset of the first unit at or after `place`, by binary search in the file that has it."""
    for path in files:
        with suppress(OSError), path.open("rb") as file:
            count = os.fstat(file.fileno()).st_size // CQ_STORE_UNIT_SIZE

            def unit(index: int, pread: Callable[..., bytes] = os.pread, fd: int = file.fileno()) -> tuple[int, int]:
                phy_offset, size, _ = CQ_UNIT.unpack(pread(fd, CQ_STORE_UNIT_SIZE, index * CQ_STORE_UNIT_SIZE))
                return phy_offset, size

            low, high = 0, count
            while low < high:  # blanks come before all units, zeros behind them
                middle = (low + high) // 2
                phy_offset, size = unit(middle)
                if size == BLANK_SIZE or (size > 0 and phy_offset < place):
                    low = middle + 1
                else:
                    high = middle
            if low < count and 0 < unit(low)[1] < BLANK_SIZE:
                return unit(low)[0]
    return None
