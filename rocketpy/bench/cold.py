"""A cold store: its pages leave memory, and the result says how much of the reads came from the disk.

A broker maps its files, and mapped pages stay in the page cache whatever is advised. So it is stopped, every file of
the store is synced and dropped, and it starts again on the same store. The reads that follow are counted three times:
by the load, by the kernel (bytes that the broker's processes had read from disks, page faults that waited), and as a
reference on the same files and disk without a broker, past the page cache (O_DIRECT).
"""

from __future__ import annotations

import mmap
import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .own_broker import OwnBroker
from .result import Figures

PAGE = 4096
WARM_FROM = 128
"""One of so many messages is read. The kernel reads 128 KiB around a fault: at the end about a quarter of a
log of 4 KiB messages is in memory. Were each read once, a read would cost no more than its own bytes."""
RAW_SECONDS = 3.0
RAW_THREADS = 16


def files(store: Path) -> Iterator[Path]:
    """Yield the files of a store that hold something."""
    return (path for path in sorted(store.rglob("*")) if path.is_file() and path.stat().st_blocks)


def drop(store: Path) -> None:
    """Have the kernel forget what it holds of a store that nobody has open."""
    for path in files(store):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # dirty pages would stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def cached_share(store: Path) -> float:
    """Return how much of a store is in the page cache, from 0 to 1."""
    from .driver import load_driver

    lib = load_driver().lib
    sizes = {path: path.stat().st_blocks * 512 for path in files(store)}
    pages = sum(max(0, lib.load_cached_pages(str(path).encode(), path.stat().st_size)) for path in sizes)
    return float(min(1.0, pages * PAGE / max(1, sum(sizes.values()))))


def cool(broker: OwnBroker) -> None:
    """Restart the broker on its store after the store has left memory."""
    broker.restart_after(lambda: drop(broker.store))


def figures(before: tuple[int, int], after: tuple[int, int], reads: float, delivered_bytes: int) -> Figures:
    """Return what the disk had to do with the reads, from two states of `OwnBroker.disk_reads`."""
    read_bytes, faults = (new - old for new, old in zip(after, before, strict=True))
    return {
        "disk_bytes_per_read": round(read_bytes / max(1, reads)),
        "disk_bytes_per_byte": round(read_bytes / max(1, delivered_bytes), 3),
        "disk_waits_per_read": round(faults / max(1, reads), 3),
    }


def raw_reads_per_s(log: Path, seconds: float = RAW_SECONDS) -> float:
    """Return the random reads of 4 KiB per second that RAW_THREADS threads get from the files of a log, past the page
    cache; 0 where the file system cannot do that."""
    sizes = {path: path.stat().st_blocks * 512 // PAGE for path in files(log)}
    sizes = {path: pages for path, pages in sizes.items() if pages}
    if not sizes:
        return 0.0
    counts = [0] * RAW_THREADS
    until_s = time.monotonic() + seconds

    def read(index: int, descriptors: Sequence[int], pages: Sequence[int]) -> None:
        buffer, chance = mmap.mmap(-1, PAGE), random.Random(index)
        while time.monotonic() < until_s:
            (chosen,) = chance.choices(range(len(descriptors)), pages)
            os.preadv(descriptors[chosen], [buffer], chance.randrange(pages[chosen]) * PAGE)
            counts[index] += 1

    try:
        descriptors = [os.open(path, os.O_RDONLY | os.O_DIRECT) for path in sizes]
    except OSError:
        return 0.0
    pages = list(sizes.values())
    threads = [threading.Thread(target=read, args=(index, descriptors, pages)) for index in range(RAW_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for descriptor in descriptors:
        os.close(descriptor)
    return round(sum(counts) / seconds, 1)
