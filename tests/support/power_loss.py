"""A power failure of a machine whose disk has everything but the end of the log."""

from __future__ import annotations

import mmap
from pathlib import Path

from rocketpy.native.core import ffi
from rocketpy.store.files import DiskFiles, StorePaths, numbered_files
from tests.support.reopened_store import another_boot


def lose_log_from(root: Path, file_size: int, end: int) -> None:
    """Leave the store at `root`, whose broker is dead, as a power failure does: its log is on the disk up to `end`.
    Consume queues and the tables in `config` were written back later, as a kernel may do."""
    paths = StorePaths.of(str(root), str(root / "commitlog"))
    for start in numbered_files(DiskFiles(), paths.commitlog, file_size):
        kept = max(0, end - start)
        if kept < file_size:
            with (paths.commitlog / f"{start:020d}").open("r+b") as file:
                file.truncate(kept)
                file.truncate(file_size)
    with paths.control.open("r+b") as file, mmap.mmap(file.fileno(), mmap.PAGESIZE) as page:
        view = ffi.from_buffer(page)
        header = ffi.cast("rp_control *", view)
        header.durable_phy_offset = min(header.durable_phy_offset, end)
        header.units_durable_phy_offset = min(header.units_durable_phy_offset, end)
        del header
        ffi.release(view)
    another_boot(paths)
