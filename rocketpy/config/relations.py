"""Rules between settings; each is checked once, after loading and before a run-time change."""

from __future__ import annotations

import contextlib
import ipaddress
import math
import re
from collections.abc import Mapping

from rocketpy.errors import ConfigError
from rocketpy.logs import FORMATS

from .advertised import Advertised, parse_listeners
from .failover_relations import failover_fault, is_of_this_machine
from .replication_config import BrokerRole
from .settings import BrokerSettings, NamesrvSettings, Note

_DELAY = re.compile(r"[1-9][0-9]{0,8}[smhd]")
NAMES_MAX = {"brokerName": 127, "brokerClusterName": 115}
"""Topics are named after both, of the cluster with `_REPLY_TOPIC` behind it; a topic has 127 characters at most."""
_LEVELS_MAX = 100  # log levels beyond it would not fit the reference's tables either


def check_broker(settings: BrokerSettings, lines: Mapping[str, int]) -> None:
    """Refuse settings of a broker that contradict each other.

    Args:
        lines: where each key stands in the file, for the error.
    Raises:
        ConfigError: names the key that should change.
    """
    checker = _Checker(settings, lines)
    checker.check_common()
    checker.check_role(settings)
    checker.check_addresses(settings)
    checker.check_identity(settings)
    checker.check_ports(settings)
    checker.check_store(settings)
    checker.check_selectors(settings)
    checker.check_rings(settings)


def _is_numeric(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(address)) and "%" not in address
    return False


def check_namesrv(settings: NamesrvSettings, lines: Mapping[str, int]) -> None:
    """Check the settings of a name server. Raises: ConfigError: names the key that should change."""
    _Checker(settings, lines).check_common()


def open_notes(settings: BrokerSettings | NamesrvSettings, lines: Mapping[str, int]) -> tuple[Note, ...]:
    """A note on the rights of other hosts, if they reach the port and neither accounts nor administrators are named."""
    hosts = {"bindAddress": [settings.server.bind_address]}
    if isinstance(settings, BrokerSettings):
        has_accounts, may = settings.broker.acl_enable, "send and read all messages and move all offsets"
    else:
        has_accounts, may = settings.namesrv.acl_enable, "read all routes and register a broker"
        with contextlib.suppress(ValueError):  # it is an error already
            hosts["listeners"] = [host for host, _ in parse_listeners(settings.rocketpy.listeners).values()]
    if has_accounts or settings.rocketpy.admin_addresses:
        return ()
    remedy = f"every host that reaches the port may {may}; set aclEnable, or name adminAddresses"
    return tuple(
        Note(key, lines.get(key), f"{host or 'all addresses'}: {remedy}")
        for key, bound in hosts.items()
        for host in dict.fromkeys(bound)
        if not is_of_this_machine(host)
    )


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """`host:port;host:port`, IPv6 in brackets.

    Raises:
        ValueError: its text says what is wrong.
    """
    addresses = []
    for part in (piece.strip() for piece in text.split(";")):
        if not part:
            continue
        host, colon, port = part.rpartition(":")
        host = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host
        if not colon or not host or any(blank in part for blank in " \t,"):
            raise ValueError(f"{part!r} is not host:port (several are separated by ';')")
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65_535):
            raise ValueError(f"{part!r} has no port from 1 to 65535")
        addresses.append((host, int(port)))
    if not addresses:
        raise ValueError("no address given; expected host:port")
    return addresses


_BITS_MAX = 512  # csrc/store/queues/consume_queue_ext.h


METRICS_NAMES = frozenset({"rocketpy", "exporter", "rocketmq5", "rocketmq5_units"})


class _Checker:
    def __init__(self, settings: BrokerSettings | NamesrvSettings, lines: Mapping[str, int]) -> None:
        self._settings = settings
        self._lines = lines

    def check_common(self) -> None:
        settings = self._settings
        if settings.rocketpy.log_level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            self._fail("logLevel", f"{settings.rocketpy.log_level!r} is none of DEBUG, INFO, WARNING, ERROR")
        if settings.rocketpy.log_format not in FORMATS:
            self._fail("logFormat", f"{settings.rocketpy.log_format!r} is none of {', '.join(FORMATS)}")
        self._check_tls(settings)
        is_checked = settings.broker.acl_enable if isinstance(settings, BrokerSettings) else settings.namesrv.acl_enable
        if is_checked and not settings.server.rocketmq_home:
            self._fail("aclEnable", "true needs rocketmqHome (or ROCKETMQ_HOME): accounts are in its conf directory")
        if settings.rocketpy.metrics_port == settings.server.listen_port:
            self._fail("metricsPort", f"{settings.rocketpy.metrics_port} is listenPort as well")
        if strange := set(settings.rocketpy.shown_names) - METRICS_NAMES:
            self._fail("metricsNames", f"{min(strange)!r} is none of {', '.join(sorted(METRICS_NAMES))}")
        self._check_networks("adminAddresses", settings.rocketpy.admin_addresses)
        self._check_networks("proxyProtocolFrom", settings.rocketpy.proxy_protocol_from)
        try:
            parse_listeners(settings.rocketpy.listeners)
        except ValueError as exc:
            self._fail("listeners", str(exc))
        if isinstance(settings, BrokerSettings):
            self._check_networks("haAddresses", settings.store.ha_addresses)
            for key, limit in (
                ("accountRequestsPerSecond", settings.rocketpy.account_requests_per_second),
                ("accountBytesPerSecond", settings.rocketpy.account_bytes_per_second),
            ):
                if limit and not settings.broker.acl_enable:
                    self._fail(key, f"{limit} needs aclEnable=true: nobody has an account")

    def _check_tls(self, settings: BrokerSettings | NamesrvSettings) -> None:
        workers = settings.rocketpy.tls_workers
        if isinstance(settings, BrokerSettings) and bool(workers) is not settings.tls.is_served:
            mode = settings.tls.tls_server_mode.value
            self._fail("tlsWorkers", f"{workers} with tls.server.mode={mode}: TLS needs 1 or more, and disabled 0")
        if fault := settings.tls.fault():
            self._fail(*fault)
        if isinstance(settings, BrokerSettings) and settings.store.ha_use_tls and not settings.tls.use_tls:
            self._fail("haUseTLS", "true needs useTLS=true: the slave asks its master before it gets the log")
        if settings.rocketpy.metrics_use_tls and not settings.tls.is_served:
            self._fail("metricsUseTLS", "true needs tls.server.mode=permissive or enforcing, and a certificate")

    def _check_networks(self, key: str, text: str) -> None:
        for piece in filter(None, (piece.strip() for piece in text.split(","))):
            try:
                ipaddress.ip_network(piece, strict=False)
            except ValueError:
                self._fail(key, f"{piece!r} is neither an address nor a network (10.0.0.7, 10.1.0.0/16)")

    def _fail(self, key: str, reason: str) -> None:
        raise ConfigError(reason, file=self._settings.path, line=self._lines.get(key), key=key)

    def check_role(self, settings: BrokerSettings) -> None:
        broker, role = settings.broker, settings.store.broker_role
        if fault := failover_fault(settings):
            self._fail(*fault)
        if role is BrokerRole.SLAVE and broker.broker_id == 0:
            self._fail("brokerId", "0 is the master's; a SLAVE needs 1 or more")
        if role is not BrokerRole.SLAVE and broker.broker_id != 0 and not settings.store.is_automatic:
            self._fail("brokerId", f"{broker.broker_id} with brokerRole={role.value}: a master is 0, a SLAVE 1 or more")
        if settings.store.ha_truncate_diverged and not settings.store.ha_secret_file:
            self._fail(
                "haTruncateDiverged", "needs haSecretFile, on both: a master that proves nothing may name any cut"
            )

    def check_addresses(self, settings: BrokerSettings) -> None:
        broker = settings.broker
        try:
            Advertised.parse(settings.rocketpy.advertised_addresses, settings.server.listen_port, shift=1)
        except ValueError as exc:
            self._fail("advertisedAddresses", str(exc))
        addresses = {"namesrvAddr": broker.namesrv_addr, "haMasterAddress": settings.store.ha_master_address}
        for key, address in addresses.items():
            if address:
                try:
                    parse_addresses(address)
                except ValueError as exc:
                    self._fail(key, str(exc))
        domain, subgroup = broker.rmq_address_server_domain, broker.rmq_address_server_sub_group
        if broker.fetch_namesrv_addr_by_address_server and not domain:
            self._fail("fetchNamesrvAddrByAddressServer", "give rmqAddressServerDomain too: the service to ask")
        if domain and not re.fullmatch(r"[a-zA-Z0-9.\-_]+(:[0-9]{1,5})?|\[[0-9a-fA-F:.]+\]:[0-9]{1,5}", domain):
            self._fail("rmqAddressServerDomain", f"{domain!r} is not host or host:port")
        if not re.fullmatch(r"[a-zA-Z0-9._\-/]+", subgroup):
            self._fail("rmqAddressServerSubGroup", f"{subgroup!r} must be letters, digits, '.', '_', '-' or '/'")

    def check_identity(self, settings: BrokerSettings) -> None:
        broker = settings.broker
        names = {"brokerName": broker.broker_name, "brokerClusterName": broker.broker_cluster_name}
        for key, name in names.items():
            if not name or not re.fullmatch(r"[%|a-zA-Z0-9_.\-]+", name):
                self._fail(key, f"{name!r} must be letters, digits, '.', '_', '-', '%' or '|'")
            if len(name) > NAMES_MAX[key]:
                self._fail(key, f"{len(name)} characters, at most {NAMES_MAX[key]} are allowed: topics have the name")
        trace_topic = broker.msg_trace_topic_name
        if broker.trace_topic_enable and not re.fullmatch(r"[%|a-zA-Z0-9_\-]{1,127}", trace_topic):
            self._fail("msgTraceTopicName", f"{trace_topic!r} is no legal name of a topic")
        if broker.broker_ip1 and not _is_numeric(broker.broker_ip1):
            of_bind = " (of bindAddress)" if broker.broker_ip1 == settings.server.bind_address else ""
            remedy = "set brokerIP1 to one" if of_bind else "advertisedAddresses may name hosts"
            self._fail(
                "brokerIP1", f"{broker.broker_ip1!r}{of_bind} is no numeric address, which messages hold; {remedy}"
            )
        if broker.broker_permission not in (0, 2, 4, 6):
            self._fail("brokerPermission", f"{broker.broker_permission} is none of 2 (write), 4 (read), 6 (both), 0")

    def check_ports(self, settings: BrokerSettings) -> None:
        port = settings.server.listen_port
        if not 3 <= port <= 65_534:
            self._fail("listenPort", f"{port}: listenPort - 2 and listenPort + 1 are used too, so 3 to 65534")
        taken = {port - 2: "the VIP port (listenPort - 2)", port + 1: "the replication port (listenPort + 1)"}
        if settings.rocketpy.metrics_port in taken:
            self._fail("metricsPort", f"{settings.rocketpy.metrics_port} is {taken[settings.rocketpy.metrics_port]}")

    def check_store(self, settings: BrokerSettings) -> None:
        store = settings.store
        record_max = store.max_message_size + 65_536  # body, and what may come with it
        if store.mapped_file_size_commit_log < record_max + 8:
            self._fail(
                "mappedFileSizeCommitLog",
                f"{store.mapped_file_size_commit_log} bytes cannot hold the largest message: maxMessageSize "
                f"({store.max_message_size}) + 65536 + 8 = {record_max + 8}",
            )
        if settings.rocketpy.frame_max_length < record_max:
            self._fail("frameMaxLength", f"{settings.rocketpy.frame_max_length} is less than maxMessageSize + 65536")
        if settings.rocketpy.unfinished_input_max < settings.rocketpy.frame_max_length:
            self._fail("unfinishedInputMax", f"{settings.rocketpy.unfinished_input_max} is less than frameMaxLength")
        if settings.rocketpy.unsent_output_max < settings.rocketpy.frame_max_length:
            self._fail("unsentOutputMax", f"{settings.rocketpy.unsent_output_max} is less than frameMaxLength")
        if "," in store.store_path_commit_log:
            self._fail("storePathCommitLog", "several directories are not supported; give one")
        hours = [hour.strip() for hour in store.delete_when.split(";")]
        if not all(hour.isascii() and hour.isdigit() and len(hour) <= 2 and int(hour) <= 23 for hour in hours):
            self._fail("deleteWhen", f"{store.delete_when!r} is not hours from 00 to 23 separated by ';'")
        broker = settings.broker
        if filter_bit_count(broker.max_error_rate_of_bloom_filter, broker.expect_consumer_num_use_filter) > _BITS_MAX:
            self._fail(
                "expectConsumerNumUseFilter",
                f"{broker.expect_consumer_num_use_filter} groups with an error rate of "
                f"{broker.max_error_rate_of_bloom_filter} % need more than {_BITS_MAX} filter bits",
            )
        levels = store.message_delay_level.split()
        if not levels or len(levels) > _LEVELS_MAX or not all(_DELAY.fullmatch(level) for level in levels):
            self._fail("messageDelayLevel", f"{store.message_delay_level!r} is not like '1s 5s 1m 2h 1d'")
        if store.disk_space_clean_forcibly_ratio > store.disk_space_warning_level_ratio:
            self._fail("diskSpaceCleanForciblyRatio", "must not exceed diskSpaceWarningLevelRatio: cleaning is first")
        if store.max_index_num <= 1 or store.max_hash_slot_num * 4 + store.max_index_num * 20 + 40 > 2**31 - 1:
            self._fail("maxIndexNum", "an index file, 40 + 4 · maxHashSlotNum + 20 · maxIndexNum, must be < 2 GiB")

    def check_selectors(self, settings: BrokerSettings) -> None:
        most, at_start = settings.rocketpy.selector_workers_max, settings.rocketpy.selector_workers
        if 0 < most < at_start:
            self._fail("selectorWorkersMax", f"{most} is less than selectorWorkers ({at_start})")

    def check_rings(self, settings: BrokerSettings) -> None:
        rings = ring_count(settings)
        total = rings * settings.rocketpy.ring_size
        if total > settings.rocketpy.ring_memory_max:
            self._fail(
                "ringSize",
                f"{rings} rings of {settings.rocketpy.ring_size} bytes are {total} bytes, more than sharedMemoryMax "
                f"({settings.rocketpy.shared_memory_max}) has for rings ({settings.rocketpy.ring_memory_max})",
            )


def filter_bit_count(error_percent: int, expected: int) -> int:
    """Bits of a Bloom filter with this error rate for so many groups (filter/bloom.py rounds them up to bytes)."""
    return math.ceil(expected * math.log2(100 / error_percent) * math.log2(math.e))


def ring_count(settings: BrokerSettings) -> int:
    """Rings of the default shape (docs/understand/architecture.md): one per (producer, consumer) pair that talks.

    Without those of selectors that are started when they are needed: there are as many of them as fit.
    """
    selectors = settings.rocketpy.selector_workers
    codecs = settings.rocketpy.codec_workers
    pulls = settings.rocketpy.pull_workers
    queries = settings.rocketpy.query_workers
    servers = 2 + pulls + queries  # send worker and manager
    inward = selectors * codecs + codecs * servers if codecs else selectors * servers
    replies = servers * selectors
    among = 3 * pulls + queries + 5  # pull with manager and from store; manager to query; send and store with manager
    return inward + replies + among + settings.is_slave  # from the replicator
