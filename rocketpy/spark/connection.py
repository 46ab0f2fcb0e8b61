"""The options by which sources and sink reach a cluster: name servers, credentials, TLS."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from rocketpy.client.options import ClientOptions, ProducerOptions, TlsOptions
from rocketpy.codes import ResponseCode
from rocketpy.errors import ConfigError
from rocketpy.remoting.signature import Credentials

from .options import boolean, directory, option, parse_options, required, text

ACCESS_KEY, SECRET_KEY, SECURITY_TOKEN = "accessKey", "secretKey", "securityToken"
MAX_WAIT_S = 10.0
BUSY_CODES = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""Answers of a broker that cannot serve a request now; the same request may succeed a moment later."""


@attrs.frozen(kw_only=True, slots=False)
class ConnectionOptions:
    """Credentials come from one place: the options themselves, a file, or the environment of each process."""

    name_servers: str = required("nameServer", text, "host:port;host:port of the name servers")
    access_key: str | None = option("accessKey", text, None, "for brokers with access control")
    secret_key: str | None = attrs.field(
        default=None, repr=False, metadata={"key": "secretKey", "parse": text, "meaning": "signs each request"}
    )
    security_token: str | None = attrs.field(
        default=None, repr=False, metadata={"key": "securityToken", "parse": text, "meaning": "of temporary keys"}
    )
    credentials_file: Path | None = option(
        "credentialsFile", directory, None, "lines accessKey=…, secretKey=…, on every executor"
    )
    credentials_env: str | None = option(
        "credentialsEnv", text, None, "prefix P of the variables P_ACCESS_KEY, P_SECRET_KEY, P_SECURITY_TOKEN"
    )
    tls: bool = option("tls", boolean, False, "encrypted connections to name servers and brokers")
    tls_ca_file: Path | None = option("tlsCaFile", directory, None, "PEM file of whom to trust, on every executor")
    tls_cert_file: Path | None = option("tlsCertFile", directory, None, "PEM file to show, on every executor")
    tls_key_file: Path | None = option("tlsKeyFile", directory, None, "PEM file of its key, on every executor")
    tls_verify: bool = option("tlsVerify", boolean, True, "false: any server is trusted")
    unit_name: str | None = option("unitName", text, None, "part of the client id")
    vip_channel: bool = option("vipChannel", boolean, False, "sends and queries to the port - 2")

    @tls_ca_file.validator
    @tls_cert_file.validator
    @tls_key_file.validator
    @tls_verify.validator
    def _needs_tls(self, of: attrs.Attribute[Any], value: object) -> None:
        if value != of.default and not self.tls:
            raise ConfigError("has no effect without tls=true", key=of.metadata["key"])
        if of.name == "tls_key_file" and value is not None and self.tls_cert_file is None:
            raise ConfigError("needs tlsCertFile, too", key=of.metadata["key"])

    def client_options(self) -> ClientOptions:
        """Options of the client. Reads the credentials: call it where they are.

        Raises:
            ConfigError: they are incomplete, or cannot be read.
        """
        return ClientOptions(**self._settings())

    def producer_options(self, **settings: Any) -> ProducerOptions:
        return ProducerOptions(**self._settings(), **settings)

    def _settings(self) -> dict[str, Any]:
        return {
            "name_servers": self.name_servers,
            "unit_name": self.unit_name,
            "vip_channel": self.vip_channel,
            "credentials": self._credentials(),
            "tls": self._tls(),
            "api_timeout": MAX_WAIT_S,
        }

    def _tls(self) -> TlsOptions | None:
        if not self.tls:
            return None
        return TlsOptions(
            ca_file=self.tls_ca_file,
            certificate_file=self.tls_cert_file,
            key_file=self.tls_key_file,
            verify=self.tls_verify,
        )

    def _credentials(self) -> Credentials | None:
        places = [self.access_key or self.secret_key, self.credentials_file, self.credentials_env]
        if sum(place is not None for place in places) > 1:
            raise ConfigError("credentials come from accessKey and secretKey, credentialsFile, or credentialsEnv")
        if self.credentials_file is not None:
            return _complete(_read(self.credentials_file), f"credentialsFile {self.credentials_file}")
        if self.credentials_env is not None:
            prefix = self.credentials_env
            names = {ACCESS_KEY: "ACCESS_KEY", SECRET_KEY: "SECRET_KEY", SECURITY_TOKEN: "SECURITY_TOKEN"}
            found = {key: os.environ.get(f"{prefix}_{name}", "") for key, name in names.items()}
            return _complete(found, f"credentialsEnv {prefix}")
        if places[0] is None:
            return None
        given = {ACCESS_KEY: self.access_key, SECRET_KEY: self.secret_key, SECURITY_TOKEN: self.security_token}
        return _complete({key: value or "" for key, value in given.items()}, "credentials")


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


def _read(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot be read on this machine: {error}", key=f"credentialsFile {path}") from error
    except UnicodeDecodeError:  # whose text holds a part of the file
        raise ConfigError("is no text in UTF-8", key=f"credentialsFile {path}") from None
    pairs = (line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def _complete(found: dict[str, str], where: str) -> Credentials:
    for key in (ACCESS_KEY, SECRET_KEY):
        if not found.get(key):
            raise ConfigError(f"{key} is missing", key=where)
    return Credentials(found[ACCESS_KEY], found[SECRET_KEY], found.get(SECURITY_TOKEN) or None)
