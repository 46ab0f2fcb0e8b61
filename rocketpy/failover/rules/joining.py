"""The position at which a member's log must be cut before it can follow a master."""

from __future__ import annotations

import attrs

from .epochs import EpochList, common_end

CUT_BYTES_MAX = 256 << 20
"""The longest log tail that an asynchronous group cuts off a member without an operator, after a failover."""


@attrs.frozen(kw_only=True)
class Log:
    """A log by its epochs, its end, and the position up to which consumers were shown it; in bytes."""

    epochs: EpochList
    end: int
    confirmed: int


def cut_for(own: Log, master: Log, *, is_sync: bool, unclean: int = 0) -> int | None:
    """The position at which the member's log must end before it takes the master's stream.

    In a synchronous group every in-sync log has what was confirmed, so a cut below is a sign of something else: a
    store that was exchanged. In an asynchronous group everything may have been acknowledged, so a cut of more than
    CUT_BYTES_MAX is no failover's rest. People have to look at both. They have done so if the master's log has an epoch
    that an operator began by an unclean election, and this log ends in an older one.

    Args:
        unclean: the last epoch of an unclean election, as etcd has it; 0: there was none.
    Returns: the position; None: halt, the logs have diverged.
    """
    end = common_end(own.epochs, own.end, master.epochs, master.end)
    if end is None:
        return None
    if own.epochs.last < unclean and any(entry.number == unclean for entry in master.epochs.entries):
        return end
    is_too_much = end < own.confirmed if is_sync else own.end - end > CUT_BYTES_MAX
    return None if is_too_much else end


def may_serve(own_epoch: int, follower: EpochList, joined: int) -> bool:
    """Return True if a master of `own_epoch` may let a follower in that has joined epoch `joined` (-1: none yet).

    If not, the master is the older one of the two: it has learned of a higher epoch.
    """
    return max(joined, follower.last) <= own_epoch


def may_take(epoch: int, own: EpochList, newest_epoch_seen: int) -> bool:
    """Return True if a member may take and acknowledge the stream of `epoch`: never from a master older than one it
    knows.

    This is half of the replication fence. The other half: candidates and masters take no stream.
    """
    return epoch >= max(newest_epoch_seen, own.last)
