"""Totals of the send and pull workers, from their counters in shared memory, for the broker's own statistics (code
28)."""

from __future__ import annotations

from rocketpy.broker.managers.broker_stats import WorkerCounters
from rocketpy.native.core import lib
from rocketpy.reactor.topology import PULL, SEND, Topology


def fast_path_counters(topology: Topology) -> WorkerCounters:
    """What send and pull have done since the broker started, restarts of theirs included."""
    put, got = topology.blocks[SEND].counters(), topology.blocks[PULL].counters()
    latency = lib.RP_COUNT_PUT_LATENCY
    return WorkerCounters(
        messages_put=put[lib.RP_COUNT_MESSAGES_PUT],
        bytes_put=put[lib.RP_COUNT_BYTES_PUT],
        put_failed=put[lib.RP_COUNT_PUT_FAILED],
        messages_get=got[lib.RP_COUNT_MESSAGES_GET],
        bytes_get=got[lib.RP_COUNT_BYTES_GET],
        pulls=got[lib.RP_COUNT_PULLS],
        pull_misses=got[lib.RP_COUNT_PULL_MISS],
        suspended_pulls=got[lib.RP_COUNT_SUSPENDED],
        put_latency_buckets=put[latency : latency + lib.RP_COUNT_PUT_LATENCY_BUCKETS],
        put_latency_sum_us=put[lib.RP_COUNT_PUT_LATENCY_SUM_US],
    )
