"""Does work in a forked copy of this process, which has all tables of one instant, and takes over the bytes it makes.

The copy has one thread. Locks of other threads stay as they were at the fork, so work takes none, imports nothing and
logs nothing. It has the standard streams and its output; other descriptors are closed, or clients that are gone would
seem to be there. It dies with this process, before others if memory is short, and what it changes is lost with it.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import attrs

from rocketpy.faults import describe
from rocketpy.reactor.process import Identity, hold_signals

BYTES_MAX = 64 << 20
OOM_SCORE = Path("/proc/self/oom_score_adj")
FIRST_KILLED = "1000"
MADE, FAILED = 0, 1  # exit status


class CopyFailed(Exception):
    """The copy made nothing; the text says why."""


@attrs.frozen(eq=False)
class ForkedCopy:
    """A copy at work. `result` ends it, and must be called."""

    pid: int
    pidfd: int
    output: int

    @classmethod
    def begin(cls, work: Callable[[], bytes], title: str) -> ForkedCopy:
        """Fork a copy that does `work`. In the thread that owns the tables, which lives as long as the process: the
        copy dies with it.

        Raises: OSError: there is no process, memory or descriptor for it.
        """
        output = os.memfd_create(title, os.MFD_CLOEXEC)
        try:
            identity, parent = Identity(title, [output], prefers_latency=False), os.getpid()
            with hold_signals(), warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: other threads; see the module
                pid = os.fork()
                if pid == 0:
                    _be_copy(work, identity, parent, output)
            try:
                return cls(pid, os.pidfd_open(pid), output)
            except OSError:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
        except OSError:
            os.close(output)
            raise

    def result(self, within_s: float) -> bytes:
        """Wait until the copy has ended, in any thread, and return what it has made.

        Raises: CopyFailed: nothing, not within `within_s`, or more than BYTES_MAX.
        """
        try:
            return self._made(self._ended_by(within_s))
        finally:
            os.close(self.pidfd)
            os.close(self.output)

    def _ended_by(self, within_s: float) -> int:
        poller = select.poll()
        poller.register(self.pidfd, select.POLLIN)
        is_late = not poller.poll(within_s * 1000)
        if is_late:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if is_late:
            raise CopyFailed(f"it took more than {within_s:g} s")
        return status

    def _made(self, status: int) -> bytes:
        if status < 0:
            raise CopyFailed(f"its process was killed by {signal.Signals(-status).name}")
        size = os.fstat(self.output).st_size
        if size > BYTES_MAX:
            raise CopyFailed(f"it has more than {BYTES_MAX} bytes")
        made = os.pread(self.output, size, 0)
        if status != MADE:
            raise CopyFailed(made.decode(errors="replace") or f"its process ended with status {status}")
        return made


def _be_copy(work: Callable[[], bytes], identity: Identity, parent: int, output: int) -> NoReturn:
    status = FAILED
    try:
        identity.take(parent)
        gc.disable()  # a collection writes to each page of the tables, which are shared
        logging.disable()
        with contextlib.suppress(OSError):
            OOM_SCORE.write_text(FIRST_KILLED)
        made = work()
        if len(made) > BYTES_MAX:
            raise CopyFailed(f"it has more than {BYTES_MAX} bytes")
        _write(output, made)
        status = MADE
    except BaseException as fault:
        reason = str(fault) if isinstance(fault, CopyFailed) else describe(fault)
        _write(output, reason.encode())
    finally:
        os._exit(status)


def _write(output: int, made: bytes) -> None:
    rest = memoryview(made)
    os.ftruncate(output, 0)
    while rest:
        rest = rest[os.write(output, rest) :]
