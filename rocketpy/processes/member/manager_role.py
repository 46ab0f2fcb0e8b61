"""Lets the manager be what the coordinator orders: the group's broker 0, or one that follows the master.

The coordinator writes its orders before it extends the deadline of the lease, and shows the lease after both. In
between this broker is the master and not certain of it, and registers nothing. Name servers are told when it is
certain.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from rocketpy.failover.member_block import Following, MemberBlock
from rocketpy.reactor.master_link import MasterLink

from .certainty import MasterCertainty

LOOK_S = 0.05


def followed_address(block: MemberBlock) -> str | None:
    """Return the address of the master that the coordinator wants to be followed; None: of none."""
    found = block.orders()
    following = found[0].following if found is not None else None
    return None if following is None else following.address


@attrs.define(eq=False)
class ManagerRole:
    """The role of one manager, which follows the orders of the coordinator.

    Args:
        certainty: the one that registrations ask, too: it remembers when it was asked.
        be_master: begins or ends the duties of broker 0.
        register_soon: tells all name servers at once.
        master_link: on a slave.
    """

    block: MemberBlock
    certainty: MasterCertainty
    be_master: Callable[[bool], None]
    register_soon: Callable[[], None]
    master_link: MasterLink | None
    _is_master: bool = attrs.field(init=False, default=False)
    _certain_epoch: int | None = attrs.field(init=False, default=None)
    _following: Following | None = attrs.field(init=False, default=None)

    async def run(self) -> None:
        """Follow the orders until cancelled."""
        while True:
            self._look()
            await trio.sleep(LOOK_S)

    def _look(self) -> None:
        found = self.block.orders()
        if found is None:
            return
        orders = found[0]
        if orders.is_broker_0 != self._is_master:
            self._is_master = orders.is_broker_0
            self.be_master(self._is_master)
        epoch = self.certainty.epoch()
        if epoch is not None and epoch != self._certain_epoch:
            self.register_soon()
        self._certain_epoch = epoch
        if self.master_link is not None and orders.following != self._following:
            self._following = orders.following
            self.master_link.set_master(
                *((self._following.address, self._following.ha_address) if self._following else ("", ""))
            )
