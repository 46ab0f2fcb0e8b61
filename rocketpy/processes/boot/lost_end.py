"""Says at the start of a master whether a slave may have messages that this log has lost.

The control block tells what a slave had, but the kernel writes it to the disk when it likes. So after a loss of power
the position that is found is one that a slave certainly had, and the slave may have more.
"""

from __future__ import annotations

import logging

from rocketpy.config import BrokerSettings, FlushDiskType
from rocketpy.store.recovery.lifecycle import OpenedStore

logger = logging.getLogger(__name__)


def begin_replication(opened: OpenedStore, settings: BrokerSettings) -> None:
    """Nothing counts as replicated until a slave says so: the log may be shorter than what slaves have."""
    header = opened.control.header
    header.replicated_phy_offset = 0
    text = None if settings.is_slave else lost_end(opened, settings.store.flush_disk_type)
    if text:
        logger.warning("%s", text)


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
