"""Frees memory before the supervisor forks: pages that only start-up needed would stay in all workers.

Measured on the default shape: about 5 MB of the summed PSS of an idle tree (docs/adr/0041).
"""

from __future__ import annotations

import gc
import linecache
import re
import sys
import typing
from collections.abc import Callable
from pathlib import Path

from rocketpy.native.core import lib

TABLE_BYTES = 32_768  # tables of the core of this size, zeros at first, take no memory before they are used
SMALL_OBJECT_MAX = 512  # bytes; larger ones are not pooled by the interpreter
RETIRED_SIZES = TABLE_BYTES, 4_096, 1_024, SMALL_OBJECT_MAX  # bytes of free blocks that no child is to fill
SMALL_OBJECT_STEP = 16
GENERATIONS = 700, 10, 10  # Python's own thresholds of collection; imports have others (cli/main.py)
FILL_BYTES = 16_384  # of each size: about what imports leave free of the busiest ones
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (.*)")
_IS_CODE_OR_CONSTANTS = re.compile(r"r-[-x]p \S+ \S+ [1-9]\d* +/")


def trim_before_fork() -> None:
    """Drop caches of patterns, types and generated sources, free heap, and the pages of libraries that imports touched.

    A page of a library's code is clean and comes back from the page cache when it is needed; most never are (the
    self-tests of the TLS library, say).
    """
    re.purge()
    linecache.clearcache()  # attrs keeps the text of the methods that it generates: 0.6 MB
    cleanups: list[Callable[[], None]] = getattr(typing, "_cleanups", [])
    for cleanup in cleanups:
        cleanup()
    gc.collect(1)  # the oldest generation holds what was imported: 30 ms for next to nothing
    gc.freeze()
    gc.collect()  # of nothing, but it empties the interpreter's lists of free tuples, dicts, ...: they lie everywhere
    sys._clear_type_cache()  # it refers to names everywhere; each one that a child replaced would be a page written
    gc.set_threshold(*GENERATIONS)
    lib.rp_process_memory_map_blocks(TABLE_BYTES)
    lib.rp_process_memory_trim()
    for size in RETIRED_SIZES:
        lib.rp_process_memory_retire_free_blocks(size)
    for start, size in _clean_file_mappings():
        lib.rp_process_memory_drop_pages(start, size)


def fill_pools() -> list[bytes]:
    """Objects that take the places which imports left free in the pools of small objects; keep the result.

    A child that allocated in those places would get a page of its own for each of them, all over the inherited heap.
    So it allocates in fresh pools, a page after the other.
    """
    header = sys.getsizeof(b"")
    smallest = -(-header // SMALL_OBJECT_STEP) * SMALL_OBJECT_STEP
    sizes = range(smallest, SMALL_OBJECT_MAX + 1, SMALL_OBJECT_STEP)
    return [bytes(size - header) for size in sizes for _ in range(FILL_BYTES // size)]


def _clean_file_mappings() -> list[tuple[int, int]]:
    """(address, bytes) of every private, unwritable mapping of a file none of whose pages was ever written: code and
    constants. Relocated data is unwritable as well, but has pages of its own (Anonymous), which must stay."""
    found = []
    place: tuple[int, int] | None = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        match = _MAPPING.match(line)
        if match:
            start, end = int(match[1], 16), int(match[2], 16)
            place = (start, end - start) if _IS_CODE_OR_CONSTANTS.match(match[3]) else None
        elif place and line.startswith("Anonymous:") and line.split()[1] == "0":
            found.append(place)
    return found
