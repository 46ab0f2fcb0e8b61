"""Every setting of the clients, checked at construction. Durations are seconds, sizes bytes, defaults are Java's.

The options classes are the reference page of the client: one field, its default, and why to change it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.message.compression import check_compression
from rocketpy.message.names import TRACE_TOPIC
from rocketpy.message.sys_flag import CompressionType
from rocketpy.remoting.signature import Credentials
from rocketpy.transport.address_server import address_server_url

from .allocation import Allocation, Averagely
from .hooks.layer import Hook

MIB = 1 << 20
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


@attrs.frozen(kw_only=True)
class TlsOptions:
    """Encrypts the connections to name servers and brokers. Files are PEM.

    The certificate of a server has to name the host name or the IP address to which the client connects. The official
    clients trust any server unless `tls.client.authServer` is set; `verify=False` does the same: nobody on the way can
    read, but anybody on the way can answer in the server's place.
    """

    ca_file: Path | None = None  # who may sign certificates of servers; None: whom the system trusts
    certificate_file: Path | None = None  # of this client, for servers that ask for one
    key_file: Path | None = None  # of the certificate; None: it is in certificate_file
    key_password: str | None = attrs.field(default=None, repr=False)  # of an encrypted key
    verify: bool = True

    def __attrs_post_init__(self) -> None:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file needs certificate_file, too")


@attrs.frozen(kw_only=True)
class ClientOptions:
    """The options that producers, consumers and the admin client share."""

    name_servers: str = attrs.field(factory=lambda: os.environ.get("NAMESRV_ADDR", ""))  # "host:port;host:port"
    name_server_domain: str = attrs.field(factory=lambda: os.environ.get("ROCKETMQ_NAMESRV_DOMAIN", ""))
    """Host, or host:port, of the HTTP service to ask for the name servers when name_servers is empty."""
    name_server_subgroup: str = attrs.field(factory=lambda: os.environ.get("ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP", ""))
    instance_name: str = "DEFAULT"  # DEFAULT becomes <pid>#<ns>, so that every client has an id of its own
    client_ip: str | None = None  # part of the client id; detected when None
    unit_name: str | None = None
    unit_mode: bool = False
    api_timeout: float = attrs.field(default=3.0, validator=between(0.001, 3600))  # route, member list, creation
    connect_timeout: float = attrs.field(default=3.0, validator=between(0.001, 3600))
    poll_name_server_interval: float = attrs.field(default=30.0, validator=between(0.01, 3600))
    heartbeat_interval: float = attrs.field(default=30.0, validator=between(0.01, 110))  # brokers forget after 120 s
    persist_offset_interval: float = attrs.field(default=5.0, validator=between(0.01, 3600))
    vip_channel: bool = False  # sends and queries to port - 2
    credentials: Credentials | None = None
    tls: TlsOptions | None = None  # None: plain connections
    trace: bool = False  # tell in trace_topic what was sent and consumed (queryMsgTraceById shows it)
    trace_topic: str = TRACE_TOPIC
    hooks: tuple[Hook, ...] = ()  # around sends and deliveries; the first is next to the program

    @property
    def name_server_list(self) -> tuple[str, ...]:
        """The addresses, without a scheme and without blanks."""
        items = (item.strip().removeprefix("http://") for item in self.name_servers.split(";"))
        return tuple(item for item in items if item)

    @property
    def address_server_url(self) -> str | None:
        """The URL that lists the name servers; None if they are given, or if no service is configured."""
        if self.name_server_list or not self.name_server_domain:
            return None
        return address_server_url(self.name_server_domain, self.name_server_subgroup, self.unit_name)


@attrs.frozen(kw_only=True)
class ProducerOptions(ClientOptions):
    send_timeout: float = attrs.field(default=3.0, validator=between(0.001, 3600))  # one budget for all attempts
    retries: int = attrs.field(default=2, validator=between(0, 100))  # further attempts of an awaited send
    async_retries: int = attrs.field(default=2, validator=between(0, 100))  # of send_soon; transport failures only
    retry_codes: frozenset[int] = SEND_RETRY_CODES
    retry_another_broker_when_not_stored_ok: bool = False  # True duplicates messages, by design
    create_topic_key: str = TOPIC_UNTIL_CREATED
    default_topic_queue_nums: int = attrs.field(default=4, validator=between(1, 65535))
    compress_over: int = attrs.field(default=4096, validator=between(0, 1 << 31))  # bytes; this size is compressed
    compression: CompressionType = CompressionType.ZLIB  # LZ4, ZSTD: extras lz4, zstd; Go and old Java cannot read them
    compress_level: int = 5  # zlib 0 to 9, zstd 1 to 22, LZ4 0 to 16: higher is smaller and slower
    message_size_max: int = attrs.field(default=4 * MIB, validator=between(1, 1 << 30))
    latency_fault_enable: bool = False
    linger: float = attrs.field(default=0.0, validator=between(0, 60))
    """Seconds for which a message waits for others that share its request; 0: each has a request of its own."""
    batch_bytes_max: int = attrs.field(default=128 << 10, validator=between(1024, 4 * MIB))  # full: sent at once
    batch_count_max: int = attrs.field(default=1024, validator=between(1, 65535))  # likewise
    in_flight_max: int = attrs.field(default=1024, validator=between(1, 65535))
    """Messages of send_soon, and with a linger of send as well, that are under way: more wait."""
    in_flight_bytes_max: int = attrs.field(default=100 * MIB, validator=between(MIB, 1 << 34))  # likewise
    shutdown_grace: float = attrs.field(default=10.0, validator=between(0, 3600))  # for sends still in flight

    def __attrs_post_init__(self) -> None:
        check_compression(self.compression, self.compress_level)


@attrs.frozen(kw_only=True)
class ConsumerOptions(ClientOptions):
    """Shared by push and pull consumers."""

    mode: ConsumeMode = ConsumeMode.CLUSTERING
    start: StartFrom = START_LAST
    allocation: Allocation = attrs.field(factory=Averagely)
    rebalance_interval: float = attrs.field(default=20.0, validator=between(0.01, 3600))
    pull_threshold_for_queue: int = attrs.field(default=1000, validator=between(1, 65535))  # messages
    pull_threshold_size_for_queue: int = attrs.field(default=100 * MIB, validator=between(MIB, 1024 * MIB))
    consume_span_max: int = attrs.field(default=2000, validator=between(1, 65535))  # newest minus oldest offset
    pull_timeout: float = attrs.field(default=30.0, validator=between(0.001, 3600))  # ours; the broker holds less
    pull_error_delay: float = attrs.field(default=1.0, validator=between(0, 3600))
    pull_flow_control_delay: float = attrs.field(default=0.02, validator=between(0, 3600))
    offset_illegal_delay: float = attrs.field(default=10.0, validator=between(0, 3600))
    reset_offset_delay: float = attrs.field(default=10.0, validator=between(0, 3600))  # for listeners to finish
    local_offset_dir: Path = attrs.field(factory=lambda: Path.home() / ".rocketmq_offsets")  # broadcasting


@attrs.frozen(kw_only=True)
class PushOptions(ConsumerOptions):
    ordered: bool = False
    concurrency: int = attrs.field(default=20, validator=between(1, 1000))  # handlers at once
    batch_size_max: int = attrs.field(default=1, validator=between(1, 1024))  # messages per handler call
    pull_batch_size: int = attrs.field(default=32, validator=between(1, 1024))
    pull_interval: float = attrs.field(default=0.0, validator=between(0, 65.535))
    pull_threshold_for_topic: int = attrs.field(default=-1, validator=minus_one_or_between(1, 6_553_500))
    pull_threshold_size_for_topic: int = attrs.field(default=-1, validator=minus_one_or_between(MIB, 102_400 * MIB))
    broker_suspend: float = attrs.field(default=15.0, validator=between(0, 25))
    post_subscription_when_pull: bool = False
    reconsume_times_max: int = attrs.field(default=-1, validator=minus_one_or_between(0, 1 << 31))  # 16; ordered: none
    suspend_queue: float = attrs.field(default=1.0, validator=between(0.01, 30))  # ordered: pause before a retry
    consume_timeout: float = attrs.field(default=900.0, validator=between(0.01, 86400))
    lock_interval: float = attrs.field(default=20.0, validator=between(0.01, 29))
    unlock_delay: float = attrs.field(default=20.0, validator=between(0, 60))
    consume_continuously_max: float = attrs.field(default=60.0, validator=between(0.01, 3600))
    shutdown_grace: float = attrs.field(default=10.0, validator=between(0, 3600))


@attrs.frozen(kw_only=True)
class PullOptions(ConsumerOptions):
    auto_commit: bool = True
    auto_commit_interval: float = attrs.field(default=5.0, validator=between(1.0, 3600))
    pull_batch_size: int = attrs.field(default=10, validator=between(1, 1024))
    pull_threshold_for_all: int = attrs.field(default=10_000, validator=between(1, 6_553_500))  # messages
    broker_suspend: float = attrs.field(default=20.0, validator=between(0, 25))
    poll_timeout: float = attrs.field(default=5.0, validator=between(0, 3600))
