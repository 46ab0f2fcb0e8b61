"""From the broker's settings to those of its coordinator: who the members are, and how etcd is reached.

In the coordinator's process only: this imports the client for etcd.
"""

from __future__ import annotations

from rocketpy.config import BrokerSettings
from rocketpy.failover.etcd.access import access, group_config
from rocketpy.failover.etcd.coordinator import Place
from rocketpy.failover.rules.settings import Settings

__all__ = ["access", "member_settings", "place"]


def member_settings(settings: BrokerSettings) -> Settings:
    """Return the settings that the rules of failover need."""
    store = settings.store
    return Settings(
        member=store.ha_member,
        config=group_config(settings),
        lease_s=store.ha_lease_seconds,
        keep_up_s=store.ha_max_time_slave_not_catchup / 1000,
        without_lease=store.ha_serve_without_lease,
        in_sync_min=store.min_in_sync_replicas,
        fault_s=store.ha_unhealthy_seconds,
        keep_history_s=store.ha_etcd_compact_hours * 3600.0,
    )


def place(settings: BrokerSettings) -> Place:
    """Return the addresses at which other members find this one."""
    return Place(address=settings.broker_addr, ha_address=settings.ha_server_addr, broker_id=settings.broker.broker_id)
