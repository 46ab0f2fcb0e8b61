"""What of a file is in memory. Files of a file system in memory (tmpfs) always are."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

RANDOM = "rr"  # the flag of MADV_RANDOM


def is_in_memory(path: Path) -> bool:
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    place = max((one for one in mounts if path.is_relative_to(one[0])), key=lambda one: len(one[0]))
    return place[1] in ("tmpfs", "ramfs")


def cached_pages(path: Path) -> set[int]:
    """Return the numbers of the pages of a file that are in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = path.stat().st_size
    found = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as image:
        start = ctypes.c_char.from_buffer(image)
        status = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), found)
        del start
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return {number for number, state in enumerate(found) if state & 1}


def flags_of_mappings(file: Path) -> list[list[str]]:
    """Return the kernel's flags (VmFlags of proc(5)) of each mapping of the file in this process."""
    found, is_ours = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            is_ours = rest[-1] == str(file)
        elif first == "VmFlags:" and is_ours:
            found.append(rest)
    return found
