"""Opens the store in a thread, while the main thread imports modules of the workers.

Opening is mostly C and the disk, imports are mostly Python: on two processors both together take little longer than the
longer one. The thread ends before the first fork.
"""

from __future__ import annotations

import threading
from functools import partial

from rocketpy.config import MessageStoreConfig
from rocketpy.store.recovery.lifecycle import Distrust, OpenedStore, close_store, open_store


class StoreOpening:
    """Begins at once. Always call `close()`."""

    def __init__(
        self,
        config: MessageStoreConfig,
        *,
        cut_at: int | None = None,
        stops_at_confirmed: bool = False,
        distrust: Distrust | None = None,
    ) -> None:
        """All as in store.lifecycle.open_store."""
        self._open_store = partial(
            open_store, config, cut_at=cut_at, stops_at_confirmed=stops_at_confirmed, distrust=distrust
        )
        self._opened: OpenedStore | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._open)
        self._thread.start()

    def wait(self) -> OpenedStore:
        """Wait until the store is open, and return it.

        Raises:
            StoreError: it cannot be opened (store.lifecycle.open_store).
        """
        self._thread.join()
        if self._opened is None:
            assert self._failure is not None
            raise self._failure
        return self._opened

    def close(self, *, clean: bool) -> None:
        """Close the store, if it was opened; `clean` as in store.lifecycle.close_store."""
        self._thread.join()
        if self._opened is not None:
            close_store(self._opened, clean=clean)

    def _open(self) -> None:
        try:
            self._opened = self._open_store()
        except BaseException as exc:  # raised again in `wait`
            self._failure = exc
