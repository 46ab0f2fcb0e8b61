"""The saved progress of transactions: it never says that a half message has ended without the log that ended it.

`transactionProgress.json` holds marks (log_marks.py): in a log that has the bytes below a mark's position, every half
message below the first offset of its table has ended, and every op message of a later one is at the second offset or
after it. A start begins with the newest mark that its log supports; without any it reads all op messages.

A Java broker reads these two numbers as offsets of CID_RMQ_SYS_TRANS. They are taken from a mark below which the log
cannot be lost. Slaves get the newest mark with the table of offsets, and take it when their own log has got there.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from rocketpy.errors import RequestRefused
from rocketpy.message.names import TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketpy.message.numbers import long_or
from rocketpy.remoting.bodies.offset import LogMark, MarkedOffsets
from rocketpy.remoting.json_writer import pretty_pieces

from ..files import json_file
from ..files.log_marks import AwaitedMarks, LogMarks
from ..managers.config_file import ConfigFile
from ..managers.consumer_offset import ConsumerOffsetManager
from ..store_api import Store

FILE_NAME = "transactionProgress.json"
FIELD = "transactionProgress"
"""The field of an answer to GET_ALL_CONSUMER_OFFSET (43) that carries the newest mark to slaves."""
HALF, OP = 0, 1  # of a mark's table: where half messages may be open, where the op messages of these begin


def mark_of(half: int, op: int, phy_offset: int) -> LogMark:
    return LogMark(offset_table={HALF: half, OP: op}, phy_offset=phy_offset)


def progress_in(path: Path) -> int:
    """The offset below which every half message has ended, by a file that was held to the log; 0: nothing is known.

    A table without a position was not compared with the log, and so it proves nothing.

    Raises:
        ConfigError: it is damaged. OSError: it cannot be read.
    """
    newest = LogMarks.of(json_file.load_as(path, MarkedOffsets)).newest
    return newest.offset_table.get(HALF, 0) if newest and newest.phy_offset >= 0 else 0


class TransactionProgress:
    """The saved progress of transactions. One per manager."""

    def __init__(self, config_dir: Path, store: Store, offsets: ConsumerOffsetManager) -> None:
        self._store = store
        self._offsets = offsets
        self._marks, self._awaited = LogMarks(), AwaitedMarks()
        self._log: object = None  # of the marks that wait
        self.file = ConfigFile(
            config_dir / FILE_NAME, lambda: pretty_pieces(self._marks.to_save(self._store.kept_phy_offset()))
        )

    def load(self) -> None:
        """Read the marks; the start has removed the ones that exceed the log. Raises: ConfigError."""
        self._marks = LogMarks.of(json_file.load_as(self.file.path, MarkedOffsets))

    @property
    def newest(self) -> LogMark | None:
        mark = self._marks.newest
        return mark if mark is not None and mark.offset_table else None

    @property
    def text(self) -> str:
        """The newest mark for slaves; empty: there is none."""
        mark = self.newest
        return f"{mark.offset_table[HALF]}:{mark.offset_table[OP]}:{mark.phy_offset}" if mark else ""

    def propose(self, half: int, op: int | None) -> None:
        """The log, as far as it is written now, ends all half messages below `half`. `op` None: as before."""
        if op is None:
            op = self.newest.offset_table.get(OP, 0) if self.newest else 0
        self._add(mark_of(half, op, self._store.log_end()))

    def follow(self, text: str, log: object) -> None:
        """Take over the newest mark of the master of this slave, once the own log has got there. `log`: which master
        and which connection; marks of another one are dropped, because a master that comes back may have lost the end
        of its log."""
        if log != self._log:
            self._awaited.clear()
            self._log = log
        numbers = [long_or(part, -1) for part in text.split(":")]
        if len(numbers) == 3 and min(numbers) >= 0:
            self._awaited.put(mark_of(*numbers))
        taken = self._awaited.take(self._store.log_end())
        if taken is not None:
            self._add(taken)
        else:
            self._commit()

    def _add(self, mark: LogMark) -> None:
        if self.newest is None or self.newest.offset_table != mark.offset_table:
            self._marks.add(mark)
            self.file.changed()
        self._commit()

    def _commit(self) -> None:
        """Commit what a Java broker reads."""
        mark = self._marks.until(self._store.kept_phy_offset())
        if mark is None or not mark.offset_table:
            return
        with contextlib.suppress(RequestRefused):  # counted by the table; a Java broker would look at more
            self._offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, 0, mark.offset_table[HALF])
            self._offsets.commit(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0, mark.offset_table[OP])
