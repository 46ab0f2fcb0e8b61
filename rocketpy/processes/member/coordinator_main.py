"""The process of the coordinator: everything about failover that needs trio and etcd. Its death is felt as latency."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from rocketpy.config import BrokerSettings
from rocketpy.failover.etcd.access import access, group_config
from rocketpy.failover.etcd.coordinator import Coordinator, Place
from rocketpy.failover.etcd.gateway import Gateway
from rocketpy.failover.etcd.group_keys import GroupKeys
from rocketpy.failover.rules.fences import Lease
from rocketpy.failover.rules.settings import Settings
from rocketpy.store.files import StorePaths

from .replaced_master import ReplacedMaster
from .shared_broker import CoordinatorView, SharedBroker
from .tree import MemberMemory

if TYPE_CHECKING:
    from rocketpy.tls import Certificates

LOOK_S = 0.02  # for the store to be opened for the first time


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


def run_coordinator(
    settings: BrokerSettings, memory: MemberMemory, bell: int, calls: Certificates | None = None
) -> int:
    """Run the coordinator until SIGTERM, then hand the group on. Returns: the exit status.

    Args:
        calls: the certificates of the guardian: a coordinator starts again even if their files have gone.
    Raises:
        ConfigError: a file of the settings cannot be used.
    """
    reach = access(settings.store)
    logging.getLogger("httpcore").setLevel(logging.WARNING)

    async def main() -> None:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_coordinate, settings, memory, bell, Gateway(reach), calls)
                async for _ in signals:
                    nursery.cancel_scope.cancel()
                    break

    trio.run(main)
    return 0


async def _coordinate(
    settings: BrokerSettings, memory: MemberMemory, bell: int, gateway: Gateway, calls: Certificates | None
) -> None:
    broker, paths = settings.broker, StorePaths.of(settings.store.store_path_root_dir)
    while not memory.marks.is_open:
        memory.marks.coordinator_turned_s = time.monotonic()
        await trio.sleep(LOOK_S)
    shared = SharedBroker(memory, paths, _ringing(bell), settings.is_sync_flush)
    async with gateway:
        keys = GroupKeys(gateway, broker.broker_cluster_name, broker.broker_name)
        coordinator = Coordinator(member_settings(settings), place(settings), keys, shared)
        shared.view = lambda: CoordinatorView(
            registered=coordinator.member.registered,
            etcd=coordinator.upkeep.status,
            lease_ends_s=_end_of(coordinator.member.lease),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ReplacedMaster.of(settings, memory.block, shared.replaced, calls).run)
            await coordinator.run()


def _end_of(lease: Lease | None) -> float:
    return 0.0 if lease is None else lease.renewed_s + lease.granted_s


def _ringing(bell: int) -> Callable[[], None]:
    return lambda: os.eventfd_write(bell, 1)
