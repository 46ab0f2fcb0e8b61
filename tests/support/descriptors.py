"""A process in which new descriptors are above those that select(2) takes."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

SELECT_MAX = 1024
ROOM = 64


@contextmanager
def high_descriptors() -> Iterator[None]:
    """Within it a new descriptor is at least SELECT_MAX."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, SELECT_MAX + ROOM), hard))
    taken = [os.open("/", os.O_RDONLY)]
    try:
        while taken[-1] < SELECT_MAX:
            taken.append(os.dup(taken[0]))
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
