"""Fills the page cache, as on any host that has been running for a day.

A fresh virtual machine, or one that hands free memory back to its host (free page reporting), takes a host page fault
for every page that it touches first: 3 to 8 us where a page that comes from reclaim costs 0.6 us. A broker that writes
ten times as fast takes ten times as many of them, and the comparison measures the hypervisor. A ballast file, allocated
and read but never written, fills the cache with clean pages; the kernel takes them back as the stores grow.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

MARGIN_BYTES = 1 << 30  # left free for processes to start in
READ_BYTES = 1 << 20


def free_memory_bytes() -> int:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemFree"].split()[0]) * 1024


@contextlib.contextmanager
def full_page_cache(parent: Path) -> Iterator[None]:
    """Fill the free memory, but use at most half of the free disk space; the file is removed at the end.

    Raises:
        OSError: the disk has no room or cannot allocate without writing.
    """
    size = min(free_memory_bytes() - MARGIN_BYTES, shutil.disk_usage(parent).free // 2)
    path = parent / "ballast"
    try:
        with path.open("w+b", buffering=0) as ballast:
            if size > 0:
                os.posix_fallocate(ballast.fileno(), 0, size)
            piece = bytearray(READ_BYTES)
            while ballast.readinto(piece):
                continue
        yield
    finally:
        path.unlink(missing_ok=True)
