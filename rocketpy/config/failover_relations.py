"""Checks of the properties of automatic failover that take more than one of them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from .failover_config import FailoverConfig
from .replication_config import BrokerRole
from .settings import BrokerSettings, Note

MEMBERS_MAX = 16
MEMBER_NAME = re.compile(r"[a-zA-Z0-9._-]{1,64}")

Fault = tuple[str, str]  # the key, and what is wrong with it


def failover_fault(settings: BrokerSettings) -> Fault | None:
    """The first thing that is wrong; None: nothing is, or failover is not used."""
    store = settings.store
    if not store.is_automatic:
        given = (
            ("haEtcdAddresses", store.ha_etcd_addresses),
            ("haMember", store.ha_member),
            ("haMembers", store.ha_members),
            ("minInSyncReplicas", store.min_in_sync_replicas > 1),
        )
        return next(((key, "is for haMode=automatic, and haMode is plain") for key, value in given if value), None)
    return _role_fault(settings) or _member_fault(store) or _etcd_fault(store) or _secret_fault(store)


def _role_fault(settings: BrokerSettings) -> Fault | None:
    store = settings.store
    if store.broker_role is BrokerRole.SLAVE:
        return "brokerRole", "SLAVE with haMode=automatic: give SYNC_MASTER or ASYNC_MASTER, the same on each member"
    if settings.broker.broker_id == 0:
        return "brokerId", "0 with haMode=automatic: give each member its own, 1 and up; it is 0 while it is master"
    if store.ha_master_address:
        return "haMasterAddress", f"{store.ha_master_address} with haMode=automatic: etcd says who is master; remove it"
    return None


def _member_fault(store: FailoverConfig) -> Fault | None:
    names = store.member_names
    for key, name in (("haMember", store.ha_member), *(("haMembers", name) for name in names)):
        if not MEMBER_NAME.fullmatch(name):
            return key, f"{name!r} must be 1 to 64 letters, digits, '.', '_' or '-'"
    if not 0 < len(names) <= MEMBERS_MAX or len(set(names)) < len(names):
        return "haMembers", f"{store.ha_members!r} must be 1 to {MEMBERS_MAX} different names, separated by commas"
    if store.ha_member not in names:
        return "haMember", f"{store.ha_member} is not in haMembers={store.ha_members}"
    if store.min_in_sync_replicas > len(names):
        return "minInSyncReplicas", f"{store.min_in_sync_replicas}, but haMembers has {len(names)}: nobody could send"
    return None


def _etcd_fault(store: FailoverConfig) -> Fault | None:
    addresses = store.etcd_addresses
    if not addresses:
        return "haEtcdAddresses", "is missing: give the URLs of etcd's client ports (http://10.0.0.1:2379,...)"
    for address in addresses:
        if not _is_url(address):
            return "haEtcdAddresses", f"{address!r} is not http://HOST:PORT or https://HOST:PORT"
    if bool(store.ha_etcd_user) != bool(store.ha_etcd_password_file):
        return "haEtcdUser", "give haEtcdUser and haEtcdPasswordFile together"
    if bool(store.ha_etcd_cert_file) != bool(store.ha_etcd_key_file):
        return "haEtcdCertFile", "give haEtcdCertFile and haEtcdKeyFile together"
    if (store.ha_etcd_ca_file or store.ha_etcd_cert_file) and not all(at.startswith("https:") for at in addresses):
        return "haEtcdAddresses", "certificates are given, so each must begin with https://"
    return None


def _secret_fault(store: FailoverConfig) -> Fault | None:
    """A stranger on the HA port could acknowledge in the name of a member what no member has."""
    if store.ha_secret_file or all(_is_loopback(piece.strip()) for piece in store.ha_addresses.split(",")):
        return None
    why = "is missing: with haMode=automatic, and haAddresses beyond this machine, members must prove who they are"
    return "haSecretFile", why


def _is_loopback(piece: str) -> bool:
    """Return True for a loopback network, and for a text that is no network: another check names it."""
    try:
        return not piece or ipaddress.ip_network(piece, strict=False).is_loopback
    except ValueError:
        return True


def _is_url(address: str) -> bool:
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return False
    plain = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port is not None and plain


def unreachable_notes(settings: BrokerSettings, lines: Mapping[str, int]) -> tuple[Note, ...]:
    """Addresses of this machine alone in the settings of a member whose group is on several: it would start, and the
    other members and clients would never reach it."""
    store = settings.store
    if not store.is_automatic:
        return ()
    networks = [piece.strip() for piece in store.ha_addresses.split(",") if piece.strip()]
    etcd = [urlsplit(address).hostname or "" for address in store.etcd_addresses]
    named = [one for one in (*networks, *etcd) if not is_of_this_machine(one)]
    if not named:
        return ()
    addresses = (
        ("bindAddress", settings.server.bind_address),
        ("brokerIP1", settings.broker.broker_ip1 or ""),
        ("brokerIP2", settings.broker.broker_ip2 or ""),
    )
    text = "%s is reached from this machine only, and %s is not on it: give the address of this host"
    notes = [
        Note(key, lines.get(key), text % (address, named[0]))
        for key, address in addresses
        if is_of_this_machine(address) and (key != "brokerIP2" or address != settings.broker.broker_ip1)
    ]
    if networks and all(map(is_of_this_machine, networks)):
        text = f"{store.ha_addresses}: members on other hosts may not copy the log; name them"
        notes.append(Note("haAddresses", lines.get("haAddresses"), text))
    return tuple(notes)


def is_of_this_machine(address: str) -> bool:
    """Return True for a loopback address or network."""
    try:
        return ipaddress.ip_network(address.strip("[]"), strict=False).is_loopback
    except ValueError:
        return address == "localhost"
