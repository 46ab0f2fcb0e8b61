"""What a child does to itself before anything else: nothing inherited by accident, a name, an end with its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator

from rocketpy.native.core import lib

NAME_MAX = 15
DESCRIPTORS_MAX = 1 << 20
SUPERVISED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # what the supervisor acts upon
LARGE_BYTES = 262_144  # a block of this size goes back to the kernel when a large frame has been served


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the process that forked us ends; end at once if it has ended already."""
    lib.rp_process_die_with_parent()
    if os.getppid() != parent_pid:
        os._exit(0)


def close_all_but(keep: Iterable[int]) -> None:
    """Close every descriptor but the standard ones and `keep`."""
    low = 0
    for fd in sorted({0, 1, 2, *keep}):
        if low < fd:  # closerange(0, 0) closes everything
            os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, DESCRIPTORS_MAX)


def own_standard_streams() -> None:
    """Whatever our parent has put in their place (a test runner does), write to descriptors 1 and 2."""
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def set_title(title: str) -> None:
    """Show `title` in `ps`: the command line is overwritten in place, the kernel's name for the thread is set."""
    name = title.removeprefix("rocketpy: ").encode()[:NAME_MAX]
    lib.rp_process_set_title(title.encode(), name, *_command_line_place())


def prefer_latency() -> None:
    """Run soon after each wake-up, in short slices; kernels before 6.12 go on as before."""
    lib.rp_process_prefer_latency()


def expect_frames() -> None:
    """Tables are made, frames will come: from now on only large ones are worth a mapping of their own."""
    lib.rp_process_map_blocks(LARGE_BYTES)


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Around a fork: what arrives meanwhile waits, in the parent until the end, in the child until `reset_signals`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def reset_signals() -> None:
    """The supervisor decides when a worker stops, by its block: what a terminal or a service manager sends to the whole
    group is for the supervisor, and a worker that obeyed it would be missing from the orderly stop."""
    signal.set_wakeup_fd(-1)
    for number in SUPERVISED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SUPERVISED)


def _command_line_place() -> tuple[int, int]:
    """Where our arguments lie in memory: fields 48 and 49 of /proc/self/stat."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[45]), int(fields[46])  # counted from field 3, the first one after the name
