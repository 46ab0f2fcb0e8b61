"""Creates the next CommitLog file before the writer needs it.

At most one empty file is ahead (the reference allows two, and finds a wrong end of the log with three). If this is too
late, the writer creates the file itself. Both work together, because a file appears complete or not at all.
"""

from __future__ import annotations

import os
from pathlib import Path

from rocketpy.errors import DiskFull, StoreError
from rocketpy.native import Status
from rocketpy.native.core import lib

from ..control_block import ControlBlock, fail

ALLOCATE_AT_PERCENT = 60  # of the active file


def allocate_ahead(control: ControlBlock, directory: Path, *, is_slave: bool = False) -> int | None:
    """If the active file is mostly full, create the next one. Returns its start, or None.

    Args:
        is_slave: an empty log gets no file yet: it begins where that of the master does.
    Raises:
        DiskFull: no room for another file.
        StoreError: it cannot be created for another reason.
    """
    size = int(control.header.commitlog_file_size)
    published = control.published_phy_offset
    used = published % size
    if published == 0 and is_slave:
        return None
    if published and used * 100 <= size * ALLOCATE_AT_PERCENT:
        return None
    start = published - used + (size if used else 0)
    status = lib.rp_mapped_file_create(os.fsencode(directory), start, size)
    if status:
        kind = DiskFull if status == Status.NO_SPACE else StoreError
        raise kind(str(fail(f"cannot create the next file in {directory}", status)))
    return start
