"""The interface between the coordinator and its broker: reports of store and replication, and a place to give
orders."""

from __future__ import annotations

from typing import Protocol

from rocketpy.failover.rules.orders import Orders
from rocketpy.failover.rules.requests import Report


class MemberBroker(Protocol):
    """The broker of a member, as its coordinator sees it. No call may wait."""

    def report(self) -> Report:
        """Return the state of the broker now. Its positions may be older than the moment, never newer."""
        ...

    def apply(self, orders: Orders) -> None:
        """Begin to carry out orders.

        Three things are done when it returns, because the next transaction rests on them: `counting` holds for every
        position that is confirmed from now on, `deadline_s` for every answer, and sends are refused if the duties say
        so. A stream that must end may take longer, and so may the sends of a master that hands over, which takes what
        it has read: `done` of the report says when both have ended.
        """
        ...

    def refute_epoch(self, seen: int, newest: int) -> None:
        """A peer has named epoch `seen`, but etcd, asked afterwards, knows none above `newest`: `newest_epoch_seen` of
        the report is `newest` from now on, unless it has changed meanwhile."""
        ...
