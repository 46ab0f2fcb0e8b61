"""Seen ids in an SQLite database: a file of their own, or that of the handlers' effects.

One connection, and a lock around it: SQLite has one writer anyway. An id takes about 100 bytes.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

DAY_S = 86_400.0
TRIM_EVERY = 1_000  # additions between two removals of old ids
BUSY_S = 30.0  # for another process that writes to the file

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rocketpy_seen (
    scope TEXT NOT NULL, key TEXT NOT NULL, seen_s REAL NOT NULL, PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rocketpy_seen_by_age ON rocketpy_seen (scope, seen_s);
"""
_OVER_COUNT = """
DELETE FROM rocketpy_seen WHERE scope = ? AND seen_s < (
    SELECT seen_s FROM rocketpy_seen WHERE scope = ? ORDER BY seen_s DESC LIMIT 1 OFFSET ?
)
"""


class SqliteSeenIds:
    """`SeenIds` and `TransactionalIds` of one consumer group. Safe for threads; other processes may use the file.

    Args:
        path: the file, made if it is missing.
        scope: the group; others that use the file have ids of their own.
        max_age: seconds that an id is kept, longer than a message can come again (3 days, as brokers keep messages).
        max_count: ids that are kept, the newest (1 million). Up to `TRIM_EVERY` more may be there.
        now_s: the clock, for tests.
    """

    def __init__(
        self,
        path: str | Path,
        scope: str = "",
        *,
        max_age: float = 3 * DAY_S,
        max_count: int = 1_000_000,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._scope, self._max_age, self._max_count, self._now_s = scope, max_age, max_count, now_s
        self._lock = threading.RLock()
        self._additions = 0
        self._database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.executescript(_SCHEMA)
            self._trim()
        except BaseException:
            self._database.close()  # the caller has no object to close: a ResourceWarning from Python 3.13 on
            raise

    def has(self, key: str) -> bool:
        with self._lock:
            return self._find(key)

    def add(self, key: str) -> None:
        with self.transaction(key):
            pass

    @contextmanager
    def transaction(self, key: str) -> Iterator[sqlite3.Connection | None]:
        """A transaction that keeps the id, for effects in this file; None: the id is kept already.

        Handlers that share the object wait for each other. Do not commit in the block.
        """
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                is_new = not self._find(key)
                if is_new:
                    row = (self._scope, key, self._now_s())
                    self._database.execute("REPLACE INTO rocketpy_seen VALUES (?, ?, ?)", row)
                    self._additions += 1
                    if self._additions % TRIM_EVERY == 0:
                        self._trim()
                yield self._database if is_new else None
                self._database.execute("COMMIT")
            except BaseException:
                self._database.rollback()  # does nothing where SQLite has done so
                raise

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _find(self, key: str) -> bool:
        oldest_s = self._now_s() - self._max_age
        row = (self._scope, key, oldest_s)
        query = "SELECT 1 FROM rocketpy_seen WHERE scope = ? AND key = ? AND seen_s >= ?"
        return self._database.execute(query, row).fetchone() is not None

    def _trim(self) -> None:
        """Remove ids that are too old, or more than `max_count`."""
        too_old = (self._scope, self._now_s() - self._max_age)
        self._database.execute("DELETE FROM rocketpy_seen WHERE scope = ? AND seen_s < ?", too_old)
        self._database.execute(_OVER_COUNT, (self._scope, self._scope, self._max_count - 1))
