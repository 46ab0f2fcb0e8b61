"""The part of `rocketpy doctor` that looks at replication: secret, addresses, the master, the group in etcd."""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from rocketpy.acl.credentials import read_credentials
from rocketpy.admin.admin import Admin
from rocketpy.config import BrokerSettings
from rocketpy.errors import ConfigError, RocketError, StoreError
from rocketpy.networks import parse_networks
from rocketpy.remoting.bodies.route import MASTER_ID
from rocketpy.remoting.signature import Credentials
from rocketpy.replication.connection import connect, no_tls
from rocketpy.replication.errors import MasterUnusable, NoTls
from rocketpy.replication.master_log import Caller, ask_master, request_address
from rocketpy.replication.secret import read_secret
from rocketpy.store.files import DiskFiles
from rocketpy.store.recovery.diverged import DIRECTORY, kept_aside
from rocketpy.tls import client_context
from rocketpy.tls.handshake_counts import CLOSED

from .findings import Finding, open_to_others
from .tls_checks import calling_options, expiry_of_peer

if TYPE_CHECKING:
    from rocketpy.failover.rules.requests import View

TIMEOUT_S = 3.0
CLOSED_SOON_S = 0.5  # a master closes the connection of a stranger at once


def replication_findings(settings: BrokerSettings) -> Iterator[Finding]:
    """Yield the faults that keep a broker with these settings from replicating."""
    if settings.store.ha_secret_file is not None:
        yield _secret(settings.store.ha_secret_file)
    if not settings.is_slave or settings.store.is_automatic:
        yield _addresses(settings)
    yield from _kept(settings)
    if settings.store.is_automatic:
        yield from etcd_findings(settings)
    elif settings.is_slave:
        yield from _master(settings)


def _secret(path: str) -> Finding:
    try:
        size = len(read_secret(path))
    except ConfigError as exc:
        return Finding("haSecretFile", str(exc), "write the same 16 bytes or more on all brokers", True)
    return next(open_to_others("haSecretFile", path), Finding("haSecretFile", f"{path}: {size} bytes"))


def _addresses(settings: BrokerSettings) -> Finding:
    networks = parse_networks(settings.store.ha_addresses)
    found = settings.store.ha_addresses
    if all(network.network_address.is_loopback for network in networks) and not _is_loopback(settings):
        return Finding(
            "haAddresses", f"{found}: slaves of this machine only", "name the machines of the slaves, if there are any"
        )
    return Finding("haAddresses", found)


def _kept(settings: BrokerSettings) -> Iterator[Finding]:
    """Yield a finding about log tails that were cut off and kept, if there are any."""
    root, most = Path(settings.store.store_path_root_dir), settings.store.ha_diverged_size_max
    try:
        kept = kept_aside(DiskFiles(), root)
    except StoreError as exc:
        yield Finding("diverged", str(exc), "let the user of the broker read the directory")
        return
    if kept.files:
        found = f"{kept.files} files in {root / DIRECTORY}, {kept.size} of at most {most} bytes"
        yield Finding("diverged", found, "messages that were cut off this log: move away what nobody needs")


def _is_loopback(settings: BrokerSettings) -> bool:
    """Return True if only this machine reaches the broker."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(settings.server.bind_address).is_loopback
    return False


# --- a slave --------------------------------------------------------------------------------------------------------


def _master(settings: BrokerSettings) -> Iterator[Finding]:
    try:
        address = _find_master(settings)
        tls = client_context(settings.tls) if settings.tls.use_tls else None
        log = ask_master(address, TIMEOUT_S, Caller(tls, _credentials(settings)))
    except ConfigError:  # a finding of the certificate, or of the account
        return
    except NoTls as exc:
        yield Finding("master", exc.found, exc.remedy, True)
        return
    except (RocketError, ValueError) as exc:
        yield Finding(
            "master", str(exc), "start the master; it and this broker need the same brokerName and name server"
        )
        return
    yield Finding("master", f"{address}: log from {log.begin} to {log.end}")
    own = settings.store.mapped_file_size_commit_log
    if log.file_size != own:
        remedy = f"set mappedFileSizeCommitLog={log.file_size} and begin with an empty store"
        yield Finding("log files", f"{own} bytes here, {log.file_size} on the master", remedy, True)
    if ha := settings.store.ha_master_address or log.ha_address:
        yield replication_port(ha, tls if settings.store.ha_use_tls else None)


def _find_master(settings: BrokerSettings) -> str:
    """Return its address for requests.

    Raises:
        RocketError: name servers know no master, or do not answer. ValueError: haMasterAddress is not host:port.
    """
    given, name, servers = (
        settings.store.ha_master_address,
        settings.broker.broker_name,
        settings.broker.namesrv_addr,
    )
    if given:
        return request_address(given)
    if not servers:
        raise RocketError("neither namesrvAddr nor haMasterAddress is set")

    async def ask() -> str | None:
        tls, credentials = calling_options(settings.tls), _credentials(settings)
        async with Admin(name_servers=servers, timeout=TIMEOUT_S, tls=tls, credentials=credentials) as admin:
            data = (await admin.cluster_info()).broker_addr_table.get(name)
            return data.broker_addrs.get(MASTER_ID) if data else None

    address = trio.run(ask)
    if address is None:
        raise RocketError(f"the name servers {servers} know no master of {name}")
    return address


def _credentials(settings: BrokerSettings) -> Credentials | None:
    """Return the credentials of the broker's requests; None: they have no signature. Raises: ConfigError."""
    path = settings.broker.acl_credentials_file
    return read_credentials(Path(path)) if path else None


def replication_port(ha: str, tls: ssl.SSLContext | None) -> Finding:
    """Connect as a slave does, up to its first words."""
    subject, remedy = "replication port", ""
    try:
        with connect(ha, TIMEOUT_S, tls) as connection:
            own = connection.getsockname()[0]
            found = f"{ha}: takes connections"
            if isinstance(connection, ssl.SSLSocket):
                expires, remedy = expiry_of_peer(connection)
                found += expires
            connection.settimeout(CLOSED_SOON_S)
            is_closed = connection.recv(1) == b""
    except TimeoutError:
        return Finding(subject, found, remedy)
    except NoTls as exc:
        return _no_tls(subject, exc)
    except ssl.SSLError as exc:
        return _no_tls(subject, no_tls(ha, exc))
    except (MasterUnusable, OSError) as exc:
        return Finding(subject, f"{ha}: {exc}", "let the firewall pass it; is it listenPort + 1?", True)
    if is_closed:
        return Finding(subject, f"{ha}: refuses {own}", "name this address in the master's haAddresses", True)
    return Finding(subject, found, remedy)


def _no_tls(subject: str, failure: NoTls) -> Finding:
    """A master closes the connection of an address that it refuses before TLS."""
    others = "; or name this address in the master's haAddresses" if failure.reason == CLOSED else ""
    return Finding(subject, failure.found, failure.remedy + others, True)


# --- automatic failover ---------------------------------------------------------------------------------------------


def etcd_findings(settings: BrokerSettings) -> Iterator[Finding]:
    """Yield findings about the group of this broker in etcd, and the state of etcd itself."""
    if importlib.util.find_spec("httpcore") is None:
        yield Finding("etcd", "its client is not installed", "pip install 'rocketpy-mq[failover]'", True)
        return
    from rocketpy.failover.etcd.access import access
    from rocketpy.failover.etcd.gateway import EtcdStatus, Gateway
    from rocketpy.failover.etcd.group_keys import GroupKeys
    from rocketpy.failover.etcd.upkeep import remedy

    async def read() -> tuple[View, EtcdStatus]:
        async with Gateway(access(settings.store)) as gateway:
            broker = settings.broker
            keys = GroupKeys(gateway, broker.broker_cluster_name, broker.broker_name)
            return await keys.read(), await gateway.status()

    try:
        view, status = trio.run(read)
    except RocketError as exc:
        yield Finding("etcd", str(exc), "start etcd, or correct haEtcdAddresses, user, password or certificates", True)
        return
    yield _group(settings, view)
    yield from _port_of_master(settings, view)
    task = remedy(status)
    found = f"{status.alarms or 'no alarm'}; {status.db_bytes / 1e6:.0f} MB"
    yield Finding("etcd's database", found, task, bool(status.alarms))


def _port_of_master(settings: BrokerSettings, view: View) -> Iterator[Finding]:
    """Yield a finding about the HA port of another member that is master."""
    master = view.members.get(view.master.member) if view.master is not None else None
    if master is None or view.master is None or view.master.member == settings.store.ha_member:
        return
    with contextlib.suppress(ConfigError):  # a finding of the certificate
        yield replication_port(master.ha_address, client_context(settings.tls) if settings.store.ha_use_tls else None)


def _group(settings: BrokerSettings, view: View) -> Finding:
    from rocketpy.failover.rules.settings import differences, overruled
    from rocketpy.processes.member.coordinator_main import member_settings

    own = member_settings(settings)
    if view.config is not None and (found := differences(own.config, view.config, own.member)):
        return Finding("etcd", found, "make them equal", True)
    if view.config is not None and (found := overruled(own.config, view.config)):
        return Finding("etcd", found, "that of the group counts: correct the file, or see mqadmin haConfigure")
    master = view.master.member if view.master else "none"
    return Finding("etcd", f"reached; members: {', '.join(sorted(view.members)) or 'none'}; master: {master}")
