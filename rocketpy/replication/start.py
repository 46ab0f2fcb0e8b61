"""Where a slave's stream begins, and the comparison of both logs before it: pure decisions and a reader of frames."""

from __future__ import annotations

import struct
from collections.abc import Callable

import attrs

from .errors import CannotFollow, MasterUnusable
from .master_log import MasterLog

HEADER = struct.Struct(
    ">q"  # position of the first byte
    "i"  # bytes that follow; 0: a heartbeat
)
REPORT = struct.Struct(">q")
HEARTBEATS_MAX = 10  # before the logs are compared
OVERLAP_MAX = 65_536
"""Bytes at the end of the slave's log that are compared with the master's."""


@attrs.frozen
class Start:
    """Where to begin."""

    report: int
    """What to report first: the master sends from there on."""
    end: int
    """The end of the slave's log. Bytes from `report` up to it are compared."""
    adds_zero: bool = False
    """The master sends from position 1 on. Byte 0 is known: the high byte of a record's size."""


def start_of(master: MasterLog, begin: int, end: int, file_size: int) -> Start:
    """Where the stream of a slave begins whose log is [begin, end).

    A master of the reference sends its last file alone to a slave that reports 0, so one with more is asked for byte 1.

    Raises:
        CannotFollow: the logs do not fit.
    """
    if master.file_size != file_size:
        raise CannotFollow(
            f"the master has mappedFileSizeCommitLog={master.file_size}, this slave {file_size}: they must be equal; "
            "set it to the master's and begin with an empty store"
        )
    if end <= begin:
        if master.begin > 0:
            return Start(master.begin, master.begin)
        return Start(1, 1, adds_zero=True) if master.end >= file_size else Start(0, 0)
    if end > master.end:
        raise CannotFollow(
            f"the log of this slave ends at {end}, that of its master at {master.end}: the master has lost the end "
            "of its log, or this slave has followed another one; keep this store, it may have messages that the "
            "master lacks"
        )
    if end <= master.begin:  # nothing that both have could be compared
        raise CannotFollow(
            f"the log of this slave ends at {end}, that of its master begins at {master.begin}: what is before that "
            "has expired; begin with an empty store"
        )
    return Start(max(1, begin, master.begin, end - OVERLAP_MAX), end)


def compare_end(start: Start, read: Callable[[int], bytes], own: Callable[[int, int], bytes]) -> int:
    """Read frames until the end of the slave's log, and compare their bytes with its own.

    Args:
        read: the next bytes of the stream, exactly as many as asked for. own: (position, size) of the slave's log.
    Returns: the bytes that the last frame has behind the end.
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
            differs = next(i for i in range(common) if theirs[i : i + 1] != ours[i : i + 1])
            raise CannotFollow(
                f"the log of this slave differs from its master's at {position + differs} (it ends at {start.end}): "
                "this slave has a history of its own; keep its store aside and begin with an empty one"
            )
        position += common
        if position == start.end:
            return size - common
    return 0
