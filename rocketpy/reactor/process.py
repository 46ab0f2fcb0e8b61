"""The first steps of a worker: shed what it has inherited by accident, take a name, end with its parent.

They are written down before the fork (`Identity`) and done by C: each page that Python touches in a child is no longer
shared with the parent (docs/adr/0041).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rocketpy.native.core import ffi, lib

NAME_MAX = 15
SUPERVISED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # signals that the supervisor handles
LARGE_BYTES = 262_144  # freed blocks of this size go back to the kernel


class Identity:
    """An rp_process_identity, made before the fork.

    Args:
        title: how `ps` shows the worker; without "rocketpy: " and cut, the name of its thread.
        keep_fds: descriptors that stay open beside the standard ones.
        prefers_latency: run it soon after each wake-up, in short slices; kernels before 6.12 go on as before.
        ends_on_sigterm: SIGTERM ends it until it has a handler of its own, also one that came since the fork.
            Otherwise it ignores SIGTERM, as it does SIGINT and SIGHUP.
    """

    def __init__(
        self, title: str, keep_fds: Iterable[int], *, prefers_latency: bool, ends_on_sigterm: bool = False
    ) -> None:
        keep = sorted(set(keep_fds))
        start, end = _command_line_place()
        name = title.removeprefix("rocketpy: ").encode()[:NAME_MAX]
        self._kept = ffi.new("int32_t[]", keep), ffi.new("char[]", title.encode()), ffi.new("char[]", name)
        self._pointer: Any = ffi.new(
            "rp_process_identity *",
            {
                "keep": self._kept[0],
                "keep_count": len(keep),
                "prefers_latency": prefers_latency,
                "ends_on_sigterm": ends_on_sigterm,
                "title": self._kept[1],
                "name": self._kept[2],
                "title_start": start,
                "title_end": end,
            },
        )

    def take(self, parent_pid: int) -> None:
        """Become the worker. The first call in a child that was forked within `hold_signals`; ends it if its parent has
        ended."""
        lib.rp_process_begin(self._pointer, parent_pid)

    def fork(self) -> int:
        """fork() and, in the child, `take`; the interpreter is not told (worker_spec.py, `is_simple`).

        Raises: OSError, as os.fork.
        """
        pid = int(lib.rp_process_fork(self._pointer))
        if pid < 0:
            raise OSError(ffi.errno, os.strerror(ffi.errno))
        return pid


def own_standard_streams() -> None:
    """Write to descriptors 1 and 2, although the parent may have replaced sys.stdout and sys.stderr (a test runner
    does)."""
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def expect_frames() -> None:
    """Tables are loaded. From now on blocks for large frames have a memory mapping each, and smaller ones have none."""
    lib.rp_process_memory_map_blocks(LARGE_BYTES)


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Around a fork: what arrives meanwhile waits, in the parent until the end, in the child until `Identity.take`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def forget_handlers(*, ends_on_sigterm: bool = False) -> None:
    """Tell the interpreter of a child what `Identity.take` has told the kernel: no handler of the parent is left."""
    signal.set_wakeup_fd(-1)
    for number in SUPERVISED:
        is_obeyed = number == signal.SIGTERM and ends_on_sigterm
        signal.signal(number, signal.SIG_DFL if is_obeyed else signal.SIG_IGN)


def processor_times(pid: int) -> tuple[int, int]:
    """Return the time that a process has run: its own code, and that of the kernel; fields 14 and 15 of /proc/PID/stat.

    (0, 0) if it cannot be read.
    """
    with contextlib.suppress(OSError, ValueError):
        user, system = _fields(Path(f"/proc/{pid}/stat"))[11:13]
        return int(user), int(system)
    return 0, 0


def has_computed(pid: int, since: tuple[int, int]) -> bool:
    """Return True if a process has run its own code since then, more than that of the kernel: one that waits for a disk
    or for memory has not."""
    user, system = (now - then for now, then in zip(processor_times(pid), since, strict=True))
    return user > system


def _fields(status: Path) -> list[bytes]:
    """The fields of a file `stat` from field 3 on, the first one after the name."""
    return status.read_bytes().rpartition(b")")[2].split()


def _command_line_place(status: Path = Path("/proc/self/stat")) -> tuple[int, int]:
    """Address range of the command line in memory: fields 48 and 49 of /proc/self/stat.

    (0, 0), so that `ps` shows the command of the supervisor for each worker, where the kernel is emulated without them.
    """
    places = _fields(status)[45:47]
    return (int(places[0]), int(places[1])) if len(places) == 2 else (0, 0)
