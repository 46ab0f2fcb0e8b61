"""Every change that Python makes to files, and every call of the core with crash points, told to one listener.

The listener decides which disk it concerns; while it works itself, nothing is told.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from rocketpy.native.core import ffi, lib

POINT, SYNC_FILE, SYNC_FILE_SYSTEM = 0, 1, 2
KINDS = {"commitlog": "log", "consumequeue": "queue", "consumequeue_ext": "queue_ext", "index": "index"}


class Listener(Protocol):
    root: Path
    phase: str  # what it is doing; part of the names of points in Python

    def reach(self, point: str) -> None:
        """Execution is at a point: everything before it has happened, nothing after it."""

    def sync(self, descriptor: int) -> None:
        """fsync or fdatasync of a file or directory takes effect."""

    def sync_all(self) -> None: ...


class Taps:
    """Installed once per process, never removed: the process is made for it."""

    def __init__(self) -> None:
        self._listener: Listener | None = None
        self.failure: BaseException | None = None
        for name in ("pwrite", "ftruncate", "unlink", "rmdir", "mkdir"):
            setattr(os, name, self._announced(name, getattr(os, name)))
        os.fsync = self._fsync
        ffi.def_extern("crash_event")(self._event)

    @contextlib.contextmanager
    def listening(self, listener: Listener | None) -> Iterator[None]:
        """`listener` in the place of who listens now (None: nobody)."""
        before, on = self._listener, lib.crash_events_on
        self._listener = listener
        lib.crash_events_on = listener is not None
        try:
            yield
        finally:
            self._listener = before
            lib.crash_events_on = on

    def _event(self, event: int, name: Any, descriptor: int) -> None:
        """Called from C: no exception can pass there, it is kept for who called C."""
        listener = self._listener
        if listener is None or self.failure is not None:
            return
        try:
            with self.listening(None):
                if event == POINT:
                    listener.reach(ffi.string(name).decode())
                elif event == SYNC_FILE:
                    listener.sync(descriptor)
                else:
                    listener.sync_all()
        except BaseException as exc:  # raised again by `check`
            self.failure = exc

    def check(self) -> None:
        """Raise what a listener raised while C was running."""
        if self.failure is not None:
            raise self.failure

    def _announced(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def announced(target: Any, *arguments: Any, **options: Any) -> Any:
            listener = None if self.failure is not None else self._listener
            kind = None if listener is None else kind_of(target, listener.root)
            if listener is not None and kind is not None:
                with self.listening(None):
                    listener.reach(f"{listener.phase}.{kind}.{name}")
            return call(target, *arguments, **options)

        return announced

    def _fsync(self, descriptor: int) -> None:
        listener = None if self.failure is not None else self._listener
        kind = None if listener is None else kind_of(descriptor, listener.root)
        if listener is not None and kind is not None:
            with self.listening(None):
                listener.reach(f"{listener.phase}.{kind}.fsync")
                listener.sync(descriptor)


def kind_of(target: Any, root: Path) -> str | None:
    """What a path or descriptor below `root` is: log, queue, index, or the file's own name; None elsewhere."""
    path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target)
    if not path.startswith(str(root)):
        return None
    part = path[len(str(root)) + 1 :].split("/")[0]
    return KINDS.get(part, part or "root")
