"""The end of a command that runs until it is told to stop: a signal is noticed between two steps, or during a pause.

Short: archive and run share it, and neither knows the other.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

HANDLED = (signal.SIGTERM, signal.SIGINT)
PAUSE_MAX_S = 1_000_000.0  # poll takes no more than 25 days


@attrs.define(eq=False)
class Stop:
    """Tells if SIGTERM or SIGINT has come. The handler writes to a pipe, so a pause that begins just then ends."""

    _reader: int
    is_set: bool = False

    def wait(self, seconds: float) -> bool:
        """Pause for at most so long, or PAUSE_MAX_S. Returns True if the command is to stop."""
        if not self.is_set:
            poller = select.poll()
            poller.register(self._reader, select.POLLIN)
            poller.poll(min(seconds, PAUSE_MAX_S) * 1000)
        return self.is_set


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Take SIGTERM and SIGINT as a wish to stop. A second one has its usual effect: it ends the process at once."""
    reader, writer = os.pipe()
    stop = Stop(reader)
    before: dict[int, object] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal has returned

    def note(number: int, _: object) -> None:
        stop.is_set = True
        os.write(writer, b"\0")
        restore()

    before.update((number, signal.signal(number, note)) for number in HANDLED)
    try:
        yield stop
    finally:
        restore()
        os.close(reader)
        os.close(writer)
