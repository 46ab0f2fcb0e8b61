"""The progress of long work: one line on standard error, where that is a terminal.

Rows are printed meanwhile, often to the same terminal. So the line is erased before each of them and drawn again when
the work goes on; `rich`, which draws it, is imported only here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

T = TypeVar("T")
ERASE_LINE = "\r\x1b[2K"
DRAWN_EVERY_S = 0.1


class ProgressBar:
    """Draws how far a command is; on no file, or one that is no terminal, it draws nothing."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._progress: Progress | None = None
        self._drawn_s = float("-inf")

    @contextmanager
    def task(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Show work for the time of a block, which calls the function it gets with the number that is done.

        Args:
            what: what is counted. total: how many there will be; None: nobody knows.
        """
        if self._file is None or not self._file.isatty():
            yield lambda done: None
            return
        with new_progress(self._file) as self._progress:
            task = self._progress.add_task(what, total=total)
            try:
                yield lambda done: self._draw(task, done)
            finally:
                self._progress = None

    def steps(self, items: Sequence[T], what: str) -> Iterator[T]:
        """Yield the items and show how many are done."""
        with self.task(what, len(items)) as reached:
            for done, item in enumerate(items):
                reached(done)
                yield item

    def erase(self) -> None:
        """Take the line away, for another one that is printed now."""
        if self._progress is not None and self._file is not None:
            self._file.write(ERASE_LINE)
            self._file.flush()
            self._drawn_s = float("-inf")

    def _draw(self, task: TaskID, done: int) -> None:
        if self._progress is not None and time.monotonic() - self._drawn_s >= DRAWN_EVERY_S:
            self._drawn_s = time.monotonic()
            self._progress.update(task, completed=done, refresh=True)


def new_progress(file: TextIO) -> Progress:
    """Its display of one line, which is drawn when it is told to."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=file, force_terminal=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,  # it would send rows to standard error
        redirect_stderr=False,
    )
