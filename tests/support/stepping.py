"""Run something in a forked child and kill it after an exact number of machine instructions.

What the child writes to shared memory up to that instruction stays; the rest goes with it: the death of a worker, at a
place that can be chosen and tried again.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Callable

TRACEME, CONTINUE, KILL, SINGLESTEP = 0, 7, 8, 9
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class Steps:
    """A child that has done `prepare` and waits at the first instruction of `act`."""

    def __init__(self, prepare: Callable[[], Callable[[], object]]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            self._be_child(prepare)
        _, status = os.waitpid(self.pid, 0)
        assert os.WIFSTOPPED(status), f"the child ended before it began: {status}"

    @staticmethod
    def _be_child(prepare: Callable[[], Callable[[], object]]) -> None:
        try:
            gc.disable()  # a collection between here and `act` would add instructions to some children
            act = prepare()
            if _libc.ptrace(TRACEME, 0, None, None) == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
                act()
        finally:
            os._exit(0)

    def run(self, steps: int) -> int:
        """Let it execute so many instructions, or all it has; how many it did."""
        for done in range(steps):
            if _libc.ptrace(SINGLESTEP, self.pid, None, None) != 0:
                raise OSError(ctypes.get_errno(), "ptrace")
            _, status = os.waitpid(self.pid, 0)
            if not os.WIFSTOPPED(status):
                self.pid = 0
                return done
        return steps

    def finish(self) -> None:
        """Let it go on to its end."""
        while self.pid:
            if _libc.ptrace(CONTINUE, self.pid, None, None) != 0:
                raise OSError(ctypes.get_errno(), "ptrace")
            _, status = os.waitpid(self.pid, 0)
            if not os.WIFSTOPPED(status):
                self.pid = 0

    def kill(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def can_step() -> bool:
    """Whether this machine lets us trace our own children."""
    try:
        steps = Steps(lambda: lambda: None)
    except AssertionError:
        return False
    steps.kill()
    return True
