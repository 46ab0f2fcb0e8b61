"""Takes the snapshot for metrics: counters of all workers, rings, positions and tables.

It runs in a forked copy of the manager, or in the manager's trio thread, which owns the tables, in steps that let other
tasks run (scrapes.py). Counters and positions are shared memory; what the kernel and directories say of processes and
kept files is read before, in the thread of the scrape.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rocketpy import __version__
from rocketpy.broker.broker import BrokerController
from rocketpy.broker.managers.broker_stats import BROKER_GET_NUMS, BROKER_PUT_NUMS
from rocketpy.broker.runtime_info import runtime_info
from rocketpy.config import BrokerSettings
from rocketpy.errors import StoreError
from rocketpy.metrics.process_memory import MemoryOfProcesses
from rocketpy.metrics.replication import FOLLOWING_STATES
from rocketpy.metrics.snapshot import (
    AccessSnapshot,
    MemberSnapshot,
    PoolSnapshot,
    QueueSnapshot,
    RegistrationSnapshot,
    ReplicationSnapshot,
    RingSnapshot,
    SlaveSnapshot,
    Snapshot,
    StoreSnapshot,
    TableSnapshot,
    TopicSnapshot,
    TransactionSnapshot,
    WorkerSnapshot,
)
from rocketpy.native.core import lib
from rocketpy.reactor.process import NAME_MAX
from rocketpy.reactor.topology import REPLICATOR, Topology
from rocketpy.replication.slave_table import SlaveTable
from rocketpy.store.files import DiskFiles
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.store.recovery.diverged import Kept, kept_aside
from rocketpy.transport.steps import Steps

from ..member.shown import MemberShown, MemberState
from .traffic_rows import clients_by_kind, consumption_rows, online_consumers, producer_counts, queue_rows, topic_row

if TYPE_CHECKING:
    from rocketpy.broker.fast_path.shared_limits import SharedLimits

TOPICS_MAX = 2_000  # beyond it, figures of all topics and groups would make a scrape too slow
BACKLOG_AGE_S = 5.0  # figures of groups are so old at most
DIFFERING_GROUPS_MAX = 100
SUPERVISOR = "supervisor"
START_TIME = 19  # its place among the fields of /proc/PID/stat behind the name, man 5 proc


def supervisor_start_s() -> float:
    """Return when the parent of this process was started, in whole seconds since 1970."""
    ticks = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(") ")[2].split()[START_TIME])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return round(time.time() - age_s)


@attrs.frozen(eq=False)
class Observed:
    """The part of a snapshot that takes reading files."""

    workers: list[WorkerSnapshot]
    kept: Kept | None


@attrs.frozen(eq=False)
class SnapshotTaker:
    """Call it in the trio thread that owns `controller`."""

    topology: Topology
    settings: BrokerSettings
    controller: BrokerController
    store: MessageStore
    slaves: SlaveTable
    shown: MemberShown | None = None  # with automatic failover
    limits: SharedLimits | None = None
    _memory: MemoryOfProcesses = attrs.field(init=False, factory=MemoryOfProcesses)
    _start_s: float = attrs.field(init=False, factory=supervisor_start_s)

    @property
    def entries(self) -> int:
        """The entries of the tables that a snapshot goes through; in any thread."""
        services = self.controller.services
        clients = len(services.producers.connections) + len(services.consumers.connections)
        return len(services.topics.topics) + len(services.groups.groups) + len(services.offsets) + clients

    def observe(self) -> Observed:
        """Read the files; in a thread that may wait, one at a time."""
        return Observed(self._workers(), self._kept())

    async def __call__(self, observed: Observed, steps: Steps) -> Snapshot:
        services = self.controller.services
        topics = services.topics.topics
        is_small = len(topics) <= TOPICS_MAX
        workers, kept = observed.workers, observed.kept
        topic_rows = await self._topic_rows(steps) if is_small else None
        await self.controller.backlog.look(BACKLOG_AGE_S, steps)
        consumption = await consumption_rows(services, self.controller.backlog, steps, is_small=is_small)
        producer_clients, consumer_clients = await clients_by_kind(services, steps) if is_small else ({}, {})
        statistics, registration = self.store.statistics(), self.controller.registration
        blocks = self.topology.blocks
        return Snapshot(
            cluster=self.settings.broker.broker_cluster_name,
            broker=self.settings.broker.broker_name,
            broker_addr=self.settings.broker_addr,
            version=__version__,
            clock_ms=services.clock.now_ms(),
            start_s=self._start_s,
            workers=workers,
            rings=[
                RingSnapshot(ring.producer, ring.consumer, ring.depth_bytes, ring.capacity_bytes)
                for ring in self.topology.rings.values()
                if blocks[ring.producer].epoch and blocks[ring.consumer].epoch
            ],
            pools=[
                PoolSnapshot(name, load.waiting, load.queue_max, load.head_wait_ms / 1000)
                for name, load in services.pool_loads().items()
            ],
            store=StoreSnapshot(
                min_phy_offset=statistics.min_phy_offset,
                published_phy_offset=statistics.published_phy_offset,
                durable_phy_offset=statistics.durable_phy_offset,
                dispatched_phy_offset=statistics.dispatched_phy_offset,
                replicated_phy_offset=statistics.replicated_phy_offset or None,
                oldest_age_ms=self._oldest_age_ms(),
            ),
            topic_count=len(topics),
            topics=topic_rows,
            groups=len(services.groups.groups),
            consumption=consumption,
            differing_groups={
                entry.group: entry.views.count for entry in services.consumers.differing[:DIFFERING_GROUPS_MAX]
            },
            backlog_alarms=self.controller.backlog.alarms,
            consumers=await online_consumers(services, self.settings.broker_addr, steps) if is_small else [],
            put_tps=services.stats.minute(BROKER_PUT_NUMS, self.settings.broker.broker_cluster_name).tps,
            get_tps=services.stats.minute(BROKER_GET_NUMS, self.settings.broker.broker_cluster_name).tps,
            producers=await producer_counts(services, steps),
            producer_clients=producer_clients,
            consumer_clients=consumer_clients,
            permission=self.controller.services.settings.broker.broker_permission,
            runtime=runtime_info(services),
            faults=dict(self.controller.faults.counts),
            transactions=TransactionSnapshot(**attrs.asdict(services.transactions.statistics)),
            replication=self._replication(statistics.published_phy_offset, workers, kept),
            tables=[TableSnapshot(*attrs.astuple(size)) for size in self.controller.table_sizes()],
            registration=RegistrationSnapshot(**attrs.asdict(registration)),
            limits={} if self.limits is None else self.limits.counts,
            access=AccessSnapshot(**attrs.asdict(services.accounts.statistics)) if services.accounts else None,
        )

    async def _topic_rows(self, steps: Steps) -> list[TopicSnapshot]:
        services = self.controller.services
        topics = list(services.topics.topics.values())
        counted = {topic.topic_name: topic.write_queue_nums for topic in topics}
        ends = await steps.finished(self.store.ends_of_topics(counted))
        rows = []
        for topic in topics:
            rows.append(topic_row(services, topic, ends[topic.topic_name]))
            await steps.did(4)
        return rows

    async def queues(self, topics: list[str], steps: Steps) -> list[QueueSnapshot]:
        """Return the queues of these topics."""
        return await queue_rows(self.controller.services, topics, steps)

    def _oldest_age_ms(self) -> int | None:
        oldest_ms = self.store.earliest_message_time()
        return max(0, self.controller.services.clock.now_ms() - oldest_ms) if oldest_ms >= 0 else None

    def _kept(self) -> Kept | None:
        """Count the log tails that were cut off and kept; None: they cannot be read now."""
        with contextlib.suppress(StoreError):
            return kept_aside(DiskFiles(), Path(self.settings.store.store_path_root_dir))
        return None

    def _replication(self, end: int, workers: list[WorkerSnapshot], kept: Kept | None) -> ReplicationSnapshot:
        slaves = [
            SlaveSnapshot(
                address=slave.address,
                state=slave.state,
                acked_phy_offset=slave.acked_phy_offset,
                lag_bytes=slave.lag_bytes(end),
                lag_s=slave.behind_ns / 1e9,
                sent_bytes=slave.sent_bytes,
            )
            for slave in self.slaves.slaves(time.monotonic_ns())
        ]
        table = self.slaves
        followers = [worker for worker in workers if worker.role == REPLICATOR] if self.settings.is_slave else []
        return ReplicationSnapshot(
            slaves=slaves,
            sent_bytes=table.sent_bytes,
            connections=table.opened,
            closed=table.closed(),
            following=FOLLOWING_STATES[followers[0].counters[lib.RP_COUNT_FOLLOWING]] if followers else None,
            member=_member(self.shown.read()) if self.shown else None,
            kept_files=kept.files if kept else None,
            kept_bytes=kept.size if kept else None,
        )

    def _workers(self) -> list[WorkerSnapshot]:
        now_ns = time.monotonic_ns()
        pids = worker_pids()
        found = []
        for name, block in self.topology.blocks.items():
            if not block.epoch:  # it is started when it is needed
                continue
            pid = pids.get(name.replace("-", " ")[:NAME_MAX])
            memory = self._memory.of(pid) if pid else None
            found.append(
                WorkerSnapshot(
                    name=name,
                    role=name.partition("-")[0],
                    counters=block.counters(),
                    starts=block.epoch,
                    ready=block.is_ready,
                    heartbeat_age_s=max(0.0, (now_ns - block.heartbeat_ns) / 1e9),
                    rss_bytes=memory.rss_bytes if memory else None,
                    pss_bytes=memory.pss_bytes if memory else None,
                )
            )
        memory = self._memory.of(os.getppid())
        if memory:
            found.append(
                WorkerSnapshot(
                    name=SUPERVISOR,
                    role=SUPERVISOR,
                    counters=(),
                    starts=1,
                    ready=True,
                    rss_bytes=memory.rss_bytes,
                    pss_bytes=memory.pss_bytes,
                )
            )
        return found


def _member(member: MemberState) -> MemberSnapshot:
    return MemberSnapshot(**attrs.asdict(member) | {"state": member.state.lower()})


def worker_pids() -> Mapping[str, int]:
    """Title -> process id of all workers, from the command lines of the supervisor's children."""
    parent = os.getppid()
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            with contextlib.suppress(OSError):
                found[Path(f"/proc/{pid}/comm").read_text().rstrip("\n")] = int(pid)
    return found
