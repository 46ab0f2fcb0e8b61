"""Memory of a process, from the kernel.

Short: a name server needs it when it is asked for metrics, and the rest of this package then only.
"""

from __future__ import annotations

from pathlib import Path

import attrs

PROC = Path("/proc")


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
