"""The orders of a member to its broker; complete each time, so that repeating them changes nothing."""

from __future__ import annotations

import attrs

from .fences import NEVER_S
from .in_sync import StoreId
from .states import Duties, State


@attrs.frozen(kw_only=True)
class Orders:
    """To be carried out at once, before anything else is asked of etcd.

    epoch: the one to serve, in PROMOTING, MASTER, FENCED and SWITCHING_OVER; otherwise -1. In PROMOTING the broker
        opens it: drains its ring, writes (epoch, end of its log) to the epoch file, syncs it, works out the next
        offsets of all queues, and then reports it as `opened`.
    following: the member whose stream to take, and the epoch that etcd names; None: take no stream.
    counting: members whose acknowledgements under `epoch` a position needs before it is confirmed, this one included.
        If it is the only one, a synchronous master answers SLAVE_NOT_AVAILABLE.
    is_next_master: an operator has asked this slave to take over, a moment ago.
    unclean: the last epoch of an unclean election; 0: there was none. Logs of older epochs may be cut for it.
    deadline_s: CLOCK_BOOTTIME until which sends may be answered SUCCESS; compared right before answers leave.
    """

    state: State
    duties: Duties
    epoch: int = -1
    following: tuple[str, int] | None = None
    counting: frozenset[StoreId] = frozenset()
    is_next_master: bool = False
    deadline_s: float = NEVER_S
    unclean: int = 0
