"""What the rules of failover need to know of a member and its group."""

from __future__ import annotations

import attrs

from .fences import Fence
from .records import GroupConfig


@attrs.frozen(kw_only=True)
class Settings:
    """What an operator decides, of one member. `keep_up_s` is haMaxTimeSlaveNotCatchup.

    in_sync_min: minInSyncReplicas: with fewer members in sync, the master included, a synchronous one stores nothing.
    """

    member: str
    config: GroupConfig
    lease_s: float = 6.0
    keep_up_s: float = 3.0
    without_lease: bool = True
    in_sync_min: int = 1

    @property
    def fence(self) -> Fence:
        return Fence(is_sync=self.is_sync, without_lease=self.without_lease)

    @property
    def is_sync(self) -> bool:
        """Whether sends wait for the in-sync members."""
        return self.config.mode == "sync"

    def may_store(self, in_sync: int) -> bool:
        """Whether a master with that many members in sync may store messages."""
        return not self.is_sync or in_sync >= self.in_sync_min
