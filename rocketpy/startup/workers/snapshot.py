"""Takes the snapshot for metrics: counters of all workers, rings, positions and tables.

It runs in the manager's trio thread, which owns the tables, in steps that let other tasks run. Counters and positions
are shared memory; figures of processes are read from the kernel in another thread.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

import attrs
import trio

from rocketpy import __version__
from rocketpy.broker.broker import BrokerController
from rocketpy.broker.runtime_info import runtime_info
from rocketpy.config import BrokerSettings
from rocketpy.metrics import (
    ConsumptionSnapshot,
    PoolSnapshot,
    RegistrationSnapshot,
    RingSnapshot,
    Snapshot,
    StoreSnapshot,
    TableSnapshot,
    TopicSnapshot,
    WorkerSnapshot,
    process_memory,
)
from rocketpy.reactor.process import NAME_MAX
from rocketpy.reactor.topology import Topology
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.store.reading.message_store import MessageStore
from rocketpy.transport.steps import Steps

TOPICS_MAX = 2_000  # beyond it, figures by topic and group would make a scrape too slow
CONSUMPTION_MAX = 10_000  # pairs of group and topic; beyond it none is shown
READS_PER_STEP = 200
SUPERVISOR = "supervisor"


@attrs.frozen(eq=False)
class SnapshotTaker:
    """Call it in the trio thread that owns `controller`."""

    topology: Topology
    settings: BrokerSettings
    controller: BrokerController
    store: MessageStore

    async def __call__(self) -> Snapshot:
        services = self.controller.services
        topics = services.topics.topics
        is_small = len(topics) <= TOPICS_MAX
        steps = Steps(READS_PER_STEP)
        workers = await trio.to_thread.run_sync(self._workers)
        topic_rows = [await self._topic(topic, steps) for topic in topics.values()] if is_small else None
        consumption = await self._consumption(steps) if is_small else []
        producers = {}
        for group in services.producers.group_names:
            producers[group] = services.producers.member_count(group)
            await steps.did()
        statistics, registration = self.store.statistics(), self.controller.registration
        return Snapshot(
            cluster=self.settings.broker.broker_cluster_name,
            broker=self.settings.broker.broker_name,
            broker_addr=self.settings.broker_addr,
            version=__version__,
            workers=workers,
            rings=[
                RingSnapshot(ring.producer, ring.consumer, ring.depth_bytes, ring.capacity_bytes)
                for ring in self.topology.rings.values()
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
            ),
            topic_count=len(topics),
            topics=topic_rows,
            groups=len(services.groups.groups),
            consumption=consumption,
            producers=producers,
            runtime=runtime_info(services),
            faults=dict(self.controller.faults.counts),
            tables=[TableSnapshot(*attrs.astuple(size)) for size in self.controller.table_sizes()],
            registration=RegistrationSnapshot(**attrs.asdict(registration)),
        )

    def _workers(self) -> list[WorkerSnapshot]:
        now_ns = time.monotonic_ns()
        pids = worker_pids()
        found = []
        for name, block in self.topology.blocks.items():
            pid = pids.get(name.replace("-", " ")[:NAME_MAX])
            memory = process_memory(pid) if pid else None
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
        memory = process_memory(os.getppid())
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

    async def _topic(self, topic: TopicConfig, steps: Steps) -> TopicSnapshot:
        low = high = 0
        for queue_id in range(topic.write_queue_nums):
            low += self.store.min_offset(topic.topic_name, queue_id)
            high += self.store.max_offset(topic.topic_name, queue_id)
            await steps.did(2)
        return TopicSnapshot(
            topic=topic.topic_name, queues=topic.write_queue_nums, min_offset_sum=low, max_offset_sum=high
        )

    async def _consumption(self, steps: Steps) -> list[ConsumptionSnapshot]:
        services = self.controller.services
        found: list[ConsumptionSnapshot] = []
        for group in services.groups.groups:
            online = services.consumers.group(group)
            for topic in services.offsets.topics_of(group):
                if len(found) == CONSUMPTION_MAX:
                    return []
                offsets = services.offsets.query_all(group, topic)
                lag = 0
                for queue_id, offset in offsets.items():
                    lag += max(0, self.store.max_offset(topic, queue_id) - offset)
                    await steps.did()
                found.append(
                    ConsumptionSnapshot(
                        group=group,
                        topic=topic,
                        consumer_offset_sum=sum(offsets.values()),
                        lag_messages=lag,
                        online_consumers=len(online.client_ids) if online else 0,
                        get_tps=services.stats.group_get_tps(group, topic),
                    )
                )
                await steps.did()
            await steps.did()
        return found


def worker_pids() -> Mapping[str, int]:
    """Title -> process id of all workers, from the command lines of the supervisor's children."""
    parent = os.getppid()
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            with contextlib.suppress(OSError):
                found[Path(f"/proc/{pid}/comm").read_text().rstrip("\n")] = int(pid)
    return found
