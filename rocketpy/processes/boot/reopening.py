"""A plain slave whose log has to be cut: its broker stops in order, and starts again in the same process.

A log is cut while nothing else has it open. With automatic failover the guardian does the same with its process tree.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from rocketpy.config import BrokerSettings
from rocketpy.store.recovery.diverged import take_cut_request

logger = logging.getLogger(__name__)


def start_again() -> None:
    """Replace this process by what it was started as. All that it had open is closed; its pid stays. Never returns."""
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
