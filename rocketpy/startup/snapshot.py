"""What the metrics endpoint is told: counters of all workers, rings, positions, tables, at one moment.

Taken in the manager's trio thread, where the tables are owned; counters and positions are shared memory.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

import attrs

from rocketpy import __version__
from rocketpy.broker.broker import BrokerController
from rocketpy.broker.runtime_info import runtime_info
from rocketpy.config import BrokerSettings
from rocketpy.metrics import (
    ConsumptionSnapshot,
    RingSnapshot,
    Snapshot,
    StoreSnapshot,
    TopicSnapshot,
    WorkerSnapshot,
    process_memory,
)
from rocketpy.reactor.process import NAME_MAX
from rocketpy.reactor.topology import Topology
from rocketpy.store.message_store import MessageStore

TOPICS_MAX = 2_000  # beyond it, sums by topic and group would make a scrape take longer than it is worth
SUPERVISOR = "supervisor"


@attrs.frozen(eq=False)
class SnapshotTaker:
    """Call it in the thread that owns `controller`."""

    topology: Topology
    settings: BrokerSettings
    controller: BrokerController
    store: MessageStore

    def __call__(self) -> Snapshot:
        services = self.controller.services
        statistics = self.store.statistics()
        topics = services.topics.topics
        is_small = len(topics) <= TOPICS_MAX
        return Snapshot(
            cluster=self.settings.broker.broker_cluster_name,
            broker=self.settings.broker.broker_name,
            broker_addr=self.settings.broker_addr,
            version=__version__,
            workers=self._workers(),
            rings=[
                RingSnapshot(ring.producer, ring.consumer, ring.depth_bytes, ring.capacity_bytes)
                for ring in self.topology.rings.values()
            ],
            store=StoreSnapshot(
                min_phy_offset=statistics.min_phy_offset,
                published_phy_offset=statistics.published_phy_offset,
                durable_phy_offset=statistics.durable_phy_offset,
                dispatched_phy_offset=statistics.dispatched_phy_offset,
            ),
            topics=[self._topic(name, topics[name].write_queue_nums) for name in topics] if is_small else None,
            groups=len(services.groups.groups),
            consumption=self._consumption() if is_small else (),
            producers={group: len(members) for group, members in services.producers.groups.items()},
            runtime=runtime_info(services),
            faults=dict(self.controller.faults.counts),
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
                    name=SUPERVISOR, role=SUPERVISOR, counters=(), starts=1, ready=True,
                    rss_bytes=memory.rss_bytes, pss_bytes=memory.pss_bytes,
                )
            )  # fmt: skip
        return found

    def _topic(self, topic: str, queues: int) -> TopicSnapshot:
        return TopicSnapshot(
            topic=topic,
            queues=queues,
            min_offset_sum=sum(self.store.min_offset(topic, queue_id) for queue_id in range(queues)),
            max_offset_sum=sum(self.store.max_offset(topic, queue_id) for queue_id in range(queues)),
        )

    def _consumption(self) -> list[ConsumptionSnapshot]:
        services = self.controller.services
        found = []
        for group in list(services.groups.groups):
            online = services.consumers.group(group)
            for topic in sorted(services.offsets.topics_of(group)):
                offsets = services.offsets.query_all(group, topic)
                ends = {queue_id: self.store.max_offset(topic, queue_id) for queue_id in offsets}
                found.append(
                    ConsumptionSnapshot(
                        group=group,
                        topic=topic,
                        consumer_offset_sum=sum(offsets.values()),
                        lag_messages=sum(max(0, ends[queue_id] - offset) for queue_id, offset in offsets.items()),
                        online_consumers=len(online.client_ids) if online else 0,
                        get_tps=services.stats.group_get_tps(group, topic),
                    )
                )
        return found


def worker_pids() -> Mapping[str, int]:
    """Title of each sibling process to its pid, as the supervisor's children show themselves."""
    parent = os.getppid()
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            with contextlib.suppress(OSError):
                found[Path(f"/proc/{pid}/comm").read_text().rstrip("\n")] = int(pid)
    return found
