"""Run something in a forked child and kill it after an exact number of machine instructions.

What the child writes to shared memory up to that instruction stays; the rest goes with it: the death of a worker, at a
place that can be chosen and tried again.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Callable

TRACEME, CONTINUE, KILL, SINGLESTEP, GETREGSET = 0, 7, 8, 9, 0x4204
PRSTATUS = 1  # the general registers
COUNTERS = {"x86_64": 16, "aarch64": 32}  # the program counter among them
REGISTERS_MAX = 64
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Steps:
    """A child that has done `prepare` and waits just before `act`, or at a function that `act` calls.

    The interpreter takes another number of instructions to a function whenever it has to find memory, so whoever counts
    instructions and needs the same ones in many children counts from `entry` on.
    """

    def __init__(self, prepare: Callable[[], Callable[[], object]], *, entry: int = 0) -> None:
        """`entry`: the address of the function; 0: none."""
        self.pid = os.fork()
        if self.pid == 0:
            self._be_child(prepare)
        _, status = os.waitpid(self.pid, 0)
        assert os.WIFSTOPPED(status), f"the child ended before it began: {status}"
        while entry and self._place() != entry:
            assert self.run(1) == 1, "the function was not called"

    @staticmethod
    def _be_child(prepare: Callable[[], Callable[[], object]]) -> None:
        try:
            act = prepare()
            if _libc.ptrace(TRACEME, 0, None, None) == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
                act()
        finally:
            os._exit(0)

    def _place(self) -> int:
        """The address of the next instruction."""
        registers = (ctypes.c_uint64 * REGISTERS_MAX)()
        vector = _Vector(ctypes.addressof(registers), ctypes.sizeof(registers))
        if _libc.ptrace(GETREGSET, self.pid, PRSTATUS, ctypes.byref(vector)) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")
        return int(registers[COUNTERS[platform.machine()]])

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
