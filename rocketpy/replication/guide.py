"""The guide of a slave: names the master to follow, and says how patient the slave may be with it.

`NamedMaster` is that of a plain slave. With automatic failover `Follower` (follower.py) is the guide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol

import attrs

from rocketpy.reactor.master_link import MasterLink

from .errors import CannotFollow, MasterUnusable
from .master_log import request_address


class MasterAddress(NamedTuple):
    """The addresses of a master, `host:port` each."""

    requests: str
    ha: str


class Guide(Protocol):
    """The questions of a slave's replicator about its master, named by hand or by a coordinator."""

    turn_s: ClassVar[float]
    """The longest time between two looks for news, while the slave waits."""
    backoff_max_s: ClassVar[float]
    """The longest wait between two tries of one master."""
    halt_ends_without_master: ClassVar[bool]
    """True: the slave tries a master that did not fit once more, if there was no master meanwhile."""

    def master(self, is_drained: Callable[[], bool]) -> MasterAddress | None:
        """Return the master to follow; None: it is not known, or there is none.

        Args:
            is_drained: True if all that was received is in the log.
        Raises:
            MasterUnusable: its address is none.
        """
        ...

    @property
    def has_news(self) -> bool:
        """Return True if there are orders that were not read, and a wait should end."""
        ...

    def check(self) -> None:
        """Look for news during a handshake. Raises: OtherOrders: another master is to be followed, or none."""
        ...

    def is_final(self, why: CannotFollow) -> bool:
        """Return True if the slave halts for this reason; otherwise it tries again."""
        ...

    def halt(self) -> None:
        """The slave has halted."""
        ...


@attrs.frozen(eq=False)
class NamedMaster:
    """Names the master that the name server knows; `given`, which is haMasterAddress, counts more."""

    link: MasterLink
    given: str | None

    turn_s: ClassVar[float] = 1.0
    backoff_max_s: ClassVar[float] = 5.0
    halt_ends_without_master: ClassVar[bool] = False

    def master(self, is_drained: Callable[[], bool]) -> MasterAddress | None:
        """Return the master to follow; None: it is not known.

        Raises:
            MasterUnusable: its HA address is none.
        """
        known = self.link.master()
        if known is None:
            return None
        master, ha = known
        if self.given and self.given != ha:  # positions and tables must come from the broker that sends the log
            master, ha = "", self.given
        if not ha:
            return None
        try:
            return MasterAddress(master or request_address(ha), ha)
        except ValueError as exc:
            raise MasterUnusable(f"{ha!r}: {exc}; correct haMasterAddress") from exc

    @property
    def has_news(self) -> bool:
        return False

    def check(self) -> None:
        """Do nothing: nobody calls a plain slave away from its master."""

    def is_final(self, why: CannotFollow) -> bool:
        """Return True: only the operator can help."""
        return True

    def halt(self) -> None:
        """Do nothing: the operator reads it in the log."""
