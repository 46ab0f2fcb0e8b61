"""From the broker's settings to those of its coordinator: who the members are, and how etcd is reached.

In the coordinator's process only: this imports the client for etcd.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from rocketpy.config import BrokerRole, BrokerSettings, MessageStoreConfig
from rocketpy.coordinator.coordinator import Place
from rocketpy.coordinator.gateway import Access
from rocketpy.errors import ConfigError
from rocketpy.failover.member import Settings
from rocketpy.failover.records import FORMAT, GroupConfig

PASSWORD_MAX = 4096  # bytes


def member_settings(settings: BrokerSettings) -> Settings:
    """What the rules of failover need to know."""
    store = settings.store
    return Settings(
        member=store.ha_member,
        config=GroupConfig(
            format=FORMAT,
            mode="sync" if store.broker_role is BrokerRole.SYNC_MASTER else "async",
            file_size=store.mapped_file_size_commit_log,
            members=store.member_names,
        ),
        lease_s=store.ha_lease_seconds,
        keep_up_s=store.ha_max_time_slave_not_catchup / 1000,
        without_lease=store.ha_serve_without_lease,
    )


def place(settings: BrokerSettings) -> Place:
    """Where other members find this one."""
    return Place(address=settings.broker_addr, ha_address=settings.ha_server_addr, broker_id=settings.broker.broker_id)


def access(store: MessageStoreConfig) -> Access:
    """How to reach etcd.

    Raises:
        ConfigError: a file cannot be used.
    """
    return Access(
        addresses=store.etcd_addresses,
        user=store.ha_etcd_user,
        password=_password(store.ha_etcd_password_file),
        tls=_tls(store),
    )


def _password(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            text = file.read(PASSWORD_MAX).decode().partition("\n")[0].strip("\r")
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read {path}: {why}", key="haEtcdPasswordFile") from exc
    if not text:
        raise ConfigError(f"{path} has no password on its first line", key="haEtcdPasswordFile")
    return text


def _tls(store: MessageStoreConfig) -> ssl.SSLContext | None:
    if not any(address.startswith("https:") for address in store.etcd_addresses):
        return None
    context = ssl.create_default_context()
    if store.ha_etcd_ca_file is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificates and host names
        _load("haEtcdCaFile", store.ha_etcd_ca_file, lambda path: context.load_verify_locations(path))
    key = store.ha_etcd_key_file
    if store.ha_etcd_cert_file is not None:
        _load("haEtcdCertFile", store.ha_etcd_cert_file, lambda path: context.load_cert_chain(path, key))
    return context


def _load(key: str, path: str, load: Callable[[str], None]) -> None:
    try:
        load(path)
    except (OSError, ssl.SSLError) as exc:
        why = getattr(exc, "reason", None) or exc.strerror or str(exc)
        raise ConfigError(f"cannot use {path}: {why}", key=key) from exc
