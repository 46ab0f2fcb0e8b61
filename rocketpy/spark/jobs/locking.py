"""One run at a time on what a job writes."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocketpy.errors import StoreError
from rocketpy.store.files import translated


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold the lock of the file `path`, which is made if it is not there. It is free when this process has ended,
    however that was.

    Raises:
        StoreError: another process holds it; `busy` is what it says. The file cannot be made.
    """
    with translated(path, "open"):
        lock = path.open("ab")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(busy) from None
        yield
