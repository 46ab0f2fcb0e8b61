"""The start of the stream of a master of the reference, and the comparison of both logs before it.

Such a master has no handshake and compares nothing: the slave compares what it sends with the end of its own log. Pure
decisions, and a reader of frames.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import attrs

from .errors import CannotFollow, MasterUnusable, differs, master_begins_later, master_is_shorter, other_file_size
from .handshake_rules import TAIL_MAX
from .master_log import MasterLog

HEADER = struct.Struct(
    ">q"  # position of the first byte
    "i"  # bytes that follow; 0: a heartbeat
)
REPORT = struct.Struct(">q")
HEARTBEATS_MAX = 10  # before the logs are compared


@attrs.frozen
class Start:
    """The position at which a stream begins, and the part of the log that is compared."""

    report: int
    """The first position to report: the master sends from there on."""
    end: int
    """The end of the slave's log. Bytes from `report` up to it are compared."""
    adds_zero: bool = False
    """The master sends from position 1 on. Byte 0 is known: the high byte of a record's size."""


def start_of(master: MasterLog, begin: int, end: int, file_size: int) -> Start:
    """Return the start of the stream for a slave with the log [begin, end).

    A master of the reference sends only its last file to a slave that reports 0. If it has more files, ask it for
    byte 1.

    Raises:
        CannotFollow: the logs do not fit.
    """
    if master.file_size != file_size:
        raise CannotFollow(other_file_size(file_size, master.file_size))
    if end > master.end:
        raise CannotFollow(master_is_shorter(end, master.end))
    if end <= begin:
        if end > 0 and master.begin <= end:  # all files were deleted: there is nothing to compare
            return Start(end, end)
        if master.begin > 0:
            return Start(master.begin, master.begin)
        return Start(1, 1, adds_zero=True) if master.end >= file_size else Start(0, 0)
    if end <= master.begin:  # nothing that both have could be compared
        raise CannotFollow(master_begins_later(end, master.begin))
    return Start(max(1, begin, master.begin, end - TAIL_MAX), end)


def compare_end(start: Start, read: Callable[[int], bytes], own: Callable[[int, int], bytes]) -> int:
    """Read frames until the end of the slave's log, and compare their bytes with its own.

    Args:
        read: the next bytes of the stream, exactly as many as asked for. own: (position, size) of the slave's log.
    Returns: the bytes that the last frame has after the end.
    Raises:
        CannotFollow: the logs differ. MasterUnusable: frames that are not the log from `start.report` on.
    """
    position, heartbeats = start.report, 0
    while position < start.end:
        at, size = map(int, HEADER.unpack(read(HEADER.size)))
        if at != position or size < 0:
            raise MasterUnusable(f"it sent position {at} with {size} bytes instead of position {position}")
        heartbeats += size == 0
        if heartbeats > HEARTBEATS_MAX:
            raise MasterUnusable(f"it sent {heartbeats} heartbeats, and not its log from position {position} on")
        common = min(size, start.end - position)
        theirs, ours = read(common), own(position, common)
        if theirs != ours:
            differs_at = next(i for i in range(common) if theirs[i : i + 1] != ours[i : i + 1])
            raise CannotFollow(differs(f"at {position + differs_at}", start.end))
        position += common
        if position == start.end:
            return size - common
    return 0
