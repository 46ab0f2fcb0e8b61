"""The file of a table: counts changes, combines them into saves, and lets a caller wait until its change is on the
disk.

A table never changes an entry in place (`evolved`), so a copy of the table is encoded as it was, whatever happens
meanwhile (`with_unknown_fields`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import attrs
import trio

from rocketpy.remoting.bodies.schema import Body
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.json_writer import Members
from rocketpy.transport.steps import encoded

from ..files import json_file

logger = logging.getLogger(__name__)

RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0

_B = TypeVar("_B", bound=Body)


class ConfigFile:
    """Saves the output of `pieces`: encoded in steps that let other tasks run, written in a thread, one save at a time.

    Callers that change the table while a save runs share the next save, so a burst of new topics costs two syncs, not
    one per topic.

    `pieces` is called when a save starts. Every entry that it produces must be at least as new as that moment.
    Independent entries (offsets) may be looked up late. Values that belong together (a table and its version) must be
    copied at the start.
    """

    def __init__(self, path: Path, pieces: Callable[[], Iterable[str]]) -> None:
        self.path = path
        self._pieces = pieces
        self._changes = 0
        self._saved = 0
        self._lock = trio.Lock()
        self._failures = 0
        self._retry_at_s = 0.0
        self.on_saved: Callable[[int], None] = lambda changes: None
        """Called after each completed save, with the number of the last change before it started."""
        self.on_written: Callable[[Sequence[bytes]], None] = lambda pieces: None
        """Called in the thread of a save, with what the file has from now on."""

    @property
    def changes(self) -> int:
        """The number of the last change; counts from 1."""
        return self._changes

    @property
    def is_dirty(self) -> bool:
        return self._saved != self._changes

    def changed(self) -> None:
        self._changes += 1

    def load(self) -> dict[str, Any] | None:
        return json_file.load(self.path)

    async def save(self, *, last: bool = False) -> None:
        """Wait until every change so far is on the disk.

        A failed write does not undo the change. It is logged and tried again by a later save, as in the reference, but
        not before a waiting time; saves within that time return at once. `last`: try to write even within that time.
        """
        wanted = self._changes
        if self._saved >= wanted:
            return  # at once: the lock costs a turn of the loop, for each heartbeat and each second of an idle broker
        async with self._lock:
            if self._saved >= wanted or (trio.current_time() < self._retry_at_s and not last):
                return
            changes = self._changes
            try:
                pieces = await encoded(self._pieces())
                await trio.to_thread.run_sync(self._write, pieces)
            except OSError as exc:
                self._failed(exc)
            else:
                self._saved, self._failures, self._retry_at_s = changes, 0, 0.0
                self.on_saved(changes)

    def _write(self, pieces: Sequence[bytes]) -> None:
        json_file.save(self.path, pieces)
        self.on_written(pieces)

    def _failed(self, exc: OSError) -> None:
        wait_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        self._retry_at_s = trio.current_time() + wait_s
        logger.error(
            "cannot save %s: %s; keeping the changes in memory, trying again in %.0f s or later",
            self.path,
            exc,
            wait_s,
        )


def with_unknown_fields(
    member: str, version: DataVersion, table: Mapping[str, Body], unknown: Mapping[str, Mapping[str, Any]]
) -> Members:
    """A table for its file and for response bodies: `{"dataVersion": .., member: {name: fields}}`. Each entry is made
    while it is written.

    Args:
        table: a copy of the table, taken together with `version`; its values never change. unknown: fields that we do
        not know from files of other versions, by name; looked up late.
    """

    def entries() -> Iterator[tuple[str, object]]:
        for name, config in table.items():
            extra = unknown.get(name)
            yield name, config if extra is None else {**extra, **dict(config.wire_members())}

    return Members(lambda: [("dataVersion", version), (member, Members(entries))])


def evolved(body: _B, **changes: object) -> _B:
    """A copy of `body` with these attributes. Every Body is an attrs class, which the type checker cannot know."""
    return cast(_B, attrs.evolve(cast(Any, body), **changes))
