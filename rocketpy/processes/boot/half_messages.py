"""Finds the open half messages of a store before the workers are forked (csrc/store/transactions/half_recovery.h).

The saved progress was held to the log before (table_check.py): the log of a slave, or of a store that was put back, may
end before the ends of transactions that the progress has passed. Offsets of CID_RMQ_SYS_TRANS in consumerOffset.json
say nothing here, because no position comes with them.
"""

from __future__ import annotations

import logging
import os

from rocketpy.broker.fast_path.shared_memory import SharedHalfStates
from rocketpy.broker.transactions.transaction_progress import FILE_NAME, progress_in
from rocketpy.errors import StoreError
from rocketpy.message.names import TRANS_HALF_TOPIC
from rocketpy.native.core import ffi, lib
from rocketpy.store.control_block import fail
from rocketpy.store.formats.unit import rounded_file_size
from rocketpy.store.recovery.lifecycle import OpenedStore

logger = logging.getLogger(__name__)


def recovered_half_states(opened: OpenedStore) -> SharedHalfStates:
    """Return the states of the store's half messages.

    Raises:
        StoreError: the consume queues, the log or the saved progress cannot be read. ConfigError: it is damaged.
    """
    states = SharedHalfStates()
    path = opened.paths.root / "config" / FILE_NAME
    try:
        progress = progress_in(path)
    except OSError as exc:
        raise StoreError(f"cannot read {path}: {exc}") from exc
    found = ffi.new("rp_half_recovery *")
    status = lib.rp_half_recover(
        states.pointer,
        progress,
        opened.control.block,
        os.fsencode(opened.paths.commitlog),
        os.fsencode(opened.paths.consumequeue),
        rounded_file_size(opened.config.mapped_file_size_consume_queue),
        found,
    )
    if status != lib.RP_OK:
        raise fail(f"cannot read the half messages of {opened.paths.root}", status)
    if found.open or found.copies:
        logger.info(
            "found %d open transactions from offset %d of %s on; %d op messages read, %d copies of other half messages",
            found.open,
            states.base,
            TRANS_HALF_TOPIC,
            found.ops,
            found.copies,
        )
    if found.ops_missing:
        logger.warning(
            "the log was cut after the committed messages of %d transactions, before their op messages; the op "
            "messages are stored again, so nothing is delivered twice",
            found.ops_missing,
        )
    return states
