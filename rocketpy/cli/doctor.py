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
from rocketpy.errors import ConfigError, NativeMissing

from .findings import Finding, report

NAME_SERVER = "name server"
PORTS = {
    10911: "broker",
    10909: "broker, VIP channel",
    10912: "broker, replication",
    9876: NAME_SERVER,
    5557: "metrics",
}
LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"
FILES_WANTED = 20_000
DISK_WANTED_BYTES = 4 << 30
KERNEL_WANTED = (5, 14)  # pidfd, memfd, MADV_POPULATE_WRITE


def examine(store: Path, settings: BrokerSettings | None = None, namesrv: NamesrvSettings | None = None) -> int:
    """Print the findings for a broker with its store at `store`; 1 if one of them keeps a server from running.

    Args:
        settings: of a broker whose ports, accounts, replication and TLS are to be checked as well.
        namesrv: of a name server whose port, accounts and TLS are to be checked.
    """
    findings = [*_findings(store, settings, namesrv), *_notes(settings), *_replication(settings)]
    findings += [*_accounts(settings, namesrv), *_credentials(settings), *_tls(settings), *_tls(namesrv)]
    return report(findings)


def _findings(store: Path, settings: BrokerSettings | None, namesrv: NamesrvSettings | None) -> Iterator[Finding]:
    yield Finding("Python", f"{platform.python_version()} at {sys.executable}")
    yield _core()
    yield _kernel()
    cores = len(os.sched_getaffinity(0))
    yield Finding("cores", f"{cores}; by default {workers_text(cores)}")
    yield _open_files()
    yield _disk(store)
    for port, use in ports_of(settings).items():
        if namesrv is None or use != NAME_SERVER:
            yield _port(_address_of(settings), port, use)
    if namesrv is not None:
        yield _port(_address_of(namesrv), namesrv.server.listen_port, NAME_SERVER)


def ports_of(settings: BrokerSettings | None) -> dict[int, str]:
    """The ports that a broker takes, and for what; without settings, the usual ones."""
    if settings is None:
        return PORTS
    found = {
        settings.server.listen_port: "broker",
        settings.vip_port: "broker, VIP channel",
        settings.store.ha_listen_port: "broker, replication",
    }
    metrics = settings.rocketpy.metrics_port  # below 0: the broker takes a free one
    return found | ({metrics: "metrics"} if metrics > 0 else {})


def _address_of(settings: BrokerSettings | NamesrvSettings | None) -> str:
    """The address at which a port has to be free."""
    bind = settings.server.bind_address if settings is not None else LOOPBACK
    return LOOPBACK if ":" in bind or bind == "*" else bind or LOOPBACK


def _notes(settings: BrokerSettings | None) -> Iterator[Finding]:
    """Findings for what the start-up log warns of."""
    for note in settings.notes if settings is not None else ():
        yield Finding(note.key, str(note), "see docs/run/configuration.md")


def _replication(settings: BrokerSettings | None) -> Iterator[Finding]:
    with contextlib.suppress(NativeMissing):  # which is a finding already
        if settings is not None:
            from .replication_checks import replication_findings

            yield from replication_findings(settings)


def _accounts(settings: BrokerSettings | None, namesrv: NamesrvSettings | None) -> Iterator[Finding]:
    """Findings about the files of accounts; a broker and a name server may have the same."""
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
    """A finding about the file by which a broker signs its requests."""
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
    """Findings about certificates, and about servers that answer by TLS."""
    if settings is None or not (settings.tls.is_served or settings.tls.use_tls):
        return
    from .tls_checks import ServedPort, call_findings, server_findings

    address = _address_of(settings)
    if address == EVERYWHERE:
        address = LOOPBACK
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
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES_WANTED:
        return Finding("open files", f"{soft} (hard limit {hard})", f"ulimit -n {FILES_WANTED} for many connections")
    return Finding("open files", f"{soft}")


def _disk(store: Path) -> Finding:
    place = store
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{free / (1 << 30):.1f} GiB free at {store}"
    if not os.access(place, os.W_OK):
        return Finding("store", f"{place} is not writable", "choose another directory with --store", True)
    if free < DISK_WANTED_BYTES:
        return Finding(
            "store",
            found,
            "two CommitLog files of 1 GiB are allocated ahead: free space or lower mappedFileSizeCommitLog",
        )
    return Finding("store", found)


def _port(address: str, port: int, use: str) -> Finding:
    subject = f"port {port}"
    remedy = "fine if your server is running; else stop the program (ss -ltnp), or choose another port"
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as exc:
            if exc.errno == errno.EADDRNOTAVAIL:
                return Finding(subject, f"{use}: {address} is no address of this host", "correct bindAddress", True)
            return Finding(subject, f"{use}: {exc.strerror}", remedy)
    return Finding(subject, f"{use}: free at {address}")
