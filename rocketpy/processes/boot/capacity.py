"""The default of connectionsMax: how many connections this machine has room for (docs/adr/0040)."""

from __future__ import annotations

import os
import resource
from pathlib import Path

CONNECTIONS_LIMIT = 1_000_000  # slots of a selector (csrc/workers/selector/selector.c)
DESCRIPTORS_KEPT = 200  # of a selector, for rings, doorbells and log files; a selector keeps 64 at least
CONNECTION_BYTES = 16 * 1024  # of an idle client, in all processes and the kernel, with room to spare
MEMORY_SHARE = 4  # a quarter of the memory may go to connections
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def raise_descriptor_limit() -> int:
    """Raise the limit of open files to the hard limit (`ulimit -Hn`), for this process and its workers; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # some systems call more than the kernel takes their hard limit
            hard = soft
    return CONNECTIONS_LIMIT if hard == resource.RLIM_INFINITY else hard


def memory_bytes() -> int:
    """Memory of the machine, or the limit of the control group if it is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no control group, or "max"
        return total


def connections_max(descriptors: int, memory: int, selectors: int) -> int:
    """Connections that each of `selectors` accepts, by open files and memory; at least one."""
    by_memory = memory // MEMORY_SHARE // CONNECTION_BYTES // selectors
    return max(1, min(CONNECTIONS_LIMIT, descriptors - DESCRIPTORS_KEPT, by_memory))
