"""The metrics of replication: a master's slaves. Names, kinds and help here; families in `samples`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .metric import Kind, Metric
from .snapshot import ReplicationSnapshot

SLAVES = Metric("rocketpy_ha_slaves", Kind.GAUGE, ("state",), "Connections of slaves, by state.")
CONNECTIONS = Metric("rocketpy_ha_connections", Kind.COUNTER, (), "Connections of slaves that were accepted.")
CLOSED = Metric("rocketpy_ha_connections_closed", Kind.COUNTER, ("reason",), "Connections closed or refused, by why.")
SENT = Metric("rocketpy_ha_transfer_bytes", Kind.COUNTER, (), "Bytes of the log sent to slaves.")
ACKED = Metric("rocketpy_ha_ack_offset_bytes", Kind.GAUGE, ("slave",), "The slave has everything below it.")
LAG_BYTES = Metric("rocketpy_ha_lag_bytes", Kind.GAUGE, ("slave",), "Bytes of the log that the slave lacks.")
LAG_SECONDS = Metric(
    "rocketpy_ha_lag_seconds",
    Kind.GAUGE,
    ("slave",),
    "Seconds since the slave last acknowledged something while bytes wait for it; 0: it has everything.",
)
REPLICATION_METRICS = (SLAVES, CONNECTIONS, CLOSED, SENT, ACKED, LAG_BYTES, LAG_SECONDS)
STATES = ("connected", "replicating", "catching_up", "stalled")

Samples = Iterable[tuple[Sequence[str], float | None]]


def samples(replication: ReplicationSnapshot) -> Iterator[tuple[Metric, Samples]]:
    """Each metric with its samples."""
    slaves = replication.slaves
    yield SLAVES, [((state,), sum(slave.state == state for slave in slaves)) for state in STATES]
    yield CONNECTIONS, [((), replication.connections)]
    yield CLOSED, [((reason,), count) for reason, count in replication.closed.items()]
    yield SENT, [((), replication.sent_bytes)]
    yield ACKED, [((slave.address,), slave.acked_phy_offset) for slave in slaves]
    yield LAG_BYTES, [((slave.address,), slave.lag_bytes) for slave in slaves]
    yield LAG_SECONDS, [((slave.address,), slave.lag_s) for slave in slaves]
