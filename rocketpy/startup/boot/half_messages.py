"""Finds the open half messages of a store before the workers are forked (csrc/store/half_recovery.h).

Every half message below the stored progress has ended. The progress is in consumerOffset.json, as in the reference.
That file may be large, so only the one number is looked for.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from pathlib import Path

from rocketpy.message.names import TRANS_GROUP, TRANS_HALF_TOPIC
from rocketpy.native.core import ffi, lib
from rocketpy.reactor.half_states import SharedHalfStates
from rocketpy.store.control_block import fail
from rocketpy.store.formats.unit import rounded_file_size
from rocketpy.store.recovery.lifecycle import OpenedStore

_KEY = f'"{TRANS_HALF_TOPIC}@{TRANS_GROUP}"'.encode()
_PROGRESS = re.compile(_KEY + rb'\s*:\s*\{\s*"?0"?\s*:\s*(\d{1,18})\b')
logger = logging.getLogger(__name__)


def recovered_half_states(opened: OpenedStore) -> SharedHalfStates:
    """The states of the store's half messages.

    Raises:
        StoreError: the consume queues or the log cannot be read.
    """
    control = opened.control
    states = SharedHalfStates()
    if control.queue(TRANS_HALF_TOPIC, 0) is None:
        return states
    found = ffi.new("rp_half_recovery *")
    status = lib.rp_half_recover(
        states.pointer,
        stored_progress(opened.paths.root / "config" / "consumerOffset.json"),
        control.block,
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


def stored_progress(path: Path) -> int:
    """The offset below which every half message has ended; 0 if it is not known."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        with contextlib.suppress(OSError):
            found = _PROGRESS.search(candidate.read_bytes())
            if found:
                return int(found[1])
    return 0
