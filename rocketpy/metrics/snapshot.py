"""The values that the collector reads at scrape time: frozen snapshots, made by the owners of the numbers.

A value that may be unknown is optional: None is left out of the page rather than shown as zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from rocketpy.values import FrozenValue


@attrs.frozen(kw_only=True, eq=False, repr=False)
class WorkerSnapshot(FrozenValue):
    """One process of the tree."""

    name: str  # "selector-0", "send": the label `worker`
    role: str  # "selector", "codec", "send", "pull", "query", "manager", "store", "acceptor", "supervisor"
    counters: Sequence[int]  # by counters.PLACES; missing ones at the end are 0
    starts: int  # how often it has been started; the first start is no restart
    ready: bool
    heartbeat_age_s: float | None = None
    rss_bytes: int | None = None
    pss_bytes: int | None = None  # shares of shared pages counted once: adds up over the tree

    def cell(self, place: int) -> int:
        return self.counters[place] if place < len(self.counters) else 0


@attrs.frozen(eq=False, repr=False)
class RingSnapshot(FrozenValue):
    """One ring between two workers."""

    source: str
    target: str
    used_bytes: int
    capacity_bytes: int


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AccessSnapshot(FrozenValue):
    """Access control of a server."""

    accounts: int
    refused: Mapping[str, int]  # by reason
    reload_failures: int
    failing_files: int  # whose content is not in effect


@attrs.frozen(eq=False, repr=False)
class PoolSnapshot(FrozenValue):
    """The requests that wait for one pool (docs/understand/architecture.md, Pools)."""

    name: str
    waiting: int
    queue_max: int
    head_wait_s: float


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StoreSnapshot(FrozenValue):
    """Positions in the CommitLog, in bytes from its start (docs/understand/architecture.md, Positions)."""

    min_phy_offset: int
    published_phy_offset: int
    durable_phy_offset: int
    dispatched_phy_offset: int
    replicated_phy_offset: int | None = None
    oldest_age_ms: int | None = None  # of the first message of the log


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TopicSnapshot(FrozenValue):
    """Sums over the queues of one topic, retry and dead letter topics included."""

    topic: str
    queues: int
    min_offset_sum: int
    max_offset_sum: int
    put_tps: float | None = None  # messages per second over the last minute
    put_bytes_tps: float | None = None
    put_total: int = 0  # messages since the start of the manager
    put_bytes_total: int = 0
    is_system: bool = False


@attrs.frozen(kw_only=True, eq=False, repr=False)
class QueueSnapshot(FrozenValue):
    """One queue, for a scrape that asks for its topic."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    consumed: Mapping[str, int]  # the committed offset of each group that has one


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ConsumptionSnapshot(FrozenValue):
    """One group on one topic: sums over queues."""

    group: str
    topic: str
    consumer_offset_sum: int | None = None  # None: it commits nothing here
    lag_messages: int | None = None
    online_consumers: int = 0
    is_broadcasting: bool = False
    get_tps: float | None = None
    get_bytes_tps: float | None = None
    get_total: int = 0  # messages since the start of the manager
    get_bytes_total: int = 0
    is_system: bool = False  # the topic, or the group
    send_back_last_minute: int | None = None
    behind_bytes: int | None = None  # from the last message that it got to the end of the log
    lag_ms: int | None = None  # age of the next unconsumed message, the oldest over queues


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TransactionSnapshot(FrozenValue):
    """Open half messages, and the checks of them since the start of the manager."""

    open: int
    oldest_age_ms: int | None
    checks: int
    unreachable: int


@attrs.frozen(eq=False, repr=False)
class TableSnapshot(FrozenValue):
    """A table that clients can fill, and its bound."""

    name: str
    entries: int | None  # None: the bound is that of each of many small tables
    maximum: int
    refused: int


@attrs.frozen(kw_only=True, eq=False, repr=False)
class RegistrationSnapshot(FrozenValue):
    """The registration of this broker with name servers."""

    topics: int = 0
    bytes: int = 0  # of all parts, as sent
    parts: int = 0
    failures: int = 0
    last_success_ms: int | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SlaveSnapshot(FrozenValue):
    """One slave that is connected to this master."""

    address: str
    state: str
    acked_phy_offset: int | None  # None: it has reported nothing yet
    lag_bytes: int | None
    lag_s: float  # since it last made progress, while bytes wait for it
    sent_bytes: int


@attrs.frozen(kw_only=True, eq=False, repr=False)
class MemberSnapshot(FrozenValue):
    """A broker with automatic failover, as its coordinator has it."""

    state: str  # one of replication.MEMBER_STATES
    epoch: int  # that it serves; -1: none
    in_sync: int  # as master: members that have to acknowledge, itself included
    changes: int  # of the state, since the broker was started
    lease_s: float  # that is left of its lease
    has_fault: bool = False  # it cannot serve as master
    faulty: int = 0  # registered members that cannot
    has_alarm: bool = False  # etcd has
    etcd_bytes: int = 0


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReplicationSnapshot(FrozenValue):
    """The state of replication to slaves, and from a master that this broker follows. Counts are since its start."""

    slaves: Sequence[SlaveSnapshot]
    sent_bytes: int
    connections: int
    closed: Mapping[str, int]  # by reason
    following: str | None = None  # of a slave: one of replication.FOLLOWING_STATES
    member: MemberSnapshot | None = None  # with automatic failover
    kept_files: int | None = None  # in the directory `diverged` of the store; None: it cannot be read
    kept_bytes: int | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Snapshot(FrozenValue):
    """Everything, at one moment."""

    cluster: str
    broker: str  # brokerName
    broker_addr: str  # ip:port; what the exporter calls brokerIP
    version: str = ""
    clock_ms: int | None = None  # the time of this machine, since 1970
    start_s: float | None = None  # when the supervisor was started, since 1970
    workers: Sequence[WorkerSnapshot] = ()
    rings: Sequence[RingSnapshot] = ()
    pools: Sequence[PoolSnapshot] = ()
    store: StoreSnapshot | None = None
    topic_count: int | None = None
    topics: Sequence[TopicSnapshot] | None = None  # None: too many to show
    groups: int | None = None  # subscription groups
    differing_groups: Mapping[str, int] = attrs.field(factory=dict)  # number of different subscriptions of members
    backlog_alarms: int | None = None  # pairs of group and topic beyond a bound of the settings
    consumption: Sequence[ConsumptionSnapshot] = ()
    producers: Mapping[str, int] = attrs.field(factory=dict)  # producer group to members
    producer_clients: Mapping[tuple[str, str], int] = attrs.field(factory=dict)  # by language and version
    consumer_clients: Mapping[tuple[str, str, str, str, bool], int] = attrs.field(factory=dict)
    """Clients by group, language, version, `push` or `pull`, and whether it is a system group."""
    permission: int | None = None  # brokerPermission
    consumers: Sequence[tuple[str, str, str]] = ()  # (client address, our address, group) of each online consumer
    put_tps: float | None = None  # messages per second over the last minute
    get_tps: float | None = None
    runtime: Mapping[str, str] | None = None  # the table of code 28, as it is sent
    faults: Mapping[str, int] = attrs.field(factory=dict)  # caught in the manager, by place
    registration: RegistrationSnapshot | None = None
    access: AccessSnapshot | None = None  # None: access control is off
    limits: Mapping[str, int] = attrs.field(factory=dict)  # events at limits of addresses and accounts
    transactions: TransactionSnapshot | None = None
    replication: ReplicationSnapshot | None = None
    tables: Sequence[TableSnapshot] = ()


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TlsSnapshot(FrozenValue):
    """Handshakes of a server, and its certificate."""

    handshakes: int
    plain: int  # connections without TLS
    refused: Mapping[str, int]  # by reason
    reloads: int
    reload_failures: int
    not_after_s: float | None = None  # when the first certificate of its chain expires, since 1970; None: it has none


@attrs.frozen(kw_only=True, eq=False, repr=False)
class NamesrvSnapshot(FrozenValue):
    """The sizes of a name server's tables, and its counts."""

    brokers: int  # live addresses
    clusters: int
    topics: int
    connections: int
    requests: Mapping[str, int]  # by name of the request code
    faults: Mapping[str, int] = attrs.field(factory=dict)  # caught, by place
    registrations_refused: int = 0
    tls: TlsSnapshot | None = None  # None: TLS is off
    access: AccessSnapshot | None = None  # None: there is no access control
    rss_bytes: int | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class QuerySnapshot(FrozenValue):
    """A streaming query of Spark."""

    is_running: bool
    rows: int
    batch_s: float | None  # None: no batch has ended yet


@attrs.frozen(kw_only=True, eq=False, repr=False)
class UnreadSnapshot(FrozenValue):
    """The unread messages of a topic for a streaming query, by queue; a figure may be unknown for some queues."""

    query: str
    topic: str
    messages: Sequence[int]
    sizes: Sequence[int]
    ages_s: Sequence[float]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StreamsSnapshot(FrozenValue):
    """The streaming queries of a session."""

    queries: Mapping[str, QuerySnapshot]
    unread: Sequence[UnreadSnapshot]
