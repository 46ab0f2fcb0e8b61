"""All settings of one server together: frozen values, and their text for codes 26 and 319."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from rocketpy.errors import ConfigError
from rocketpy.values import Value

from . import properties
from .advertised import Advertised, parse_listeners
from .broker_config import BrokerConfig
from .message_store_config import FlushDiskType, MessageStoreConfig
from .replication_config import BrokerRole
from .rocketpy_config import RocketpyConfig
from .server_config import NamesrvConfig, ServerConfig
from .setting import Declared, c_fields, declared_settings, to_text
from .tls_config import TlsConfig
from .without_effect import BrokerWithoutEffect, NamesrvWithoutEffect

_SHOWN_MAX = 100  # characters of a key or value in an error
_SHOWN_AS = {"enableBatchPush": "isEnableBatchPush"}
"""Keys that the reference reads under the name of a setter and shows under that of a field. Both are read here."""
_READ_AS = {shown: key for key, shown in _SHOWN_AS.items()} | {
    "autoTraceBrokerEnable": "traceTopicEnable",  # as documents of 4.4 call it
    "tls.enable": "useTLS",  # the system property of the reference
}
_S = TypeVar("_S", bound="BrokerSettings | NamesrvSettings")


@attrs.frozen
class Note:
    """Something that was given and has no effect, for the start-up log. `line` is None for what is not from a file."""

    key: str
    line: int | None
    text: str

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.key}: {self.text}"


@attrs.frozen(eq=False, repr=False, kw_only=True)
class BrokerSettings(Value):
    """The settings of a broker. `path` is the -c file; None when there was none."""

    broker: BrokerConfig = attrs.field(factory=BrokerConfig)
    store: MessageStoreConfig = attrs.field(factory=MessageStoreConfig)
    server: ServerConfig = attrs.field(factory=ServerConfig)
    tls: TlsConfig = attrs.field(factory=TlsConfig)
    rocketpy: RocketpyConfig = attrs.field(factory=RocketpyConfig)
    without_effect: Any = attrs.field(factory=BrokerWithoutEffect)
    path: Path | None = None
    notes: tuple[Note, ...] = ()
    next_start: Mapping[tuple[str, str], Any] = attrs.field(factory=dict, hash=False)
    """Values by (part, attribute) that were changed while the server runs and take effect when it starts again."""

    def c_fields(self, struct: str) -> dict[str, Any]:
        """Return the fields of a C struct that settings declare with `c`."""
        return c_fields(struct, *(part for _, part in parts(self)))

    @property
    def limits(self) -> dict[str, int]:
        """Fields of rp_limits_config; 0: no limit, as all of accounts without access control."""
        limits = self.c_fields("rp_limits_config")
        return limits if self.broker.acl_enable else limits | {"account_requests": 0, "account_bytes": 0, "failures": 0}

    @property
    def is_slave(self) -> bool:
        return self.store.is_slave

    @property
    def is_sync_master(self) -> bool:
        return self.store.broker_role is BrokerRole.SYNC_MASTER

    def in_role(self, *, is_master: bool) -> BrokerSettings:
        """Return the settings of a process tree in one of the roles of a member with automatic failover."""
        role = self.store.broker_role if is_master else BrokerRole.SLAVE
        return attrs.evolve(self, store=attrs.evolve(self.store, broker_role=role))

    @property
    def has_name_servers(self) -> bool:
        """Return True if they are named, or an address server names them."""
        return bool(self.broker.namesrv_addr) or self.broker.fetch_namesrv_addr_by_address_server

    @property
    def is_sync_flush(self) -> bool:
        return self.store.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def broker_addr(self) -> str:
        """`ip:port` that clients dial."""
        return _address(self.broker.broker_ip1, self.server.listen_port)

    @property
    def ha_server_addr(self) -> str:
        """`ip:port` that slaves dial."""
        return _address(self.broker.broker_ip2, self.store.ha_listen_port)

    @property
    def advertised(self) -> Advertised:
        """Addresses for other clients than those of `broker_addr`."""
        return Advertised.parse(self.rocketpy.advertised_addresses, self.server.listen_port)

    @property
    def ha_advertised(self) -> Advertised:
        """Addresses for other slaves than those of `ha_server_addr`; none if brokerIP2 names the address for all."""
        is_same = self.broker.broker_ip2 == self.broker.broker_ip1
        text = self.rocketpy.advertised_addresses if is_same else ""
        return Advertised.parse(text, self.server.listen_port, shift=1)

    @property
    def vip_port(self) -> int:
        return self.server.listen_port - 2

    @property
    def update_path(self) -> Path:
        """The file that run-time changes go to."""
        return self.path or Path(self.store.store_path_root_dir) / "config" / "broker.properties"

    def to_properties(self, *, important_only: bool = False) -> str:
        """`key=value` lines, nulls left out: the body of code 26, the output of -p (and, in part, of -m)."""
        return _to_properties(self, important_only)


@attrs.frozen(eq=False, repr=False, kw_only=True)
class NamesrvSettings(Value):
    """The settings of a name server."""

    namesrv: NamesrvConfig = attrs.field(factory=NamesrvConfig)
    server: ServerConfig = attrs.field(factory=ServerConfig)
    tls: TlsConfig = attrs.field(factory=TlsConfig)
    rocketpy: RocketpyConfig = attrs.field(factory=lambda: RocketpyConfig(metrics_port=0, topics_max=1_000_000))
    without_effect: Any = attrs.field(factory=NamesrvWithoutEffect)
    path: Path | None = None
    notes: tuple[Note, ...] = ()
    next_start: Mapping[tuple[str, str], Any] = attrs.field(factory=dict, hash=False)
    """Values by (part, attribute) that were changed while the server runs and take effect when it starts again."""

    @property
    def listeners(self) -> dict[str, tuple[str, int]]:
        """Host and port of each listener by name; the name of the one of bindAddress and listenPort is empty."""
        return {"": (self.server.bind_address, self.server.listen_port)} | parse_listeners(self.rocketpy.listeners)

    @property
    def update_path(self) -> Path:
        return Path(self.namesrv.config_store_path)

    def to_properties(self, *, important_only: bool = False) -> str:
        """`key=value` lines: the body of code 319, the output of -p. As in the reference, a changed value is shown at
        once, also when it takes effect at the next start."""
        return _to_properties(self, important_only)


def parts(settings: BrokerSettings | NamesrvSettings) -> Iterator[tuple[str, Any]]:
    """(attribute, config object) of each part that holds settings."""
    for field in attrs.fields(type(settings)):
        value = getattr(settings, field.name)
        if attrs.has(type(value)):
            yield field.name, value


def known_settings(settings: BrokerSettings | NamesrvSettings) -> dict[str, list[tuple[str, Declared]]]:
    """Java key to the parts that declare it: as in the reference, a key given is offered to every part."""
    known: dict[str, list[tuple[str, Declared]]] = {}
    for part, value in parts(settings):
        for declared in declared_settings(type(value)):
            known.setdefault(declared.setting.key, []).append((part, declared))
    return known


def read_as(key: str) -> str:
    """The key that is declared, for one that was given or shown."""
    return _READ_AS.get(key, key)


def evolve_parts(settings: _S, values: Mapping[tuple[str, str], Any]) -> _S:
    """`settings` with values replaced, by (part, attribute)."""
    changed: dict[str, dict[str, Any]] = {}
    for (part, attribute), value in values.items():
        changed.setdefault(part, {})[attribute] = value
    return attrs.evolve(
        settings, **{part: attrs.evolve(getattr(settings, part), **new) for part, new in changed.items()}
    )


def unknown_key(key: str, known: Mapping[str, Any], *, file: Path | None, line: int | None) -> ConfigError:
    """The error for a key that nobody declares; names the nearest one."""
    import difflib  # only a mistake needs it; a server would keep it in memory for ever

    lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key[:_SHOWN_MAX].lower(), lower, n=1, cutoff=0.6)
    hint = f"; did you mean {lower[near[0]]}?" if near else ""
    return ConfigError(f"unknown setting{hint}", file=file, line=line, key=key[:_SHOWN_MAX])


def parse_setting(declared: Declared, text: str, *, file: Path | None, line: int | None) -> Any:
    """The value of one setting.

    Raises:
        ConfigError: names the bad value and what is allowed, or why only the default is.
    """
    key, shown = declared.setting.key, repr(text[:_SHOWN_MAX])
    try:
        value = declared.parse(text)
    except ValueError as exc:
        raise ConfigError(f"{shown} is not allowed; it must be {exc}", file=file, line=line, key=key) from None
    if declared.setting.only_default and value != declared.default and value != "":
        default = to_text(declared.default)
        allowed = f"leave it at {default}" if default else "leave it out"
        raise ConfigError(
            f"{shown} is not supported: {declared.setting.only_default} ({allowed})", file=file, line=line, key=key
        )
    return value


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _to_properties(settings: BrokerSettings | NamesrvSettings, important_only: bool) -> str:
    values: dict[str, str] = {}
    for _, part in parts(evolve_parts(settings, settings.next_start)):
        for declared in declared_settings(type(part)):
            text = to_text(getattr(part, declared.attribute))
            if text is not None and not declared.setting.secret and (declared.setting.important or not important_only):
                values.setdefault(_SHOWN_AS.get(declared.setting.key, declared.setting.key), text)
    return properties.format_mapping(values)
