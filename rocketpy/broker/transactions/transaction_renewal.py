"""Stores open half messages again that are far behind the others (docs/adr/0100).

The states of half messages are a window (csrc/store/transactions/half_states.h), which begins with the oldest open one.
One that may stay open for days (CHECK_IMMUNITY_TIME_IN_SECONDS) would hold the window while millions are sent and
ended, until none is taken any more; and a start reads all op messages from there on. So it is stored again at the end
of the half queue, and its first copy ends in the same step. The end that its producer sends for the first place is
passed on."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketpy.logs import LogLimit, and_more
from rocketpy.message.names import TRANS_HALF_TOPIC
from rocketpy.message.record import StoredRecord
from rocketpy.remoting.fast_path import EndTransaction, FastPath, TransactionEnd

from ..store_api import Store

logger = logging.getLogger(__name__)

BEHIND_MAX = 1 << 24  # half messages after the oldest open one; the window holds four times as many
SHARE_MAX = 16  # one of so many may be open, else storing them again would free little for what it takes
AT_ONCE_MAX = 1_000


class TransactionRenewal:
    """The renewal of half messages that stay open. One per manager.

    Args:
        read: the record of a half message; None: it cannot be read. moved: called with the offsets of a half message
            that was stored again, before and now.
    """

    def __init__(
        self,
        store: Store,
        fast_path: FastPath,
        read: Callable[[int], StoredRecord | None],
        moved: Callable[[int, int], None],
    ) -> None:
        self._store = store
        self._fast_path = fast_path
        self._read = read
        self._moved = moved
        self._limit = LogLimit()

    async def run(self) -> None:
        """Store the oldest open half messages again, if too many others are behind them."""
        states, end = self._fast_path.half_states, self._store.max_offset(TRANS_HALF_TOPIC, 0)
        base, until = states.base, end - BEHIND_MAX // 2
        if end - base <= BEHIND_MAX:
            return
        count = states.count_open(base, until)
        if count > (until - base) // SHARE_MAX:
            self._warn_of_many(count, end - base)
            return
        renewed, offset = 0, states.next_open(base, until)
        while offset < until and renewed < AT_ONCE_MAX:
            renewed += await self._renew(offset)
            offset = states.next_open(offset + 1, until)
        if renewed:
            logger.info(
                "stored %d open transactions again: %d half messages had come after the first of them",
                renewed,
                end - base,
            )

    async def _renew(self, offset: int) -> bool:
        """Returns True if it is open at another offset now. One that has ended meanwhile stays as it is."""
        record = self._read(offset)
        if record is None:
            return False  # the next check ends it
        result = await self._fast_path.end_transaction(EndTransaction(TransactionEnd.RENEW, offset, record.phy_offset))
        if not result.is_stored or result.queue_offset <= offset:
            return False
        self._moved(offset, result.queue_offset)
        return True

    def _warn_of_many(self, count: int, behind: int) -> None:
        told = self._limit.take()
        if told:
            logger.warning(
                "transactions stay open: %d among the oldest of %d half messages; after %d half messages sends in "
                "transactions will be refused; see which producer groups do not end theirs%s",
                count,
                behind,
                4 * BEHIND_MAX,
                and_more(told),
            )
