"""A table's file: changes are counted, writes are shared, and a caller can wait until its change is on the disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from .. import persist

log = logging.getLogger(__name__)


class ConfigFile:
    """Saves what `encode` returns, in a thread, one save at a time.

    Callers that change the table while a save runs share the next one, so a burst of new topics costs two syncs and
    not one each.
    """

    def __init__(self, path: Path, encode: Callable[[], str]) -> None:
        self.path = path
        self._encode = encode
        self._changes = 0
        self._saved = 0
        self._lock = trio.Lock()

    @property
    def is_dirty(self) -> bool:
        return self._saved != self._changes

    def changed(self) -> None:
        self._changes += 1

    def load(self) -> dict[str, Any] | None:
        return persist.load(self.path)

    async def save(self) -> None:
        """Wait until every change made so far is on the disk.

        A failing disk does not undo the change: it is logged and tried again at the next save, as the reference does.
        """
        wanted = self._changes
        async with self._lock:
            if self._saved >= wanted:
                return
            changes, text = self._changes, self._encode()
            try:
                await trio.to_thread.run_sync(persist.save, self.path, text)
            except OSError as exc:
                log.error("cannot save %s: %s; the change is kept in memory and saved later", self.path, exc)
            else:
                self._saved = changes
