"""Every setting of the clients, checked at construction. Durations are seconds, sizes bytes, defaults are Java's.

The options classes are the reference page of the client: one field, its default, and why to change it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Self

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.errors import AddressesInvalid
from rocketpy.message.batch import ENTRIES_MAX
from rocketpy.message.compression import check_compression
from rocketpy.message.names import TRACE_TOPIC
from rocketpy.message.numbers import int_or
from rocketpy.message.sys_flag import CompressionType
from rocketpy.remoting.signature import Credentials
from rocketpy.transport.address_server import address_server_url
from rocketpy.values import FrozenValue

from .allocation import Allocation, Averagely
from .hooks.layer import Hook
from .security import SecuritySettings
from .security import TlsOptions as TlsOptions

MIB = 1 << 20
NAMESPACE = re.compile(r"[a-zA-Z0-9_-]+")
_NAMESPACE_OF_ENDPOINT = re.compile(r"(MQ_INST_\w+_\w+)\..*", re.ASCII)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPIC_UNTIL_CREATED = "TBW102"  # template topic: its route serves topics that do not exist yet
SEND_RETRY_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)


def between(low: float, high: float) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """A validator for low..high that names the field, the value and the range."""

    def check(_: Any, attribute: attrs.Attribute[Any], value: float) -> None:
        if not low <= value <= high:
            raise ValueError(f"{attribute.name} is {value}, allowed are {low} to {high}")

    return check


def minus_one_or_between(low: int, high: int) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """As `between`, with -1 for "no limit"."""
    in_range = between(low, high)

    def check(instance: Any, attribute: attrs.Attribute[Any], value: int) -> None:
        if value != -1:
            in_range(instance, attribute, value)

    return check


def addresses_of(text: str) -> tuple[str, ...]:
    """The addresses of `host:port;host:port`, without a scheme and without blanks. Raises ValueError: one is none."""
    addresses = tuple(item for part in text.split(";") if (item := part.strip().removeprefix("http://")))
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not 0 < int_or(port, 0) < 1 << 16:
            raise ValueError("is no list of name servers: write host:port;host:port, as 127.0.0.1:9876")
    return addresses


def _are_addresses(_: Any, attribute: attrs.Attribute[str], value: str) -> None:
    try:
        addresses_of(value)
    except ValueError as error:
        raise AddressesInvalid(f"{value!r} {error}", key=f"{attribute.name} (-n, NAMESRV_ADDR)") from None


def _are_hooks(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, tuple) or not all(isinstance(each, Hook) for each in value):
        raise ValueError(f"{attribute.name} is {value!r}, not a tuple of Hook objects, such as (OpenTelemetry(),)")


def namespace_of(name_servers: str) -> str:
    """The namespace that the first name server's address begins with, MQ_INST_…; empty: none.

    Source: RocketMQ 4.9 `ClientConfig#getNamespace`.
    """
    found = _NAMESPACE_OF_ENDPOINT.match(next(iter(addresses_of(name_servers)), ""))
    return found[1] if found else ""


def _is_namespace(_: Any, attribute: attrs.Attribute[str], value: str) -> None:
    if value and not NAMESPACE.fullmatch(value):
        raise ValueError(f"{attribute.name} is {value!r}: expected letters, digits, - and _, without %")


class ConsumeMode(Enum):
    """CLUSTERING: the group shares the queues. BROADCASTING: every member gets every message, offsets are local."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


@attrs.frozen
class StartFrom:
    """The place at which a group starts in a queue that has no committed offset.

    `StartFrom.LAST` (the default) still begins at the first message of a queue that has all of its messages, the first
    of them in memory: for such a queue the broker answers with that offset instead of "no offset".
    """

    wire_name: str
    timestamp_ms: int | None = None

    @classmethod
    def at(cls, when: datetime) -> StartFrom:
        """The first message stored at or after `when`, which must carry its time zone."""
        if when.tzinfo is None:
            raise ValueError("StartFrom.at needs an aware datetime: naive ones mean different times on different hosts")
        return cls("CONSUME_FROM_TIMESTAMP", ms_since_epoch(when))


def ms_since_epoch(when: datetime) -> int:
    """An aware datetime as brokers write times, rounded down. A float would give the millisecond before for some."""
    return (when - EPOCH) // timedelta(milliseconds=1)


START_LAST = StartFrom("CONSUME_FROM_LAST_OFFSET")
START_FIRST = StartFrom("CONSUME_FROM_FIRST_OFFSET")


@attrs.frozen(eq=False, repr=False, kw_only=True)
class ClientOptions(FrozenValue):
    """The options that producers, consumers and the admin client share. A line says: what (default), when to set it."""

    name_servers: str = attrs.field(factory=lambda: os.environ.get("NAMESRV_ADDR", ""), validator=_are_addresses)
    """Name servers, `host:port;host:port` (environment NAMESRV_ADDR). Set it if programs must not share it."""
    name_server_domain: str = attrs.field(factory=lambda: os.environ.get("ROCKETMQ_NAMESRV_DOMAIN", ""))
    """Host, or host:port, of the HTTP service that lists the name servers (none). Set it instead of name_servers."""
    name_server_subgroup: str = attrs.field(factory=lambda: os.environ.get("ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP", ""))
    """Path of that service (environment ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP, or nsaddr). Set it if it has several."""
    namespace: str = attrs.field(default="", validator=_is_namespace)
    """Namespace of topics and groups (of a name server `MQ_INST_…`; else none). Set it where groups share brokers."""
    instance_name: str = "DEFAULT"
    """Part of the client id (DEFAULT: `<pid>#<ns>`, unique). Set it only if the id has to outlive a restart."""
    client_ip: str | None = None
    """Part of the client id, and of message ids (address of outgoing connections). Set it behind NAT."""
    unit_name: str | None = None
    """Part of the client id, and of the URL that lists the name servers (none). Set it for units of the reference."""
    unit_mode: bool = False
    """Mark messages and groups as those of a unit (False). Set it for units of the reference."""
    api_timeout: float = attrs.field(default=3.0, validator=between(0.001, 3600))
    """Seconds for an answer about routes, members and offsets (3). Raise it on slow networks."""
    connect_timeout: float = attrs.field(default=3.0, validator=between(0.001, 3600))
    """Seconds for a connection (3). Raise it on slow networks."""
    poll_name_server_interval: float = attrs.field(default=30.0, validator=between(0.01, 3600))
    """Seconds between looks for changed routes (30). Lower it if topics move often."""
    heartbeat_interval: float = attrs.field(default=30.0, validator=between(0.01, 110))
    """Seconds between heartbeats (30); brokers forget a client after 120."""
    persist_offset_interval: float = attrs.field(default=5.0, validator=between(0.01, 3600))
    """Seconds between commits of a consumer's offsets (5). Lower it for fewer duplicates after a crash."""
    vip_channel: bool = False
    """Sends, offsets, locks and lists of members use the port - 2 (False). Set it if firewalls separate pulls."""
    credentials: Credentials | None = attrs.field(factory=lambda: SecuritySettings.from_environment().credentials())
    """Account that signs each request (environment, see security.py; else none). Set it for brokers with accounts."""
    tls: TlsOptions | None = attrs.field(factory=lambda: SecuritySettings.from_environment().tls_options())
    """Encrypted connections (environment, see security.py; else plain). Set it for servers that serve TLS."""
    trace: bool = False
    """Write each send and consumption to trace_topic (False). Set it to see them in `queryMsgTraceById`."""
    trace_topic: str = TRACE_TOPIC
    """Topic of traces (RMQ_SYS_TRACE_TOPIC). Set it to keep the traces of an application apart."""
    hooks: tuple[Hook, ...] = attrs.field(default=(), validator=_are_hooks)
    """Layers around sends and deliveries, the first next to the program (none). Set them for metrics or tracing."""

    @property
    def name_server_list(self) -> tuple[str, ...]:
        return addresses_of(self.name_servers)

    @property
    def namespace_in_use(self) -> str:
        """The namespace that is put before topics and groups; empty: none."""
        return self.namespace or namespace_of(self.name_servers)

    @property
    def address_server_url(self) -> str | None:
        """The URL that lists the name servers; None if they are given, or if no service is configured."""
        if self.name_server_list or not self.name_server_domain:
            return None
        return address_server_url(self.name_server_domain, self.name_server_subgroup, self.unit_name)


@attrs.frozen(eq=False, repr=False, kw_only=True)
class ProducerOptions(ClientOptions):
    """The options of producers."""

    send_timeout: float = attrs.field(default=3.0, validator=between(0.001, 3600))
    """Seconds for all attempts of a send together (3). Raise it to survive a failover without an error."""
    retries: int = attrs.field(default=2, validator=between(0, 100))
    """Further attempts of an awaited send (2). Lower it if a duplicate is worse than an error."""
    async_retries: int = attrs.field(default=2, validator=between(0, 100))
    """Further attempts of a `send_soon` after failures of the connection (2). Lower it as retries."""
    retry_codes: frozenset[int] = SEND_RETRY_CODES
    """Answers of a broker after which another broker is tried (the reference's). Leave one out to get it as error."""
    retry_another_broker_when_not_stored_ok: bool = False
    """Send again unless the status is SEND_OK (False). True duplicates messages, by design."""
    create_topic_key: str = TOPIC_UNTIL_CREATED
    """Template topic whose queues a topic gets that does not exist yet (TBW102). Set it to a template of your own."""
    default_topic_queue_nums: int = attrs.field(default=4, validator=between(1, 65535))
    """Queues of such a topic on each broker (4). Raise it for more consumers."""
    compress_over: int = attrs.field(default=4096, validator=between(0, 1 << 31))
    """Bytes of a body from which on it is compressed (4096). Raise it to save processor time."""
    compression: CompressionType = CompressionType.ZLIB
    """LZ4 and ZSTD need the extras lz4 and zstd (ZLIB). Clients in Go, and in Java before 5, cannot read them."""
    compress_level: int = 5
    """Level of compression (5): zlib 0, fast, to 9, zstd 1 to 22, LZ4 0 to 16. Raise it for slow networks."""
    message_size_max: int = attrs.field(default=4 * MIB, validator=between(1, 1 << 30))
    """Bytes of a body (4 MiB). Raise it together with maxMessageSize of the brokers."""
    latency_fault_enable: bool = False
    """Avoid brokers that answer slowly (False). Set it if one slow broker must not slow all sends."""
    linger: float = attrs.field(default=0.0, validator=between(0, 60))
    """Seconds for which a message waits for others to share its request (0: none). Set some ms for throughput."""
    batch_bytes_max: int = attrs.field(default=128 << 10, validator=between(1024, 4 * MIB))
    """Bytes of a batch that leaves before its linger is over (128 KiB). Raise it for large messages."""
    batch_count_max: int = attrs.field(default=1024, validator=between(1, ENTRIES_MAX))
    """Messages of a batch that leaves before its linger is over (1024). Lower it for shorter waits."""
    in_flight_max: int = attrs.field(default=1024, validator=between(1, 65535))
    """Messages of `send_soon`, and with a linger of `send`, under way at once (1024). Lower it to save memory."""
    in_flight_bytes_max: int = attrs.field(default=100 * MIB, validator=between(MIB, 1 << 34))
    """Bytes of them under way at once (100 MiB). Lower it to save memory."""
    shutdown_grace: float = attrs.field(default=10.0, validator=between(0, 3600))
    """Seconds for sends under way when the producer is closed (10). Raise it to lose none while brokers are slow."""

    def __attrs_post_init__(self) -> None:
        check_compression(self.compression, self.compress_level)

    @classmethod
    def of_client(cls, options: ClientOptions) -> Self:
        """The options of a producer within another client."""
        return cls(**{field.name: getattr(options, field.name) for field in attrs.fields(ClientOptions)})


@attrs.frozen(eq=False, repr=False, kw_only=True)
class ConsumerOptions(ClientOptions):
    """The options that push and pull consumers share."""

    mode: ConsumeMode = ConsumeMode.CLUSTERING
    """Share the queues in the group, or give every member all messages (CLUSTERING). Set BROADCASTING for caches."""
    start: StartFrom = START_LAST
    """Place at which a new group begins (START_LAST). Set START_FIRST to read what is stored already."""
    allocation: Allocation = attrs.field(factory=Averagely)
    """Strategy that shares queues (Averagely); all members of a group need the same."""
    topic_priority: tuple[str, ...] = ()
    """Topics whose messages come first, the first one's before all (none). Set it if some work may wait for other."""
    rebalance_interval: float = attrs.field(default=20.0, validator=between(0.01, 3600))
    """Seconds between looks for other members and queues (20); brokers tell of most changes at once."""
    pull_threshold_for_queue: int = attrs.field(default=1000, validator=between(1, 65535))
    """Fetched messages of a queue beyond which pulls wait (1000). Lower it to save memory."""
    pull_threshold_size_for_queue: int = attrs.field(default=100 * MIB, validator=between(MIB, 1024 * MIB))
    """Fetched bytes of a queue beyond which pulls wait (100 MiB). Lower it to save memory."""
    consume_span_max: int = attrs.field(default=2000, validator=between(1, 65535))
    """Newest minus oldest fetched offset beyond which pulls wait (2000). Raise it if some handlers take long."""
    pull_timeout: float = attrs.field(default=30.0, validator=between(0.001, 3600))
    """Seconds for a pull (30); the broker suspends it for less."""
    pull_error_delay: float = attrs.field(default=1.0, validator=between(0, 3600))
    """Seconds before the next pull after an error (1). Raise it to spare brokers that are down."""
    pull_flow_control_delay: float = attrs.field(default=0.02, validator=between(0, 3600))
    """Seconds before the next pull after the broker's flow control (0.02). Raise it to spare a busy broker."""
    offset_illegal_delay: float = attrs.field(default=10.0, validator=between(0, 3600))
    """Seconds for handlers to end before an offset that is gone is corrected (10). Raise it for slow handlers."""
    reset_offset_delay: float = attrs.field(default=10.0, validator=between(0, 3600))
    """Seconds for handlers to end before an offset is reset (10). Raise it for slow handlers."""
    local_offset_dir: Path = attrs.field(factory=lambda: Path.home() / ".rocketmq_offsets")
    """Directory of the offsets of broadcasting consumers (~/.rocketmq_offsets). Set it to a volume in containers."""

    def topic_rank(self, topic: str) -> int:
        """The place of a topic in topic_priority; the lowest is consumed first."""
        return self.topic_priority.index(topic) if topic in self.topic_priority else len(self.topic_priority)


@attrs.frozen(eq=False, repr=False, kw_only=True)
class PushOptions(ConsumerOptions):
    """The options of push consumers."""

    ordered: bool = False
    """One handler at a time for each queue, in its order (False). Set it for messages with an order_key."""
    concurrency: int = attrs.field(default=20, validator=between(1, 1000))
    """Handlers at once (20). Raise it for handlers that wait; each plain function has a thread."""
    batch_size_max: int = attrs.field(default=1, validator=between(1, 1024))
    """Messages of one call of a batch_handler (1). Raise it for handlers that write to a database at once."""
    pull_batch_size: int = attrs.field(default=32, validator=between(1, 1024))
    """Messages of a pull (32). Raise it for small messages."""
    pull_interval: float = attrs.field(default=0.0, validator=between(0, 65.535))
    """Seconds between pulls of a queue (0). Raise it to slow a consumer down."""
    pull_threshold_for_topic: int = attrs.field(default=-1, validator=minus_one_or_between(1, 6_553_500))
    """As pull_threshold_for_queue, for all queues of a topic together (-1: no limit). Set it if their number varies."""
    pull_threshold_size_for_topic: int = attrs.field(default=-1, validator=minus_one_or_between(MIB, 102_400 * MIB))
    """As pull_threshold_size_for_queue, for all queues of a topic together (-1: no limit). Set it for many queues."""
    broker_suspend: float = attrs.field(default=15.0, validator=between(0, 25))
    """Seconds that a broker waits for a message before it answers a pull (15). Lower it if proxies cut it."""
    post_subscription_when_pull: bool = False
    """Send the subscription with each pull (False), for brokers that lose heartbeats."""
    reconsume_times_max: int = attrs.field(default=-1, validator=minus_one_or_between(0, 1 << 31))
    """Retries before a message becomes a dead letter (-1: 16; ordered: no limit). See `RetryPolicy`."""
    suspend_queue: float = attrs.field(default=1.0, validator=between(0.01, 30))
    """Seconds before a failed message of an ordered queue is tried again (1). Raise it to spare what fails."""
    consume_timeout: float = attrs.field(default=900.0, validator=between(0.01, 86400))
    """Seconds after which a message is sent back although its handler still runs (900). Raise it for longer work."""
    lock_interval: float = attrs.field(default=20.0, validator=between(0.01, 29))
    """Seconds between renewals of the locks of ordered queues (20); they last 60."""
    unlock_delay: float = attrs.field(default=20.0, validator=between(0, 60))
    """Seconds before an ordered queue with fetched messages is given away (20). Lower it to share sooner."""
    consume_continuously_max: float = attrs.field(default=60.0, validator=between(0.01, 3600))
    """Seconds of work on one ordered queue before others have a turn (60). Lower it for many queues."""
    shutdown_grace: float = attrs.field(default=10.0, validator=between(0, 3600))
    """Seconds for handlers that run when the consumer is closed (10). Raise it for slow handlers."""

    def __attrs_post_init__(self) -> None:
        if self.ordered and self.mode is ConsumeMode.BROADCASTING:
            raise ValueError("ordered needs mode CLUSTERING: with BROADCASTING no member has a queue to itself")
        if self.ordered and self.topic_priority:
            raise ValueError("topic_priority has no effect with ordered: each queue is consumed at its own pace")


@attrs.frozen(eq=False, repr=False, kw_only=True)
class PullOptions(ConsumerOptions):
    """The options of pull consumers."""

    auto_commit: bool = True
    """Commit what earlier polls returned (True). Set False to commit by yourself."""
    auto_commit_interval: float = attrs.field(default=5.0, validator=between(1.0, 3600))
    """Seconds between these commits (5). Lower it for fewer duplicates after a crash."""
    pull_batch_size: int = attrs.field(default=10, validator=between(1, 1024))
    """Messages of a pull (10). Raise it for small messages."""
    pull_threshold_for_all: int = attrs.field(default=10_000, validator=between(1, 6_553_500))
    """Fetched messages of all queues beyond which pulls wait (10 000). Lower it to save memory."""
    broker_suspend: float = attrs.field(default=20.0, validator=between(0, 25))
    """Seconds that a broker waits for a message before it answers a pull (20). Lower it if proxies cut it."""
    poll_timeout: float = attrs.field(default=5.0, validator=between(0, 3600))
    """Seconds that a poll waits for a message (5). Lower it for loops with other work."""
