"""The number of connections that this machine has room for: the defaults of connectionsMax and selectorWorkersMax.

One process may have as many connections as it may open files. Where that is less than CONNECTIONS_WANTED, more
selectors are kept ready; each is started when all others are full (docs/adr/0040).
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

import attrs

from rocketpy.config import BrokerSettings
from rocketpy.config.rocketpy_config import SELECTORS_MAX

CONNECTIONS_LIMIT = 1_000_000  # slots of a selector (csrc/workers/selector/selector.c)
CONNECTIONS_WANTED = 65_000  # of all selectors, where memory allows: one has room with the LimitNOFILE of our units
SPARES_MAX = 4  # each takes a page of memory for each of its rings and for its block, 32 KiB in all
DESCRIPTORS_KEPT = 200  # of a selector, for rings, doorbells and log files; a selector keeps 64 at least
CONNECTION_BYTES = 16 * 1024  # of an idle client, in all processes and the kernel, with room to spare
MEMORY_SHARE = 4  # a quarter of the memory may go to connections
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def with_capacity(settings: BrokerSettings) -> BrokerSettings:
    """Raise the limit of open files, and return the settings with connectionsMax and selectorWorkersMax for it.

    A given connectionsMax counts as far as open files allow: the acceptor must know when a selector is full. It says
    how many connections are wanted, so no selector is added unless selectorWorkersMax is given as well.
    """
    own, descriptors, memory = settings.rocketpy, raise_descriptor_limit(), memory_bytes()
    selectors = own.selector_workers_max or own.selector_workers
    if own.connections_max:
        most = min(own.connections_max, by_files(descriptors))
    else:
        selectors = own.selector_workers_max or selectors_max(descriptors, memory, own.selector_workers)
        most = connections_max(descriptors, memory, selectors)
    return attrs.evolve(settings, rocketpy=attrs.evolve(own, connections_max=most, selector_workers_max=selectors))


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
    """Return the memory of the machine, or the limit of the control group if it is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no control group, or "max"
        return total


def by_files(descriptors: int) -> int:
    """Return how many connections a selector can have with so many open files; at least one."""
    return max(1, min(CONNECTIONS_LIMIT, descriptors - DESCRIPTORS_KEPT))


def connections_max(descriptors: int, memory: int, selectors: int) -> int:
    """Return how many connections each of `selectors` accepts, by open files and memory; at least one."""
    return max(1, min(by_files(descriptors), memory // MEMORY_SHARE // CONNECTION_BYTES // selectors))


def selectors_max(descriptors: int, memory: int, at_start: int) -> int:
    """Return how many selectors it takes for CONNECTIONS_WANTED, or for what memory allows: `at_start`, and a few."""
    wanted = min(CONNECTIONS_WANTED, memory // MEMORY_SHARE // CONNECTION_BYTES)
    return max(at_start, min(-(-wanted // by_files(descriptors)), at_start + SPARES_MAX, SELECTORS_MAX))
