"""From a broker's settings to its access to etcd, and to what its group agrees on."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from rocketpy.config import BrokerRole, BrokerSettings, MessageStoreConfig
from rocketpy.errors import ConfigError
from rocketpy.failover.rules.records import ASYNC_FLUSH, FORMAT, SYNC_FLUSH, GroupConfig

from .gateway import Access

PASSWORD_MAX = 4096  # bytes


def access(store: MessageStoreConfig) -> Access:
    """Return the addresses and credentials with which to reach etcd.

    Raises:
        ConfigError: a file cannot be used.
    """
    return Access(
        addresses=store.etcd_addresses,
        user=store.ha_etcd_user,
        password=_password(store.ha_etcd_password_file),
        tls=_tls(store),
    )


def group_config(settings: BrokerSettings) -> GroupConfig:
    """Return the settings on which the group of this broker has to agree."""
    store = settings.store
    return GroupConfig(
        format=FORMAT,
        mode="sync" if store.broker_role is BrokerRole.SYNC_MASTER else "async",
        file_size=store.mapped_file_size_commit_log,
        members=store.member_names,
        in_sync_min=store.min_in_sync_replicas,
        flush=SYNC_FLUSH if settings.is_sync_flush else ASYNC_FLUSH,
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
        # With a password, here a wrong one, OpenSSL does not ask for one at the terminal.
        _load("haEtcdCertFile", store.ha_etcd_cert_file, lambda path: context.load_cert_chain(path, key, password=""))
    return context


def _load(key: str, path: str, load: Callable[[str], None]) -> None:
    try:
        load(path)
    except (OSError, ssl.SSLError) as exc:
        why = getattr(exc, "reason", None) or exc.strerror or str(exc)
        raise ConfigError(f"cannot use {path}: {why}", key=key) from exc
