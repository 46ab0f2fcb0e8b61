"""The options by which sources and sink reach a cluster: name servers, credentials, TLS."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from rocketpy.client.options import NAMESPACE, ClientOptions, ProducerOptions, addresses_of, namespace_of
from rocketpy.client.security import KEY_PASSWORD_VARIABLE, SecuritySettings
from rocketpy.codes import ResponseCode
from rocketpy.message.names import with_namespace, without_namespace

from .options import boolean, directory, option, parse_options, required, text

MAX_WAIT_S = 10.0
BUSY_CODES = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""Answers of a broker that cannot serve a request now; the same request may succeed a moment later."""
_SECURITY = frozenset(field.name for field in attrs.fields(SecuritySettings))


def _namespace(value: str) -> str:
    if not NAMESPACE.fullmatch(value):
        raise ValueError("is no namespace: expected are letters, digits, - and _, without %")
    return value


def _addresses(value: str) -> str:
    addresses_of(value)
    return text(value)


@attrs.frozen(kw_only=True, slots=False)
class ConnectionOptions:
    """Credentials come from one place: the options themselves, a file, or the environment of each process.

    `SecuritySettings` checks the fields that it has as well. Credentials and TLS that are not given come from the
    environment, as those of every client.
    """

    name_servers: str = required("nameServer", _addresses, "host:port;host:port of the name servers")
    access_key: str | None = option("accessKey", text, None, "for brokers with access control")
    secret_key: str | None = attrs.field(
        default=None, repr=False, metadata={"key": "secretKey", "parse": text, "meaning": "signs each request"}
    )
    security_token: str | None = attrs.field(
        default=None, repr=False, metadata={"key": "securityToken", "parse": text, "meaning": "of temporary keys"}
    )
    credentials_file: Path | None = option(
        "credentialsFile", directory, None, "tools.yml, or lines accessKey=…, secretKey=…, on every executor"
    )
    credentials_env: str | None = option(
        "credentialsEnv", text, None, "prefix P of the variables P_ACCESS_KEY, P_SECRET_KEY, P_SECURITY_TOKEN"
    )
    tls: bool | None = option("tls", boolean, None, "encrypted connections to name servers and brokers")
    tls_ca_file: Path | None = option("tlsCaFile", directory, None, "PEM file of whom to trust, on every executor")
    tls_cert_file: Path | None = option("tlsCertFile", directory, None, "PEM file to show, on every executor")
    tls_key_file: Path | None = option("tlsKeyFile", directory, None, "PEM file of its key, on every executor")
    tls_verify: bool = option("tlsVerify", boolean, True, "false: any server is trusted")
    namespace: str = option("namespace", _namespace, "", "before topics and groups, NAMESPACE%Topic")
    unit_name: str | None = option("unitName", text, None, "part of the client id")
    vip_channel: bool = option("vipChannel", boolean, False, "sends and queries to the port - 2")

    @vip_channel.validator
    def _security_fits(self, _: attrs.Attribute[Any], __: object) -> None:
        self._security()

    def known(self, name: str) -> str:
        """A topic or group as brokers know it, with the namespace."""
        return with_namespace(name, self._namespace)

    def shown(self, topics: Iterable[str]) -> list[str]:
        """Return the topics of a cluster that are in the namespace, without it."""
        return [short for topic in topics if self.known(short := without_namespace(topic, self._namespace)) == topic]

    @property
    def _namespace(self) -> str:
        return self.namespace or namespace_of(self.name_servers)

    def client_options(self) -> ClientOptions:
        """Options of the client. Reads the credentials: call it where they are.

        Raises:
            ConfigError: they are incomplete, or cannot be read.
        """
        return ClientOptions(**self._settings())

    def producer_options(self, **settings: Any) -> ProducerOptions:
        return ProducerOptions(**self._settings(), **settings)

    def _settings(self) -> dict[str, Any]:
        security = self._security()
        settings: dict[str, Any] = {
            "name_servers": self.name_servers,
            "namespace": self.namespace,
            "unit_name": self.unit_name,
            "vip_channel": self.vip_channel,
            "api_timeout": MAX_WAIT_S,
        }
        if (credentials := security.credentials()) is not None:
            settings["credentials"] = credentials
        if self.tls is not None:
            settings["tls"] = security.tls_options()
        return settings

    def _security(self) -> SecuritySettings:
        """Raises ConfigError: an option has no effect, or needs another one."""
        shared = [field for field in attrs.fields(ConnectionOptions) if field.name in _SECURITY]
        return SecuritySettings(
            **{field.name: getattr(self, field.name) for field in shared if getattr(self, field.name) is not None},
            tls_key_password=os.environ.get(KEY_PASSWORD_VARIABLE),
            names={field.name: field.metadata["key"] for field in shared},
        )


def connection_of(name_server: str, others: Mapping[str, str]) -> dict[str, str]:
    """The options of a connection, checked.

    Args:
        others: its options beside nameServer, like credentialsFile.
    Raises:
        ConfigError: one of them is none, or is wrong.
    """
    given = {**others, "nameServer": name_server}
    parse_options(ConnectionOptions, given).client_options()
    return given
