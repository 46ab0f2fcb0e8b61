"""The settings of a member and its group that the rules of failover need."""

from __future__ import annotations

import attrs

from .fences import Fence
from .records import GroupConfig, differences


@attrs.frozen(kw_only=True)
class Settings:
    """An operator's settings of one member. `keep_up_s` is haMaxTimeSlaveNotCatchup.

    in_sync_min: minInSyncReplicas: with fewer members in sync, the master included, a synchronous one stores nothing.
    keep_history_s: haEtcdCompactHours, in seconds.
    fault_s: haUnhealthySeconds: a master with a fault for this long gives way to another member; 0: it does not.
    """

    member: str
    config: GroupConfig
    lease_s: float = 6.0
    keep_up_s: float = 3.0
    without_lease: bool = True
    in_sync_min: int = 1
    fault_s: float = 5.0
    keep_history_s: float = 0.0

    @property
    def fence(self) -> Fence:
        return Fence(is_sync=self.is_sync, without_lease=self.without_lease)

    @property
    def is_sync(self) -> bool:
        """Return True if sends wait for the in-sync members."""
        return self.config.mode == "sync"

    def in_group(self, group: GroupConfig | None) -> Settings:
        """The settings of this member in a group: its list of members, and its minimum in sync, count."""
        if group is None:
            return self
        config = attrs.evolve(self.config, members=group.members)
        return attrs.evolve(self, config=config, in_sync_min=group.in_sync_min or self.in_sync_min)

    def may_be_in(self, group: GroupConfig | None) -> bool:
        """Return True if this member fits a group, or nothing is known of it."""
        return group is None or not differences(self.config, group, self.member)

    def may_store(self, in_sync: int) -> bool:
        """Return True if a master with this number of members in sync may store messages."""
        return not self.is_sync or in_sync >= self.in_sync_min
