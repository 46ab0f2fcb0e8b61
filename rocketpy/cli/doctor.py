"""`rocketpy doctor`: checks what a broker needs of this machine, and names the remedy for what is missing."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import resource
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from rocketpy.config import BrokerSettings, NamesrvSettings
from rocketpy.errors import ConfigError, NativeMissing, StoreError
from rocketpy.file_systems import NO_JOURNAL, file_system_of

from .findings import Finding, report

NAME_SERVER, METRICS = "name server", "metrics"
PORTS = {
    10911: "broker",
    10909: "broker, VIP channel",
    10912: "broker, replication",
    9876: NAME_SERVER,
    5557: METRICS,
}
LOOPBACK = "127.0.0.1"
FILES_WANTED = 20_000
LOG_FILE_BYTES = 1 << 30  # mappedFileSizeCommitLog, where no file says more
LOG_FILES_WANTED = 4
MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
MAPPED_MAX = 262_144  # WINDOWS_LIMIT of csrc/store/queues/unit_windows.c
MAPPINGS_WANTED = 262_144  # of docs/run/install.md: pages of 196 608 queues
# By the type of the file system. Without a journal ext4 also looks at each inode that was freed in the last minutes.
FILE_SYSTEM_REMEDIES = {
    NO_JOURNAL: "a loss of power may damage it, and new queues are slow after many were deleted: give it a journal",
    "btrfs": "when it is full, workers of the broker end: choose ext4 or xfs",
}
KERNEL_WANTED = (5, 14)  # pidfd, memfd, MADV_POPULATE_WRITE


def examine(store: Path, settings: BrokerSettings | None = None, namesrv: NamesrvSettings | None = None) -> int:
    """Print the findings for a broker with its store at `store`; 1 if one of them keeps a server from running.

    Args:
        settings: of a broker whose ports, accounts, replication and TLS are to be checked as well.
        namesrv: of a name server whose port, accounts and TLS are to be checked.
    """
    findings = [*_findings(store, settings, namesrv), *_notes(settings), *_name_servers(settings)]
    findings += [*_replication(settings), *_accounts(settings, namesrv), *_credentials(settings)]
    findings += [*_tls(settings), *_tls(namesrv)]
    return report(findings)


def _findings(store: Path, settings: BrokerSettings | None, namesrv: NamesrvSettings | None) -> Iterator[Finding]:
    yield Finding("Python", f"{platform.python_version()} at {sys.executable}")
    yield _core()
    yield _kernel()
    cores = len(os.sched_getaffinity(0))
    yield Finding("cores", f"{cores}; by default {workers_text(cores)}")
    yield _open_files()
    yield from _disks(store, settings)
    yield from queue_findings(store)
    for address, port, use in _ports(settings, namesrv):
        yield _port(address, port, use)


def _ports(settings: BrokerSettings | None, namesrv: NamesrvSettings | None) -> Iterator[tuple[str, int, str]]:
    """Yield address, number and use of each port that the servers take; without settings, the usual ones."""
    if settings is None:
        yield from ((LOOPBACK, port, use) for port, use in PORTS.items() if namesrv is None or use != NAME_SERVER)
    else:
        bind, own = settings.server.bind_address, settings.rocketpy
        yield bind, settings.server.listen_port, "broker"
        yield bind, settings.vip_port, "broker, VIP channel"
        yield bind, settings.store.ha_listen_port, "broker, replication"
        if own.metrics_port > 0:  # below 0: the broker takes a free one
            yield own.metrics_host, own.metrics_port, METRICS
    if namesrv is not None:
        yield namesrv.server.bind_address, namesrv.server.listen_port, NAME_SERVER
        if namesrv.rocketpy.metrics_port > 0:
            yield namesrv.rocketpy.metrics_host, namesrv.rocketpy.metrics_port, METRICS


def _notes(settings: BrokerSettings | None) -> Iterator[Finding]:
    """Yield a finding for each note on the properties, which the start-up log has as well."""
    for note in settings.notes if settings is not None else ():
        yield Finding(note.key, str(note), "see docs/run/configuration.md")


def _name_servers(settings: BrokerSettings | None) -> Iterator[Finding]:
    if settings is not None and not settings.has_name_servers:
        remedy = "name them: else only `rocketpy standalone`, which brings its own, starts with this file"
        yield Finding("namesrvAddr", "no name server is named", remedy)


def _replication(settings: BrokerSettings | None) -> Iterator[Finding]:
    with contextlib.suppress(NativeMissing):  # which is a finding already
        if settings is not None:
            from .replication_checks import replication_findings

            yield from replication_findings(settings)


def _accounts(settings: BrokerSettings | None, namesrv: NamesrvSettings | None) -> Iterator[Finding]:
    """Yield findings about the files of accounts; a broker and a name server may have the same."""
    homes = set()
    if settings is not None and settings.broker.acl_enable:
        homes.add(settings.server.rocketmq_home)
    if namesrv is not None and namesrv.namesrv.acl_enable:
        homes.add(namesrv.server.rocketmq_home)
    if homes:
        from .account_checks import account_findings

        for home in sorted(homes):
            yield from account_findings(Path(home))


def _credentials(settings: BrokerSettings | None) -> Iterator[Finding]:
    """Yield a finding about the file by which a broker signs its requests."""
    path = settings.broker.acl_credentials_file if settings is not None else None
    if not path:
        return
    from rocketpy.acl.credentials import KEY, read_credentials

    try:
        found = read_credentials(Path(path))
    except ConfigError as exc:
        yield Finding(KEY, str(exc), "correct the file or the property", True)
        return
    yield Finding(KEY, f"{path}: account {found.access_key}")


def _tls(settings: BrokerSettings | NamesrvSettings | None) -> Iterator[Finding]:
    """Yield findings about certificates, and about servers that answer by TLS."""
    if settings is None or not (settings.tls.is_served or settings.tls.use_tls):
        return
    from .liveness import REACHED_BY
    from .tls_checks import ServedPort, call_findings, server_findings

    address = REACHED_BY.get(settings.server.bind_address, settings.server.bind_address)
    port = ServedPort((address, settings.server.listen_port))
    if isinstance(settings, NamesrvSettings):
        yield from server_findings(settings.tls, port)
        return
    broker, ports = settings.broker, [port]
    names = {"brokerIP1": broker.broker_ip1}
    names |= {f"advertisedAddresses, {host}": host for host in settings.advertised.hosts}
    if not settings.is_slave or settings.store.is_automatic:
        ports.append(ServedPort.of_slaves((address, settings.store.ha_listen_port)))
        names["brokerIP2"] = broker.broker_ip2
    yield from server_findings(settings.tls, *ports, names=names)
    yield from call_findings(settings.tls, broker.namesrv_addr or "")


def workers_text(cores: int) -> str:
    """Return the number of processes that serve requests where nothing is configured."""
    from rocketpy.config import Machine, load_broker_config  # --help does without

    machine = Machine(cores, "host", lambda: "127.0.0.1")
    own = load_broker_config(None, {"storePathRootDir": "/"}, machine=machine).rocketpy
    decoding = f"{own.codec_workers} codec" if own.codec_workers else "no codec (selectors decode)"
    queries = f"{own.query_workers} query" if own.query_workers else "no query (the manager answers)"
    return f"{own.selector_workers} selector, {decoding}, 1 send, {own.pull_workers} pull, {queries}"


def _core() -> Finding:
    try:
        from rocketpy.native.core import lib
    except NativeMissing as exc:
        return Finding(
            "compiled core",
            "missing",
            f"{exc} (client and admin tool run without it, name server and broker do not)",
            True,
        )
    way = "carry-less multiply" if lib.rp_crc32_is_accelerated() else "table (this CPU has no carry-less multiply)"
    return Finding("compiled core", f"present; CRC-32 by {way}")


def _kernel() -> Finding:
    release = platform.release()
    numbers = tuple(int(part) for part in release.replace("-", ".").split(".")[:2] if part.isdigit())
    if sys.platform != "linux":
        return Finding("kernel", sys.platform, "a broker runs on Linux only", True)
    if numbers < KERNEL_WANTED:
        return Finding("kernel", release, "5.14 or newer pre-faults the log ahead of writes: steadier latency")
    return Finding("kernel", release)


def _open_files() -> Finding:
    """Look at the hard limit: servers raise their own limit to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return Finding("open files", "unlimited")
    remedy = f"raise it to {FILES_WANTED} for many connections: ulimit -Hn, or LimitNOFILE of a unit"
    return Finding("open files", f"{hard} (hard limit of this shell)", remedy if hard < FILES_WANTED else "")


def queue_findings(store: Path, limit: Path = MAX_MAP_COUNT) -> Iterator[Finding]:
    """Yield a finding about the queues of a store that rocketpy has served; those of deleted topics count."""
    with contextlib.suppress(NativeMissing, StoreError, OSError, ValueError):  # other findings, or no Linux
        from rocketpy.store.files import DiskFiles, StorePaths
        from rocketpy.store.inspection.state_files import read_control

        if (control := read_control(DiskFiles(), StorePaths.of(store))) is not None:
            yield mapped_queues(control.queue_count, int(limit.read_text()))


def mapped_queues(count: int, mappings: int) -> Finding:
    """Compare the number of queues with that of pages that the broker maps, three quarters of vm.max_map_count."""
    mapped = min(mappings // 4 * 3, MAPPED_MAX)
    found = f"{count}; the broker maps pages of {mapped} (vm.max_map_count={mappings})"
    if mapped >= min(count, MAPPED_MAX):
        return Finding("queues", found)
    wanted = max(MAPPINGS_WANTED, -(-min(count, MAPPED_MAX) // 3) * 4)
    remedy = f"sysctl vm.max_map_count={wanted}, then restart the broker: a message to another queue opens its file"
    return Finding("queues", found, remedy)


def _disks(store: Path, settings: BrokerSettings | None) -> Iterator[Finding]:
    """Yield a finding about the directory of the store, and one about that of the log if it is elsewhere."""
    if settings is None:
        yield _disk("store", store, "--store", LOG_FILE_BYTES)
        return
    own = settings.store
    size, log = own.mapped_file_size_commit_log, Path(own.store_path_commit_log)
    is_apart = not log.is_relative_to(own.store_path_root_dir)
    yield _disk("store", store, "storePathRootDir", 0 if is_apart else size)
    if is_apart:
        yield _disk("log", log, "storePathCommitLog", size)


def _disk(subject: str, directory: Path, key: str, file_bytes: int) -> Finding:
    """Look at a directory which `key` names. `file_bytes`: the size of the log's files, if they are there."""
    place = directory
    while not os.path.exists(place):  # also below a directory that this user may not enter
        place = place.parent
    free = shutil.disk_usage(place).free
    kind = file_system_of(place)
    found = f"{free / (1 << 30):.1f} GiB free at {directory}" + (f" ({kind})" if kind else "")
    if not os.access(place, os.W_OK):
        return Finding(
            subject, f"{place} is not writable", f"run this as the broker's user, or choose another {key}", True
        )
    if free < LOG_FILES_WANTED * file_bytes:
        remedy = f"two CommitLog files of {file_bytes / (1 << 20):.0f} MiB are allocated ahead: free space or lower "
        return Finding(subject, found, remedy + "mappedFileSizeCommitLog")
    return Finding(subject, found, FILE_SYSTEM_REMEDIES.get(kind, ""))


def _port(address: str, port: int, use: str) -> Finding:
    subject, key = f"port {port}", "metricsHost" if use == METRICS else "bindAddress"
    remedy = "fine if your server is running; else stop the program (ss -ltnp), or choose another port"
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            return Finding(subject, f"{use}: {exc.strerror}", remedy)
        is_foreign = exc.errno == errno.EADDRNOTAVAIL
        why = "is no address of this host" if is_foreign else f"cannot be listened on: {exc.strerror}"
        return Finding(subject, f"{use}: {address} {why}", f"correct {key} or the port", True)
    return Finding(subject, f"{use}: free at {address}")
