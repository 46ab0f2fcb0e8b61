"""The store, opened in a thread while the main thread imports what the workers need.

Most of the opening is C and the disk, most of the other is Python: on two processors they cost little more than the
longer of the two. The thread has ended before anything is forked.
"""

from __future__ import annotations

import threading

from rocketpy.config import MessageStoreConfig
from rocketpy.store.recovery.lifecycle import OpenedStore, close_store, open_store


class StoreOpening:
    """Begins at once. `close()` whatever happens."""

    def __init__(self, config: MessageStoreConfig) -> None:
        self._config = config
        self._opened: OpenedStore | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._open)
        self._thread.start()

    def wait(self) -> OpenedStore:
        """The open store, when it is.

        Raises:
            StoreError: it cannot be opened (store.lifecycle.open_store).
        """
        self._thread.join()
        if self._opened is None:
            assert self._failure is not None
            raise self._failure
        return self._opened

    def close(self, *, clean: bool) -> None:
        """Let go of the store, if there is one; `clean` as in store.lifecycle.close_store."""
        self._thread.join()
        if self._opened is not None:
            close_store(self._opened, clean=clean)

    def _open(self) -> None:
        try:
            self._opened = open_store(self._config)
        except BaseException as exc:  # raised again by who waits
            self._failure = exc
