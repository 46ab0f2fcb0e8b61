"""The metrics of replication: a master's slaves, and the state of a slave. Names and help; families in `samples`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from .metric import Kind, Metric
from .snapshot import MemberSnapshot, ReplicationSnapshot, SlaveSnapshot

SLAVES = Metric("rocketpy_ha_slaves", Kind.GAUGE, ("state",), "Connections of slaves, by state.")
CONNECTIONS = Metric("rocketpy_ha_connections", Kind.COUNTER, (), "Accepted connections of slaves.")
CLOSED = Metric("rocketpy_ha_connections_closed", Kind.COUNTER, ("reason",), "Connections closed or refused.")
SENT = Metric("rocketpy_ha_transfer_bytes", Kind.COUNTER, (), "Bytes of the log sent to slaves.")
ACKED = Metric("rocketpy_ha_ack_offset_bytes", Kind.GAUGE, ("slave",), "The slaves of the host have the log below it.")
LAG_BYTES = Metric(
    "rocketpy_ha_lag_bytes",
    Kind.GAUGE,
    ("slave",),
    "Log bytes that the host's slave lacks; the most of several.",
)
LAG_SECONDS = Metric(
    "rocketpy_ha_lag_seconds",
    Kind.GAUGE,
    ("slave",),
    "Time without an acknowledgement while bytes wait; 0: the slave has everything.",
)
FOLLOWING = Metric(
    "rocketpy_ha_following",
    Kind.GAUGE,
    ("state",),
    "Slave: 1 for its state. `searching`: it looks for its master. `following`: it gets its log. `halted`: the two "
    "logs do not fit; the broker's log says why.",
)
KEPT_FILES = Metric("rocketpy_ha_diverged_files", Kind.GAUGE, (), "Files in the store's directory `diverged`.")
KEPT_BYTES = Metric(
    "rocketpy_ha_diverged_bytes",
    Kind.GAUGE,
    (),
    "Bytes in the store's directory `diverged`: log tails that differed from the master's (haDivergedSizeMax).",
)
MEMBER = Metric(
    "rocketpy_ha_member",
    Kind.GAUGE,
    ("state",),
    "With automatic failover: 1 for the state of the member (docs/run/failover-reference.md).",
)
EPOCH = Metric("rocketpy_ha_epoch", Kind.GAUGE, (), "Master of a group: the epoch that it serves.")
IN_SYNC = Metric(
    "rocketpy_ha_in_sync_members",
    Kind.GAUGE,
    (),
    "Master of a group: members that must have a message before it is acknowledged, itself included.",
)
LEASE = Metric("rocketpy_ha_lease_remaining_seconds", Kind.GAUGE, (), "Member: rest of its lease in etcd.")
CHANGES = Metric("rocketpy_ha_role_changes", Kind.COUNTER, (), "Member: changes of its state since the start.")
HAS_FAULT = Metric(
    "rocketpy_ha_member_fault",
    Kind.GAUGE,
    (),
    "Member: 1 if it cannot serve as master; `mqadmin haStatus -f FILE` and its log say why.",
)
FAULTY = Metric(
    "rocketpy_ha_faulty_members",
    Kind.GAUGE,
    (),
    "Member: registered members of its group that cannot serve as master. Other members report one that does not run.",
)
ETCD_ALARM = Metric(
    "rocketpy_ha_etcd_alarm",
    Kind.GAUGE,
    (),
    "Member: 1 if etcd has an alarm. With NOSPACE it takes no writes, and no master is elected.",
)
ETCD_BYTES = Metric(
    "rocketpy_ha_etcd_database_bytes", Kind.GAUGE, (), "Member: bytes of etcd's database, bounded by its quota."
)
MEMBER_METRICS = (MEMBER, EPOCH, IN_SYNC, LEASE, CHANGES, HAS_FAULT, FAULTY, ETCD_ALARM, ETCD_BYTES)
REPLICATION_METRICS = (
    SLAVES,
    CONNECTIONS,
    CLOSED,
    SENT,
    ACKED,
    LAG_BYTES,
    LAG_SECONDS,
    FOLLOWING,
    KEPT_FILES,
    KEPT_BYTES,
    *MEMBER_METRICS,
)
STATES = ("connected", "replicating", "catching_up", "stalled")
FOLLOWING_STATES = ("searching", "following", "halted")  # in the order of RP_FOLLOWING_*
MEMBER_STATES = (
    "joining",
    "follower",
    "in_sync",
    "candidate",
    "promoting",
    "master",
    "fenced",
    "switching_over",
    "halted",
)

Samples = Iterable[tuple[Sequence[str], float | None]]


def samples(replication: ReplicationSnapshot) -> Iterator[tuple[Metric, Samples]]:
    """Each metric with its samples."""
    slaves = replication.slaves
    yield SLAVES, [((state,), sum(slave.state == state for slave in slaves)) for state in STATES]
    yield CONNECTIONS, [((), replication.connections)]
    yield CLOSED, [((reason,), count) for reason, count in replication.closed.items()]
    yield SENT, [((), replication.sent_bytes)]
    hosts: dict[str, list[SlaveSnapshot]] = {}
    for slave in slaves:
        hosts.setdefault(_host(slave.address), []).append(slave)
    yield ACKED, [((host,), _known(min, (slave.acked_phy_offset for slave in there))) for host, there in hosts.items()]
    yield LAG_BYTES, [((host,), _known(max, (slave.lag_bytes for slave in there))) for host, there in hosts.items()]
    yield LAG_SECONDS, [((host,), max(slave.lag_s for slave in there)) for host, there in hosts.items()]
    if replication.following is not None:
        yield FOLLOWING, [((state,), replication.following == state) for state in FOLLOWING_STATES]
    yield KEPT_FILES, [((), replication.kept_files)]
    yield KEPT_BYTES, [((), replication.kept_bytes)]
    if replication.member is not None:
        yield from _of_member(replication.member)


def _of_member(member: MemberSnapshot) -> Iterator[tuple[Metric, Samples]]:
    serves = member.epoch >= 0
    yield MEMBER, [((state,), member.state == state) for state in MEMBER_STATES]
    yield EPOCH, [((), member.epoch if serves else None)]
    yield IN_SYNC, [((), member.in_sync if serves else None)]
    yield LEASE, [((), member.lease_s)]
    yield CHANGES, [((), member.changes)]
    yield HAS_FAULT, [((), member.has_fault)]
    yield FAULTY, [((), member.faulty)]
    yield ETCD_ALARM, [((), member.has_alarm)]
    yield ETCD_BYTES, [((), member.etcd_bytes)]


def _host(address: str) -> str:
    """Without the port, which is another one with each connection: each would be a time series of its own."""
    return address.rpartition(":")[0].strip("[]") or address


def _known(choose: Callable[[Iterable[int]], int], values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None
