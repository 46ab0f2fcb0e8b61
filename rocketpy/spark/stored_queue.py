"""A queue's messages from the files of its broker's store, where executors see them (option storePath).

Units of the consume queue name the records; those are cut out of the log and joined to images like answers of pulls.
An image ends before the first message that the files do not have: a unit that is not written or not yet on the mount,
a file that was deleted, a record that is not the one of its unit. From there on the caller pulls from the broker.
"""

from __future__ import annotations

import bisect
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import attrs

from rocketpy.errors import StoreError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.store.files import StorePaths, is_file_name, translated
from rocketpy.store.formats.unit import BLANK_SIZE, CQ_STORE_UNIT_SIZE, CQ_UNIT

from .segments import Segment, mapped

UNITS_AT_ONCE = 4096
HEAD = struct.Struct(">i8xi4xqq")  # of a record: size, queue id, queue offset, phy offset


@attrs.frozen
class NumberedFiles:
    """Files that are named by the place of their first byte, as they were when they were listed."""

    directory: Path
    names: list[str]
    starts: list[int]

    @classmethod
    def of(cls, directory: Path) -> Self:
        """Return the files of a directory; none if it does not exist. Raises StoreError."""
        names: list[str] = []
        if directory.is_dir():
            with translated(directory, "list"):
                names = sorted(name for name in os.listdir(directory) if is_file_name(name))
        return cls(directory, names, [int(name) for name in names])

    def file_of(self, place: int) -> tuple[Path, int] | None:
        """The file that may hold this place, and the place of its first byte."""
        index = bisect.bisect_right(self.starts, place) - 1
        return None if index < 0 else (self.directory / self.names[index], self.starts[index])


@attrs.define(eq=False)
class LogFiles:
    """Records of a log; one file at a time is mapped."""

    files: NumberedFiles
    _stack: ExitStack = attrs.field(factory=ExitStack)
    _image: mmap.mmap | bytes = b""
    _start: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def record(self, phy_offset: int, size: int, queue_id: int, queue_offset: int) -> bytes | None:
        """The record at this place; None if it is not there, or not the one of this size, queue and offset."""
        at = phy_offset - self._start
        if not 0 <= at <= len(self._image) - size:
            if not self._map(phy_offset):
                return None
            at = phy_offset - self._start
        if at + size > len(self._image) or size < HEAD.size:
            return None
        if HEAD.unpack_from(self._image, at) != (size, queue_id, queue_offset, phy_offset):
            return None
        return self._image[at : at + size]

    def _map(self, phy_offset: int) -> bool:
        found = self.files.file_of(phy_offset)
        self._stack.close()
        self._image, self._start = b"", 0
        if found is None or not found[0].is_file():
            return False
        path, self._start = found
        self._image = self._stack.enter_context(mapped(Segment(path, self._start, 0, is_last=False)))
        return True


@attrs.define(eq=False)
class StoredQueue:
    """One queue in a store directory.

    Raises:
        StoreError: `root` is no store.
    """

    root: Path
    queue: MessageQueue
    _units: NumberedFiles = attrs.field(init=False)
    _log: NumberedFiles = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        paths = StorePaths.of(self.root)
        if not paths.commitlog.is_dir():
            raise StoreError(
                f"{self.root} is no store: it has no directory commitlog. Option storePath names the root of the store "
                f"of {self.queue.broker_name} as every executor sees it"
            )
        self._units = NumberedFiles.of(paths.consumequeue / self.queue.topic / str(self.queue.queue_id))
        self._log = NumberedFiles.of(paths.commitlog)

    def images(self, begin: int, end: int, size_max: int) -> Iterator[bytes]:
        """Records of the messages from offset `begin` on, joined to images of about `size_max` bytes."""
        pieces: list[bytes] = []
        size = 0
        with LogFiles(self._log) as log:
            for queue_offset, (phy_offset, record_size) in enumerate(self._units_of(begin, end), begin):
                record = log.record(phy_offset, record_size, self.queue.queue_id, queue_offset)
                if record is None:
                    break
                pieces.append(record)
                size += record_size
                if size >= size_max:
                    yield b"".join(pieces)
                    pieces, size = [], 0
        if pieces:
            yield b"".join(pieces)

    def _units_of(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """(phy offset, size) of each unit, until one is not there."""
        at, stop = begin * CQ_STORE_UNIT_SIZE, end * CQ_STORE_UNIT_SIZE
        while at < stop:
            data = self._read_units(at, min(UNITS_AT_ONCE * CQ_STORE_UNIT_SIZE, stop - at))
            if not data:
                return
            for phy_offset, size, _ in CQ_UNIT.iter_unpack(data):
                if not 0 < size < BLANK_SIZE:
                    return
                yield phy_offset, size
            at += len(data)

    def _read_units(self, at: int, size: int) -> bytes:
        """Whole units of one file; nothing if it does not have the first of them."""
        found = self._units.file_of(at)
        if found is None or not found[0].is_file():
            return b""
        path, start = found
        with translated(path, "read"), path.open("rb") as file:
            data = os.pread(file.fileno(), size, at - start)
        return data[: len(data) - len(data) % CQ_STORE_UNIT_SIZE]
