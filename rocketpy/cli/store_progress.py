"""Shows the progress of a check of a store: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text


class StoreProgress:
    """A `ProgressListener` with one bar per phase, on standard error."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:>6}"),
            BarColumn(),
            _ByUnit(DownloadColumn(), MofNCompleteColumn()),
            _ByUnit(TransferSpeedColumn(), None),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: int | None = None

    def __enter__(self) -> StoreProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, what: str, total: int, unit: str) -> None:
        self._finish()
        self._task = int(self._progress.add_task(what, total=total, unit=unit))

    def reached(self, done: int) -> None:
        if self._task is not None:
            task = self._progress.tasks[self._task]
            self._progress.update(task.id, completed=done, total=max(done, int(task.total or 0)))

    def _finish(self) -> None:
        """Complete the bar: the log may end before its last file."""
        if self._task is not None:
            task = self._progress.tasks[self._task]
            self._progress.update(task.id, total=task.completed)


class _ByUnit(ProgressColumn):
    """A column that shows phases counted in bytes by one column, and the rest by another."""

    def __init__(self, of_bytes: ProgressColumn, of_pieces: ProgressColumn | None) -> None:
        super().__init__()
        self._of_bytes = of_bytes
        self._of_pieces = of_pieces

    def render(self, task: Task) -> Text:
        column = self._of_bytes if task.fields.get("unit") == "bytes" else self._of_pieces
        rendered = column(task) if column is not None else Text()
        return rendered if isinstance(rendered, Text) else Text(str(rendered))
