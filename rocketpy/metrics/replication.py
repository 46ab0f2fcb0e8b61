"""The metrics of replication: a master's slaves, the state of a slave, and a member with automatic failover."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .metric import Metric, Samples, counter, gauge
from .snapshot import MemberSnapshot, ReplicationSnapshot, SlaveSnapshot, Snapshot

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


def _of(read: Callable[[ReplicationSnapshot], Samples]) -> Callable[[Snapshot], Samples]:
    return lambda snapshot: () if snapshot.replication is None else read(snapshot.replication)


def _by_host(read: Callable[[list[SlaveSnapshot]], float | None]) -> Callable[[Snapshot], Samples]:
    """Return the samples of one figure, one for each host with slaves."""

    def samples(replication: ReplicationSnapshot) -> Samples:
        hosts: dict[str, list[SlaveSnapshot]] = {}
        for slave in replication.slaves:
            hosts.setdefault(_host(slave.address), []).append(slave)
        return [((host,), read(there)) for host, there in hosts.items()]

    return _of(samples)


def _host(address: str) -> str:
    """Return the host without the port: each connection has another port, and would be a time series of its own."""
    return address.rpartition(":")[0].strip("[]") or address


def _known(choose: Callable[[Iterable[int]], int], values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def _following(replication: ReplicationSnapshot) -> Samples:
    if replication.following is None:
        return ()
    return [((state,), replication.following == state) for state in FOLLOWING_STATES]


def _member(read: Callable[[MemberSnapshot], float | None]) -> Callable[[Snapshot], Samples]:
    return _of(lambda replication: () if replication.member is None else [((), read(replication.member))])


def _state_of_member(replication: ReplicationSnapshot) -> Samples:
    member = replication.member
    return () if member is None else [((state,), member.state == state) for state in MEMBER_STATES]


lag_bytes = _by_host(lambda slaves: _known(max, (slave.lag_bytes for slave in slaves)))

REPLICATION_METRICS: tuple[Metric[Snapshot], ...] = (
    gauge("rocketpy_ha_slaves", "state", "Connections of slaves, by state.",
          _of(lambda r: [((state,), sum(slave.state == state for slave in r.slaves)) for state in STATES])),
    counter("rocketpy_ha_connections", "", "Accepted connections of slaves.", _of(lambda r: [((), r.connections)])),
    counter("rocketpy_ha_connections_closed", "reason", "Connections closed or refused.",
            _of(lambda r: [((reason,), count) for reason, count in r.closed.items()])),
    counter("rocketpy_ha_transfer_bytes", "", "Bytes of the log sent to slaves.", _of(lambda r: [((), r.sent_bytes)])),
    gauge("rocketpy_ha_ack_offset_bytes", "slave", "The slaves of the host have the log below it.",
          _by_host(lambda slaves: _known(min, (slave.acked_phy_offset for slave in slaves)))),
    gauge("rocketpy_ha_lag_bytes", "slave", "Log bytes that the host's slave lacks; the most of several.", lag_bytes),
    gauge("rocketpy_ha_lag_seconds", "slave",
          "Time without an acknowledgement while bytes wait; 0: the slave has everything.",
          _by_host(lambda slaves: max(slave.lag_s for slave in slaves))),
    gauge("rocketpy_ha_following", "state",
          "Slave: 1 for its state: `searching` or `following` its master, `halted`: the two logs do not fit.",
          _of(_following)),
    gauge("rocketpy_ha_diverged_files", "", "Files in the store's directory `diverged`.",
          _of(lambda r: [((), r.kept_files)])),
    gauge("rocketpy_ha_diverged_bytes", "",
          "Bytes in the store's directory `diverged`: log tails that differed from the master's (haDivergedSizeMax).",
          _of(lambda r: [((), r.kept_bytes)])),
    gauge("rocketpy_ha_member", "state",
          "With automatic failover: 1 for the state of the member (docs/run/failover-reference.md).",
          _of(_state_of_member)),
    gauge("rocketpy_ha_epoch", "", "Master of a group: the epoch that it serves.",
          _member(lambda m: m.epoch if m.epoch >= 0 else None)),
    gauge("rocketpy_ha_in_sync_members", "",
          "Master of a group: members that must have a message before it is acknowledged, itself included.",
          _member(lambda m: m.in_sync if m.epoch >= 0 else None)),
    gauge("rocketpy_ha_lease_remaining_seconds", "", "Member: rest of its lease in etcd.",
          _member(lambda m: m.lease_s)),
    counter("rocketpy_ha_role_changes", "", "Member: changes of its state since the start.",
            _member(lambda m: m.changes)),
    gauge("rocketpy_ha_member_fault", "",
          "Member: 1 if it cannot serve as master; `mqadmin haStatus` with its file, and its log, say why.",
          _member(lambda m: m.has_fault)),
    gauge("rocketpy_ha_faulty_members", "",
          "Member: registered members of its group that cannot serve as master.",
          _member(lambda m: m.faulty)),
    gauge("rocketpy_ha_etcd_alarm", "",
          "Member: 1 if etcd has an alarm.",
          _member(lambda m: m.has_alarm)),
    gauge("rocketpy_ha_etcd_database_bytes", "", "Member: bytes of etcd's database, bounded by its quota.",
          _member(lambda m: m.etcd_bytes)),
)  # fmt: skip
