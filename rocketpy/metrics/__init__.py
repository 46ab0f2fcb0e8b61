"""Metrics: snapshots of counters turned into Prometheus samples at scrape time. The only place that knows Prometheus.

Runs in the manager process of a broker (never in the supervisor, which must not have threads) and in the name server.
Nothing here counts anything: workers add to plain counters in shared memory, and a callable makes a `Snapshot` of them.

    endpoint = serve(config.metrics_host, config.metrics_port, BrokerCollector(take_snapshot))
    ...
    endpoint.close()

docs/metrics.md is generated from `table.py` (`python -m rocketpy.metrics.reference`).
"""

from .collector import BrokerCollector, NamesrvCollector
from .counters import COUNTERS_MAX, PUT_LATENCY_BUCKETS, Count
from .endpoint import Endpoint, check_address, serve
from .process_memory import ProcessMemory, process_memory
from .snapshot import (
    ConsumptionSnapshot,
    NamesrvSnapshot,
    RingSnapshot,
    Snapshot,
    StoreSnapshot,
    TopicSnapshot,
    WorkerSnapshot,
)

__all__ = [
    "COUNTERS_MAX",
    "PUT_LATENCY_BUCKETS",
    "BrokerCollector",
    "ConsumptionSnapshot",
    "Count",
    "Endpoint",
    "NamesrvCollector",
    "NamesrvSnapshot",
    "ProcessMemory",
    "RingSnapshot",
    "Snapshot",
    "StoreSnapshot",
    "TopicSnapshot",
    "WorkerSnapshot",
    "check_address",
    "process_memory",
    "serve",
]
