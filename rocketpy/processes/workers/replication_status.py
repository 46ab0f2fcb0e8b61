"""The state of replication, for operators: read from the memory that the replicator writes."""

from __future__ import annotations

import time
from collections.abc import Callable

from rocketpy.config import BrokerSettings
from rocketpy.reactor.master_link import MasterLink
from rocketpy.remoting.bodies.broker import FollowedMaster, HaStatus, SlaveConnection
from rocketpy.replication.slave_table import REPLICATING, SlaveState, SlaveTable
from rocketpy.store.control_block import ControlBlock

from ..member.shown import MemberShown


def replication_status(
    settings: BrokerSettings,
    control: ControlBlock,
    slaves: SlaveTable,
    master_link: MasterLink | None,
    shown: MemberShown | None = None,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> HaStatus:
    """The state now. `master_link`: on a slave. `shown`: with automatic failover. `clock_ns`: CLOCK_MONOTONIC."""
    end, store = control.published_phy_offset, settings.store
    connections = [_connection(slave, end, store.ha_slave_fallbehind_max) for slave in slaves.slaves(clock_ns())]
    followed = master_link.followed if master_link is not None else ""
    member = shown.read() if shown is not None else None
    return HaStatus(
        member_state=member.state if member else "",
        epoch=member.epoch if member else -1,
        role=store.broker_role.value,
        broker_id=settings.broker.broker_id,
        commit_log_min_offset=control.min_phy_offset,
        commit_log_max_offset=end,
        master=master_link is None,
        master_commit_log_max_offset=end if master_link is None else 0,
        in_sync_slave_nums=sum(connection.in_sync for connection in connections),
        ha_connection_info=connections,
        ha_client_runtime_info=FollowedMaster(
            activated=bool(followed), master_addr=followed, max_offset=end if master_link is not None else 0
        ),
    )


def _connection(slave: SlaveState, end: int, fall_behind_max: int) -> SlaveConnection:
    acked = slave.acked_phy_offset or 0
    lag_bytes = max(0, end - acked)
    return SlaveConnection(
        addr=slave.address,
        state=slave.state,
        slave_ack_offset=acked,
        diff=lag_bytes,
        lag_ms=slave.behind_ns // 1_000_000,
        in_sync=slave.state == REPLICATING and lag_bytes < fall_behind_max,
        sent_bytes=slave.sent_bytes,
    )
