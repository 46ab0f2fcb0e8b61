"""The consume queues of a store, as far as they say where in the log records begin and end.

Units of a queue are in the order of the log: blanks come before all units, zeros after them. Files and directories
that a broker deletes meanwhile are passed over. Any other failure is a StoreError: a queue that cannot be read would
else be taken for one without messages.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

from rocketpy.store.files import StorePaths, is_file_name, translated
from rocketpy.store.formats.unit import BLANK_SIZE, CQ_STORE_UNIT_SIZE, CQ_UNIT, ConsumeQueueUnit

HINT_QUEUES_MAX = 8  # of the largest consume queues, asked for each boundary

Queue = tuple[str, str]
"""Topic and queue id, as directories name them."""


def each_queue(root: Path) -> Iterator[tuple[Queue, list[Path]]]:
    """The files of each consume queue, in order; none if there are no queues."""
    directory = StorePaths.of(root).consumequeue
    with _passed_over_if_gone(directory):
        for topic in os.scandir(directory):
            with _passed_over_if_gone(Path(topic.path)):
                for queue in os.scandir(topic):
                    with _passed_over_if_gone(Path(queue.path)):
                        names = sorted(name for name in os.listdir(queue.path) if is_file_name(name))
                        yield (topic.name, queue.name), [Path(queue.path) / name for name in names]


def largest_queues(root: Path) -> list[list[Path]]:
    """Files of the queues with the most units, each queue's in order."""
    sizes = []
    for _, files in each_queue(root):
        with suppress(FileNotFoundError):
            sizes.append((sum(path.stat().st_blocks for path in files), files))
    sizes.sort(key=lambda queue: -queue[0])
    return [files for _, files in sizes[:HINT_QUEUES_MAX]]


def first_place_from(files: list[Path], place: int) -> int | None:
    """The phy offset of a queue's first unit at or after `place`; None if there is none."""
    for path in files:
        with _passed_over_if_gone(path), _units(path) as units:
            at = units.count_before(lambda unit: unit.size == BLANK_SIZE or (unit.size > 0 and unit.phy_offset < place))
            if at < len(units) and 0 < units[at].size < BLANK_SIZE:
                return units[at].phy_offset
    return None


def end_of_queue(files: list[Path]) -> int:
    """The phy offset after the record of a queue's last unit; 0 if there is none."""
    for path in reversed(files):
        with _passed_over_if_gone(path), _units(path) as units:
            count = units.count_before(lambda unit: unit.size > 0)
            if count and (last := units[count - 1]).size != BLANK_SIZE:
                return last.phy_offset + last.size
    return 0


@attrs.frozen
class _Units:
    """The units of an open queue file. Each is read when it is asked for: a search asks for few."""

    descriptor: int
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> ConsumeQueueUnit:
        data = os.pread(self.descriptor, CQ_STORE_UNIT_SIZE, index * CQ_STORE_UNIT_SIZE)
        return ConsumeQueueUnit(*CQ_UNIT.unpack(data))

    def count_before(self, is_before: Callable[[ConsumeQueueUnit], bool]) -> int:
        """Return the number of leading units for which `is_before` holds; it holds for no unit after them."""
        return bisect_left(self, True, key=lambda unit: not is_before(unit))


@contextmanager
def _passed_over_if_gone(path: Path) -> Iterator[None]:
    with translated(path, "read"), suppress(FileNotFoundError, NotADirectoryError):
        yield


@contextmanager
def _units(path: Path) -> Iterator[_Units]:
    with path.open("rb") as file:
        yield _Units(file.fileno(), os.fstat(file.fileno()).st_size // CQ_STORE_UNIT_SIZE)
