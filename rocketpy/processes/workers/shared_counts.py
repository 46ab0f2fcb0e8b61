"""The state of other processes, from shared memory, for statistics (code 28), metrics and operators: totals of the send
and pull workers, requests that wait for each pool, and the slaves that the replicator serves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from rocketpy.broker.managers.broker_stats import BrokerHealth, WorkerCounters, WorkerHealth
from rocketpy.codes import ResponseCode
from rocketpy.config import BrokerSettings
from rocketpy.native.core import lib
from rocketpy.reactor.master_link import MasterLink
from rocketpy.reactor.pools import PoolTable
from rocketpy.reactor.ring import Ring, WorkerBlock
from rocketpy.reactor.topology import MANAGER, SEND, STORE, Topology
from rocketpy.remoting.bodies.broker import FollowedMaster, HaStatus, SlaveConnection
from rocketpy.remoting.limits import PoolLoad
from rocketpy.replication.slave_table import REPLICATING, SlaveState, SlaveTable
from rocketpy.store.control_block import ControlBlock

if TYPE_CHECKING:
    from ..member.shown import MemberShown


def fast_path_counters(topology: Topology, now_ns: Callable[[], int] = time.monotonic_ns) -> WorkerCounters:
    """Totals of the send and pull workers since the start of the broker, across restarts; gauges of the timers."""
    busy_since_ns = topology.blocks[SEND].busy_since_ns
    put = topology.blocks[SEND].counters()
    pulls = [topology.blocks[pull].counters() for pull in topology.sizes.pulls]
    got = [sum(counts) for counts in zip(*pulls, strict=True)]
    store = topology.blocks[STORE]
    latency = lib.RP_COUNT_PUT_LATENCY
    return WorkerCounters(
        messages_put=put[lib.RP_COUNT_MESSAGES_PUT],
        bytes_put=put[lib.RP_COUNT_BYTES_PUT],
        put_failed=put[lib.RP_COUNT_PUT_FAILED] + topology.blocks[MANAGER].counter(lib.RP_COUNT_PUT_FAILED),
        messages_get=got[lib.RP_COUNT_MESSAGES_GET],
        bytes_get=got[lib.RP_COUNT_BYTES_GET],
        pulls=got[lib.RP_COUNT_PULLS],
        pull_misses=got[lib.RP_COUNT_PULL_MISS],
        suspended_pulls=got[lib.RP_COUNT_SUSPENDED],
        get_time_max_us=max(counts[lib.RP_COUNT_GET_TIME_MAX_US] for counts in pulls),
        put_latency_buckets=put[latency : latency + lib.RP_COUNT_PUT_LATENCY_BUCKETS],
        put_latency_sum_us=put[lib.RP_COUNT_PUT_LATENCY_SUM],
        append_ms=max(0, now_ns() - busy_since_ns) // 1_000_000 if busy_since_ns else 0,
        timers_pending=store.counter(lib.RP_COUNT_TIMERS_PENDING),
        timers_next_due_ms=store.counter(lib.RP_COUNT_TIMERS_NEXT_DUE_MS),
        timers_oldest_phy_offset=store.counter(lib.RP_COUNT_TIMERS_OLDEST) - 1,
    )


def broker_health(topology: Topology, now_ns: Callable[[], int] = time.monotonic_ns) -> BrokerHealth:
    """Return the state of all workers, as their blocks show it."""
    at_ns, blocks = now_ns(), topology.blocks.values()

    def total(*counters: int) -> int:
        return sum(block.counter(counter) for block in blocks for counter in counters)

    certificates = filter(None, (block.counter(lib.RP_COUNT_TLS_NOT_AFTER_S) for block in blocks))
    return BrokerHealth(
        workers=[
            WorkerHealth(
                name=block.name,
                is_ready=block.is_ready,
                silent_ms=max(0, at_ns - block.heartbeat_ns) // 1_000_000,
                restarts=block.epoch - 1,
            )
            for block in blocks
            if block.epoch  # a replicator starts with the first slave
        ],
        connections_refused=total(lib.RP_COUNT_CONNECTIONS_REFUSED, lib.RP_COUNT_TLS_REFUSED),
        unread_closed=total(lib.RP_COUNT_UNSENT_CLOSED, lib.RP_COUNT_PINNING_CLOSED),
        certificate_not_after_s=min(certificates, default=0),
    )


def count_refused_send(block: WorkerBlock, code: int) -> None:
    """Count a send that the manager, whose block it is, answers with an error, as the send worker counts its own."""
    block.add(lib.RP_COUNT_BUSY if code == ResponseCode.SYSTEM_BUSY else lib.RP_COUNT_PUT_FAILED)


def pool_loads(
    topology: Topology,
    table: PoolTable,
    own: Mapping[str, PoolLoad],
    now_ns: Callable[[], int] = time.monotonic_ns,
) -> dict[str, PoolLoad]:
    """Requests that wait for each pool, by its name: in the queues of this process (`own`), and in the rings of
    others."""
    loads = dict(own)
    sizes, at_ns = topology.sizes, now_ns()
    for name, workers in (("send", (SEND,)), ("pull", sizes.pulls), ("query", sizes.queries)):
        rings = [ring for worker in workers for ring in topology.requests_to(worker)]
        loads[name] = together(load_of_rings(rings, table.pool(name).queue_max, at_ns), own.get(name))
    for query in sizes.queries:
        loads["query"] = together(loads["query"], load_shown(topology.blocks[query], at_ns))
    return loads


def load_shown(block: WorkerBlock, now_ns: int) -> PoolLoad:
    """Return the load of a query worker's queue, as the worker shows it."""
    since_ns = block.counter(lib.RP_COUNT_WAITING_SINCE_NS)
    head_wait_ms = max(0, now_ns - since_ns) // 1_000_000 if since_ns else 0
    return PoolLoad(block.counter(lib.RP_COUNT_WAITING), 0, head_wait_ms)


def load_of_rings(rings: Iterable[Ring], queue_max: int, now_ns: int) -> PoolLoad:
    waiting, since_ns = 0, now_ns
    for ring in rings:
        count, received_ns = ring.waiting()
        if count:
            waiting, since_ns = waiting + count, min(since_ns, received_ns)
    return PoolLoad(waiting, queue_max, max(0, now_ns - since_ns) // 1_000_000)


def together(one: PoolLoad, other: PoolLoad | None) -> PoolLoad:
    """Return the sum of two loads of one pool."""
    if other is None:
        return one
    head_wait_ms = max(one.head_wait_ms, other.head_wait_ms)
    return PoolLoad(one.waiting + other.waiting, one.queue_max, head_wait_ms)


def replication_status(
    settings: BrokerSettings,
    control: ControlBlock,
    slaves: SlaveTable,
    master_link: MasterLink | None,
    shown: MemberShown | None = None,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> HaStatus:
    """Return the state now. `master_link`: of a slave. `shown`: of a member of a group. `clock_ns`: CLOCK_MONOTONIC."""
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
