"""The log position below which the table of topics knows the topics of all messages (docs/adr/0126).

    slave    the end of its log before it asked its master for the table
    master   the end of its log: a topic is in the table before the first message for it is stored

`topics.json` holds it as its last member, so that a deletion and the position reach the disk together. It moves on in
`topics.position`, which costs a page and not a table, as long as all changes of the table are in `topics.json`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from rocketpy.logs import LogLimit, and_more
from rocketpy.remoting.bodies.offset import PHY_OFFSET

from ..files.position_file import PositionFile, TableImage
from .config_file import ConfigFile

logger = logging.getLogger(__name__)

SYNC_BYTES, SYNC_S = 64 << 20, 5.0
"""After a power failure a master reads at most this much of its log again, or the log of this time."""
TAIL_BYTES = 128
_LAST_MEMBER = re.compile(rb'"%s":(\d{1,19})\s*}\s*\Z' % PHY_OFFSET.encode())


def position_path(table: Path) -> Path:
    """The position file beside a table: topics.position."""
    return table.with_suffix(".position")


class TopicsPosition:
    """The position of one manager's table. `file`: the table's."""

    def __init__(self, file: ConfigFile) -> None:
        self._file = file
        file.on_written = self._table_written
        self._slots = PositionFile(position_path(file.path))
        self._table = TableImage()  # what topics.json holds
        self._below = -1
        self._written = (TableImage(), -1)
        self._synced_below, self._synced_s = -1, 0.0
        self._lock = trio.Lock()
        self._limit = LogLimit()
        self.log_end: Callable[[], int] | None = None
        """The end of the log, on a master whose table has been compared with it; None: `know` sets the position."""

    def load(self, image: bytes | None, below: int | None) -> None:
        """Begin with the position of a table that was read.

        Args:
            image: of the file; None: there is none. below: the position that it holds.
        Raises:
            OSError: topics.position cannot be read.
        """
        self._table = TableImage.of([image or b""])
        in_slot = self._slots.position_of(self._table)
        self._below = (-1 if below is None else below) if in_slot is None else in_slot
        if below is not None and self._below < below:  # the log was cut: topics.json must not be believed again
            self._file.changed()

    @property
    def below(self) -> int:
        """The table has all topics of the messages below this position; -1: not known."""
        if self.log_end is not None:
            self._below = max(self._below, self.log_end())
        return self._below

    def know(self, below: int) -> None:
        """The table has all topics of the messages below this position."""
        self._below = max(self._below, below)

    async def keep(self, *, sync: bool | None = None) -> bool:
        """Write the position, if it has moved and topics.json has all changes of the table; return False if not.

        `sync`: on return it is on the disk; False: it need not be; None: it is from time to time. A failure is
        logged: more of the log will be read at the next start.
        """
        async with self._lock:
            table, below = self._table, self.below
            if below < 0 or self._file.is_dirty or ((table, below) == self._written and not sync):
                return False
            now_s = trio.current_time()
            if sync is None:
                sync = below - self._synced_below >= SYNC_BYTES or now_s >= self._synced_s + SYNC_S
            try:
                await trio.to_thread.run_sync(lambda: self._slots.write(table, below, sync=sync))
            except OSError as exc:
                if told := self._limit.take():
                    logger.warning("cannot write %s: %s%s", self._slots.path, exc, and_more(told))
                return False
            self._written = table, below
            if sync:
                self._synced_below, self._synced_s = below, now_s
            return True

    async def pass_deletion(self) -> None:
        """After the send worker has dropped a deleted topic: bring a position behind its messages to the disk. A start
        that looked for topics from an older position on would find the deleted one."""
        await self._file.save()
        await self.keep(sync=True)

    def _table_written(self, pieces: Sequence[bytes]) -> None:
        self._table = TableImage.of(pieces)


def saved_position(table: Path) -> tuple[TableImage, int | None]:
    """The content of topics.json (of its .bak if there is none), and its position; None: none is known.

    Raises:
        OSError: a file cannot be read.
    """
    for candidate in (table, Path(f"{table}.bak")):
        if candidate.exists():
            image = TableImage.of_file(candidate)
            in_slot = PositionFile(position_path(table)).position_of(image)
            return image, position_at_end(candidate) if in_slot is None else in_slot
    return TableImage(), PositionFile(position_path(table)).position_of(TableImage())


def position_at_end(path: Path) -> int | None:
    """The position that a table holds as its last member; None: there is no file, or no position. Raises: OSError."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            found = _LAST_MEMBER.search(file.read())
    except FileNotFoundError:
        return None
    return int(found[1]) if found else None
