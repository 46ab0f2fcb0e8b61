"""Opens the store in a thread, while the main thread imports modules of the workers.

Opening is mostly C and the disk, imports are mostly Python: on two processors both together take little longer than the
longer one. Without it a start on 1 GiB and 800 queues takes 40 % more time (memory.py). The thread ends before the
first fork.

- Before: the log of a plain slave may have to be cut, while nothing else has it open. Its broker stops in order, and
  starts again in the same process. With automatic failover the guardian does the same with its process tree.
- After: a master warns of messages that a slave may have, and this log has lost. The control block tells what a slave
  had, but the kernel writes it to the disk when it likes. So after a loss of power the position that is found is one
  that a slave certainly had, and the slave may have more.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from functools import partial
from pathlib import Path

from rocketpy.config import BrokerSettings, FlushDiskType, MessageStoreConfig
from rocketpy.store.recovery.diverged import take_cut_request
from rocketpy.store.recovery.lifecycle import Distrust, OpenedStore, close_store, open_store

logger = logging.getLogger(__name__)


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
        """Begin to open the store, in a thread. The arguments are those of store.recovery.lifecycle.open_store."""
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
            StoreError: it cannot be opened (store.recovery.lifecycle.open_store).
        """
        self._thread.join()
        if self._opened is None:
            assert self._failure is not None
            raise self._failure
        return self._opened

    def close(self, *, clean: bool) -> None:
        """Close the store, if it was opened; `clean` as in store.recovery.lifecycle.close_store."""
        self._thread.join()
        if self._opened is not None:
            close_store(self._opened, clean=clean)

    def _open(self) -> None:
        try:
            self._opened = self._open_store()
        except BaseException as exc:  # raised again in `wait`
            self._failure = exc


def start_again() -> None:
    """Replace this process by what it was started as, with the same pid. Never returns.

    All that it had open is closed, but the sockets that `ServiceManager.tell_restart` has passed on.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def requested_cut(settings: BrokerSettings) -> int | None:
    """Return the position at which to cut the log, if the replicator of this slave has asked for it; None: no cut.

    Raises:
        StoreError: the request cannot be read or removed.
    """
    position = take_cut_request(Path(settings.store.store_path_root_dir))
    if position is None or (settings.is_slave and settings.store.ha_truncate_diverged):
        return position
    logger.warning("the log was to be cut at %d, which haTruncateDiverged does not allow now: it stays", position)
    return None


def begin_replication(opened: OpenedStore, settings: BrokerSettings) -> None:
    """Count nothing as replicated until a slave says so: the log may be shorter than what slaves have."""
    header = opened.control.header
    header.replicated_phy_offset = 0
    text = None if settings.is_slave else lost_end(opened, settings.store.flush_disk_type)
    if text:
        logger.warning("replication: %s", text)


def lost_end(opened: OpenedStore, flush: FlushDiskType) -> str | None:
    """Return a warning that slaves have messages which the log of this master lacks, with the remedy; None: none are
    known."""
    end, replicated = opened.control.published_phy_offset, opened.replicated_before
    remedy = (
        "before a producer sends: stop this broker and promote that slave, or empty the slave's store "
        "(docs/run/replication.md, Promote a slave)"
    )
    if replicated > end:
        return (
            f"lost the end of the log: it ends at {end}, and a slave has it up to {replicated} at least. "
            f"Decide {remedy}"
        )
    if replicated and opened.lost_power and flush is FlushDiskType.ASYNC_FLUSH:
        return (
            f"the log may have lost its end with the power: it ends at {end}, and a slave has it up to {replicated} at "
            f"least. If a slave is refused because its log is longer, decide {remedy}"
        )
    return None
