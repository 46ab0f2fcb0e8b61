"""The settings of a member and its group that the rules of failover need, and how they differ."""

from __future__ import annotations

from typing import Any

import attrs

from .fences import Fence
from .records import SYNC_FLUSH, GroupConfig

_PROPERTIES = {"format": "the format of the keys", "file_size": "mappedFileSizeCommitLog"}


def differences(own: GroupConfig, group: GroupConfig, member: str) -> str:
    """Return the settings with which `member` cannot be in its group, for its operator; empty: there are none."""
    found = [
        _difference(name, getattr(own, name), getattr(group, name))
        for name in ("format", "mode", "file_size")
        if getattr(own, name) != getattr(group, name)
    ]
    if group.flush == SYNC_FLUSH and own.flush != SYNC_FLUSH:
        found.append(_difference("flush", own.flush, group.flush))
    if member not in group.members:
        known = ",".join(group.members)
        found.append(f"haMember is {member} here, and the group has {known}: mqadmin haConfigure adds it")
    return "; ".join(found)


def overruled(own: GroupConfig, group: GroupConfig) -> str:
    """Return the settings that are others in the group and count there; empty: there are none."""
    names = [name for name in ("members", "in_sync_min") if getattr(group, name)]
    return "; ".join(
        _difference(name, getattr(own, name), getattr(group, name))
        for name in names
        if getattr(own, name) != getattr(group, name)
    )


def _difference(name: str, ours: Any, theirs: Any) -> str:
    if name == "mode":
        name, ours, theirs = "brokerRole", f"{ours.upper()}_MASTER", f"{theirs.upper()}_MASTER"
    elif name == "members":
        name, ours, theirs = "haMembers", ",".join(ours), ",".join(theirs)
    known = {"in_sync_min": "minInSyncReplicas", "flush": "flushDiskType"} | _PROPERTIES
    return f"{known.get(name, name)} is {ours} here and {theirs} in the group"


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
        """Return the settings of this member in a group: its list of members, and its minimum in sync, count."""
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
