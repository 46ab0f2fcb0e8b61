"""CPU time, and memory in proportional shares, of a tree of processes, from /proc."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
CPUCLOCK_SCHED = 2
PROC = Path("/proc")


def tree(root: int) -> list[int]:
    """Return `root` and all its descendants that are alive."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        if (PROC / str(pid)).exists():
            found.append(pid)
        todo += children.get(pid, [])
    return found


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat behind the command name: state, ppid, ...; None when it is gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_running(pid: int) -> bool:
    """Return True if it exists and has not ended: a zombie holds nothing any more but its number."""
    stat = _stat(pid)
    return stat is not None and stat[0] != "Z"


def cpu_s(roots: list[int]) -> float:
    """Return user and system seconds of the trees, including children that have ended and were waited for."""
    return sum(cpu_s_by_process(roots).values())


def cpu_s_by_process(roots: list[int]) -> dict[int, float]:
    """Return the CPU seconds of each process of the trees by its id, as `cpu_s` adds them up."""
    return {pid: _ticks(pid) / TICKS_PER_S for root in roots for pid in tree(root)}


def read_bytes(roots: list[int]) -> int:
    """Return the bytes that the trees have read from disks, by the kernel's account; without ended processes."""
    return sum(_read_bytes(pid) for root in roots for pid in tree(root))


def _read_bytes(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "io").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), 0)


def major_faults(roots: list[int]) -> int:
    """Return the page faults of the trees that waited for a disk."""
    return sum(int(stat[9]) for root in roots for pid in tree(root) if (stat := _stat(pid)) is not None)


def own_cpu_s(pid: int) -> float:
    """User and system seconds of one process, with threads that have ended, without its children; to the nanosecond,
    where /proc/PID/stat counts in hundredths. 0 when it is gone."""
    try:
        return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)  # as clock_getcpuclockid(3)
    except OSError:
        return 0.0


def ended_children_s(pid: int) -> float:
    """Return user and system seconds of the ended children of a process that were waited for; in hundredths."""
    return sum(int(field) for field in (_stat(pid) or [])[13:15]) / TICKS_PER_S


def wakes(pid: int) -> int:
    """Count how often the threads of a process have gone to sleep and were woken; 0 when it is gone."""
    total = 0
    for status in (PROC / str(pid) / "task").glob("*/status"):
        with contextlib.suppress(OSError):
            (line,) = (line for line in status.read_text().splitlines() if line.startswith("voluntary_ctxt_switches"))
            total += int(line.split()[1])
    return total


def _ticks(pid: int) -> int:
    """Return user and system time, and that of children that were waited for; 0 when it is gone."""
    return sum(int(field) for field in (_stat(pid) or [])[11:15])


def command_name(pid: int) -> str:
    """Return the command line of a process, or its short name when it has none; "" when it is gone."""
    try:
        line = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return line or (PROC / str(pid) / "comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def pss_mib(roots: list[int], without: Path) -> float:
    """Proportional set size of the trees in MiB, without mappings of files under `without` (the page cache's pages)."""
    return round(sum(pss_kib_by_process(roots, [without]).values()) / 1024, 1)


def pss_kib_by_process(roots: list[int], without: Sequence[Path]) -> dict[int, int]:
    """Return `pss_mib` in KiB, by process id."""
    excluded = [f"{directory.resolve()}/" for directory in without]
    return {pid: _pss_kib(pid, excluded) for root in roots for pid in tree(root)}


def mappings(pid: int) -> int:
    """Count the mappings of a process; the kernel's default limit is 65530."""
    try:
        return len((PROC / str(pid) / "maps").read_bytes().splitlines())
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _pss_kib(pid: int, excluded: Sequence[str]) -> int:
    """Sum of the Pss lines in smaps; each mapping is headed by a line of its address range, rights and path."""
    total, counts = 0, True
    try:
        with open(PROC / str(pid) / "smaps", encoding="utf-8", errors="replace") as smaps:
            for line in smaps:
                word = line.split(maxsplit=1)[0]
                if not word.endswith(":"):
                    counts = not any(directory in line for directory in excluded)
                elif word == "Pss:" and counts:
                    total += int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return total


def machine_ticks() -> tuple[int, int]:
    """Return (all, idle) of all cores since the start, in clock ticks, without the time that the host took (steal)."""
    fields = [int(field) for field in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:8]]
    return sum(fields), fields[3] + fields[4]
