"""Settings of subscription groups: reads before it writes.

Java's updateSubGroup resets settings that are not given; here those of an existing group stay unchanged, unless
`replace` is set. A new group gets Java's: it may not broadcast and not start at the oldest message.
"""

from __future__ import annotations

import attrs

from rocketpy.remoting.bodies.group import SubscriptionGroupConfig

from .admin import Admin
from .java_text import fields, group_fields


@attrs.frozen
class GroupChange:
    """A change of a group's settings; None keeps a setting."""

    consume_enable: bool | None = None
    consume_from_min_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    retry_queue_nums: int | None = None
    retry_max_times: int | None = None
    broker_id: int | None = None
    which_broker_when_consume_slowly: int | None = None
    notify_consumer_ids_changed: bool | None = None

    def applied_to(self, group: str, present: SubscriptionGroupConfig | None) -> SubscriptionGroupConfig:
        """The settings after the change. `present` None: the group is new, or all its settings are replaced."""
        config = present or SubscriptionGroupConfig(
            group_name=group, consume_from_min_enable=False, consume_broadcast_enable=False
        )
        for field in attrs.fields(GroupChange):
            wanted = getattr(self, field.name)
            if wanted is not None:
                name = field.name
                setattr(config, f"{name}_enable" if name == "notify_consumer_ids_changed" else name, wanted)
        return config


async def change_group(
    admin: Admin, address: str, group: str, change: GroupChange, *, replace: bool = False
) -> SubscriptionGroupConfig:
    """Apply a change on one master. Returns: the settings it has now."""
    present = None if replace else (await admin.group_configs(address)).get(group)
    config = change.applied_to(group, present)
    await admin.create_group(address, config)
    return config


def config_text(config: SubscriptionGroupConfig) -> str:
    """The settings in Java's form."""
    return f"SubscriptionGroupConfig [{fields(group_fields(config))}]"
