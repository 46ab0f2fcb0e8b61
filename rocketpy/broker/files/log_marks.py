"""Progress that presumes messages in the log, and the marks by which it is held to the log.

The rule: nothing runs ahead of the log. A table that says "this was stored" is worth as much as the messages are. After
a power failure, a cut, or a change of master the log may be shorter than the table takes it to be. So

    saved     with the log position that it presumes (and its epoch, with automatic failover), for several positions:
              the log decides at the next open which of them holds
    copied    a slave is told the position, and takes the table when its own log has got there
    opened    before the first worker is forked, marks that presume more than the log has are removed from the file
              (processes/boot/table_check.py); so a promotion, which opens the store, uses what the new master's log has

A mark is a table at a position. Marks are few: they lie closer together towards the end of the log, where a log is cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import attrs

from rocketpy.message.numbers import long_or
from rocketpy.remoting.bodies.offset import PRESUMED, PRESUMED_EPOCH, LogMark, MarkedOffsets
from rocketpy.remoting.command import RemotingCommand

MARKS_MAX = 24
AWAITED_MAX = 16


@attrs.frozen
class LogExtent:
    """The log as it was opened: where it ends, and where in it each epoch ends.

    Without epochs (no automatic failover) positions are compared alone. That is enough, because a log is checked
    against the marks before anything is appended to it.
    """

    end: int
    epoch_ends: Mapping[int, int] = attrs.field(factory=dict)

    def has(self, mark: LogMark) -> bool:
        """Return True if all that the mark presumes is in this log."""
        is_named = mark.epoch >= 0 and self.epoch_ends
        return mark.phy_offset <= (self.epoch_ends.get(mark.epoch, -1) if is_named else self.end)


class LogMarks:
    """The marks of one progress table, by position. The last one is the newest."""

    def __init__(self, marks: Iterable[LogMark] = ()) -> None:
        self._marks = sorted(marks, key=lambda mark: mark.phy_offset)

    @classmethod
    def of(cls, saved: MarkedOffsets | None) -> LogMarks:
        """Read the marks of a file. Its own table is the newest one of its position: an operator may have edited it."""
        return cls([*saved.marks, _mark_of(saved)] if saved is not None else ())

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def newest(self) -> LogMark | None:
        return self._marks[-1] if self._marks else None

    def add(self, mark: LogMark) -> None:
        """Add the table as it is now. A table that has not changed keeps its older position."""
        newest = self.newest
        if newest is not None and newest.offset_table == mark.offset_table:
            return
        if newest is not None and newest.phy_offset >= mark.phy_offset:
            self._marks.pop()
        self._marks.append(mark)
        if len(self._marks) > MARKS_MAX:
            del self._marks[self._least_useful()]

    def _least_useful(self) -> int:
        """The index of the mark whose loss lowers a table least, relative to what a cut there takes from the log."""
        at = [mark.phy_offset for mark in self._marks]
        return min(range(1, len(at) - 1), key=lambda i: (at[i + 1] - at[i - 1]) / (at[-1] - at[i - 1] + 1))

    def until(self, phy_offset: int) -> LogMark | None:
        """The newest mark that presumes nothing beyond this position."""
        return next((mark for mark in reversed(self._marks) if mark.phy_offset <= phy_offset), None)

    def keep(self, extent: LogExtent) -> int:
        """Remove the marks that presume more than the log has. Returns how many."""
        kept = [mark for mark in self._marks if extent.has(mark)]
        removed = len(self._marks) - len(kept)
        self._marks = kept
        return removed

    def to_save(self, phy_offset: int) -> MarkedOffsets:
        """The content of the file. Its own table, which a Java broker reads, presumes nothing beyond `phy_offset`."""
        own = self.until(phy_offset) or LogMark()
        return MarkedOffsets(
            epoch=own.epoch,
            offset_table=own.offset_table,
            phy_offset=own.phy_offset,
            marks=[mark for mark in self._marks if mark is not own],
        )


def presumed_fields(mark: LogMark) -> dict[str, str]:
    """The header fields that tell a slave what the table in the answer presumes."""
    return {PRESUMED: str(mark.phy_offset), PRESUMED_EPOCH: str(mark.epoch)}


def presumed_by(answer: RemotingCommand) -> LogMark | None:
    """The position that the table in this answer presumes, in a mark without a table; None: the master does not say."""
    fields = answer.ext_fields or {}
    phy_offset = long_or(fields.get(PRESUMED), -1)
    return LogMark(phy_offset=phy_offset, epoch=long_or(fields.get(PRESUMED_EPOCH), -1)) if phy_offset >= 0 else None


class AwaitedMarks:
    """Marks of a master's table that wait on a slave for its own log to get there: at most AWAITED_MAX."""

    def __init__(self) -> None:
        self._marks: deque[LogMark] = deque()

    def put(self, mark: LogMark) -> None:
        """Add the newest answer of the master. If too many wait, it replaces the one before."""
        if self._marks and self._marks[-1].offset_table == mark.offset_table:
            return  # the older position is enough
        if len(self._marks) == AWAITED_MAX:
            self._marks.pop()
        self._marks.append(mark)

    def take(self, phy_offset: int) -> LogMark | None:
        """The newest mark that presumes nothing beyond `phy_offset`, the end of our log; later ones stay."""
        taken = None
        while self._marks and self._marks[0].phy_offset <= phy_offset:
            taken = self._marks.popleft()
        return taken

    def clear(self) -> None:
        """Forget all marks: the log that comes now is another one."""
        self._marks.clear()


def _mark_of(saved: MarkedOffsets) -> LogMark:
    return LogMark(epoch=saved.epoch, offset_table=saved.offset_table, phy_offset=saved.phy_offset)
