"""Memory of a process, from the kernel.

Short: a name server needs it when it is asked for metrics, and the rest of this package then only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import attrs

PROC = Path("/proc")
PSS_AGE_S = 60.0
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


@attrs.frozen
class ProcessMemory:
    rss_bytes: int
    pss_bytes: int


def process_memory(pid: int, proc: Path = PROC) -> ProcessMemory | None:
    """Resident and proportional memory of `pid`; None if it has ended or may not be read.

    Walks the process's page tables: some hundred microseconds. For scrapes, not for loops.
    """
    try:
        text = (proc / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return None
    sizes = {}
    for line in text.splitlines()[1:]:
        name, _, amount = line.partition(":")
        if amount.endswith(" kB"):
            sizes[name] = int(amount[:-3]) * 1024
    if "Rss" not in sizes or "Pss" not in sizes:
        return None
    return ProcessMemory(sizes["Rss"], sizes["Pss"])


@attrs.define(eq=False)
class MemoryOfProcesses:
    """Memory of processes again and again: proportional shares are up to PSS_AGE_S old.

    For them the kernel walks the page tables, which was a third of the cost of a scrape of an idle broker.
    """

    proc: Path = PROC
    now_s: Callable[[], float] = time.monotonic
    _shares: dict[int, tuple[float, int]] = attrs.field(init=False, factory=dict)  # by process: when, PSS

    def of(self, pid: int) -> ProcessMemory | None:
        """Return the memory of `pid`; None if it has ended or may not be read."""
        now_s = self.now_s()
        self._shares = {one: kept for one, kept in list(self._shares.items()) if now_s - kept[0] < PSS_AGE_S}
        if (kept := self._shares.get(pid)) is None:
            memory = process_memory(pid, self.proc)
            if memory is not None:
                self._shares[pid] = now_s, memory.pss_bytes
            return memory
        try:
            pages = int((self.proc / str(pid) / "statm").read_text().split()[1])
        except OSError:
            return None
        return ProcessMemory(pages * PAGE_SIZE, kept[1])
