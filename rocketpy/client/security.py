"""Credentials and TLS as users write them: options of Spark, of mqadmin, or variables of the environment.

Clients take `Credentials` and `TlsOptions`. Whoever reads them from text makes one `SecuritySettings`, with the names
that its user knows, so that each wrong setting is refused everywhere, and under the name that it has there:

    SecuritySettings(tls=True, tls_ca_file=Path("ca.pem"), names=OPTIONS).tls_options()
    SecuritySettings.from_environment().credentials()

Variables of the environment, which every client reads whose options have neither:

    ROCKETPY_ACCESS_KEY, ROCKETPY_SECRET_KEY, ROCKETPY_SECURITY_TOKEN   credentials
    ROCKETPY_CREDENTIALS_FILE                                           instead, the path of a file with them
    ROCKETMQ_TLS=true                                                   encrypt; without it the next ones do nothing
    ROCKETMQ_TLS_CA, ROCKETMQ_TLS_CERT, ROCKETMQ_TLS_KEY, ROCKETMQ_TLS_KEY_PASSWORD, ROCKETMQ_TLS_INSECURE=true
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import attrs

from rocketpy.errors import ConfigError
from rocketpy.remoting.signature import Credentials
from rocketpy.values import FrozenValue, Value

FILE_BYTES_MAX = 1 << 16
KEY_PASSWORD_VARIABLE = "ROCKETMQ_TLS_KEY_PASSWORD"
_YAML = (".yml", ".yaml")
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"", "false", "0", "no", "off"})
_VARIABLES = {
    "access_key": "ROCKETPY_ACCESS_KEY",
    "secret_key": "ROCKETPY_SECRET_KEY",
    "security_token": "ROCKETPY_SECURITY_TOKEN",
    "credentials_file": "ROCKETPY_CREDENTIALS_FILE",
    "tls": "ROCKETMQ_TLS",
    "tls_ca_file": "ROCKETMQ_TLS_CA",
    "tls_cert_file": "ROCKETMQ_TLS_CERT",
    "tls_key_file": "ROCKETMQ_TLS_KEY",
    "tls_verify": "ROCKETMQ_TLS_INSECURE",
}


@attrs.frozen(eq=False, repr=False, kw_only=True)
class TlsOptions(FrozenValue):
    """Encrypts the connections to name servers and brokers. Files are PEM.

    The certificate of a server has to name the host name or the IP address to which the client connects. The official
    clients trust any server unless `tls.client.authServer` is set; `verify=False` does the same: nobody on the way can
    read, but anybody on the way can answer in the server's place.
    """

    ca_file: Path | None = None
    """Authorities that may sign certificates of servers (system's). Set it for an authority of your own."""
    certificate_file: Path | None = None
    """Certificate of this client (none). Set it for servers that ask for one."""
    key_file: Path | None = None
    """Key of the certificate (in certificate_file). Set it if the key has a file of its own."""
    key_password: str | None = attrs.field(default=None, repr=False)
    """Password of the key (none). Set it if the key is encrypted."""
    verify: bool = True
    """Check the certificates of servers (True). Set False in tests only."""

    def __attrs_post_init__(self) -> None:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("TlsOptions.key_file needs certificate_file, too")


@attrs.frozen(eq=False, repr=False, kw_only=True)
class SecuritySettings(Value):
    """All settings of credentials and TLS. Credentials come from one place: the keys, a file, or the environment."""

    access_key: str | None = None
    """Name of the account (none)."""
    secret_key: str | None = attrs.field(default=None, repr=False)
    """Key that signs each request (none)."""
    security_token: str | None = attrs.field(default=None, repr=False)
    """Token of temporary keys (none)."""
    credentials_file: Path | None = None
    """File with the keys (none): a tools.yml as mqadmin has, or another name and lines `accessKey=…`."""
    credentials_env: str | None = None
    """Prefix P of the variables P_ACCESS_KEY, P_SECRET_KEY, P_SECURITY_TOKEN (none)."""
    tls: bool = False
    """Encrypt the connections (False)."""
    tls_ca_file: Path | None = None
    """As `TlsOptions.ca_file`."""
    tls_cert_file: Path | None = None
    """As `TlsOptions.certificate_file`."""
    tls_key_file: Path | None = None
    """As `TlsOptions.key_file`."""
    tls_key_password: str | None = attrs.field(default=None, repr=False)
    """As `TlsOptions.key_password`."""
    tls_verify: bool = True
    """As `TlsOptions.verify`."""
    names: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Names of these fields where the user writes them, for errors (the fields' own)."""

    def __attrs_post_init__(self) -> None:
        """Raises ConfigError for a setting that has no effect, or that needs another one."""
        files = ("tls_ca_file", "tls_cert_file", "tls_key_file")
        useless = [name for name in files if getattr(self, name) is not None]
        if not self.tls_verify:
            useless.append("tls_verify")
        if useless and not self.tls:
            raise ConfigError(f"has no effect without {self._name('tls')}", key=self._name(useless[0]))
        if self.tls_key_file is not None and self.tls_cert_file is None:
            raise ConfigError(f"needs {self._name('tls_cert_file')}, too", key=self._name("tls_key_file"))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """The settings of these variables (of this process's). Raises ConfigError, which names the variable."""
        given = os.environ if environ is None else environ
        found: dict[str, object] = {
            field: _path_or_text(field, given[variable])
            for field, variable in _VARIABLES.items()
            if given.get(variable) and field not in ("tls", "tls_verify")
        }
        found["tls"] = is_tls = _flag(given, _VARIABLES["tls"])
        if is_tls:
            found["tls_verify"] = not _flag(given, _VARIABLES["tls_verify"])
            found["tls_key_password"] = given.get(KEY_PASSWORD_VARIABLE)
        else:  # so ROCKETMQ_TLS=false turns it off for one command
            found = {field: value for field, value in found.items() if not field.startswith("tls_")}
        return cls(**found, names=_VARIABLES)  # type: ignore[arg-type]  # each has the type of its field

    def credentials(self) -> Credentials | None:
        """The credentials, read now; None: there are none.

        Raises:
            ConfigError: they come from two places, are incomplete, or cannot be read.
        """
        places = {"access_key": self.access_key or self.secret_key or self.security_token}
        places["credentials_file"] = str(self.credentials_file or "")
        places["credentials_env"] = self.credentials_env
        given = [name for name, place in places.items() if place]
        if len(given) > 1:
            first, second = map(self._name, given[:2])
            raise ConfigError(f"credentials come from one place: remove this or {second}", key=first)
        if self.credentials_file is not None:
            return read_credentials(self.credentials_file, self._name("credentials_file"))
        if self.credentials_env is not None:
            prefix = self.credentials_env
            parts = {name: os.environ.get(f"{prefix}_{name.upper()}") for name in ("access_key", "secret_key")}
            token = os.environ.get(f"{prefix}_SECURITY_TOKEN")
            return _complete(parts, token, {name: f"{prefix}_{name.upper()}" for name in parts})
        if not given:
            return None
        parts = {"access_key": self.access_key, "secret_key": self.secret_key}
        return _complete(parts, self.security_token, {name: self._name(name) for name in parts})

    def tls_options(self) -> TlsOptions | None:
        """The options of TLS; None: connections are plain."""
        if not self.tls:
            return None
        return TlsOptions(
            ca_file=self.tls_ca_file,
            certificate_file=self.tls_cert_file,
            key_file=self.tls_key_file,
            key_password=self.tls_key_password,
            verify=self.tls_verify,
        )

    def _name(self, field: str) -> str:
        return self.names.get(field, field)


def read_credentials(path: Path, setting: str = "credentials_file") -> Credentials:
    """Read a file of credentials.

    `tools.yml` of the reference (any name with .yml or .yaml) has the lines `accessKey: …` and `secretKey: …`; other
    files have `accessKey=…`, `secretKey=…` and perhaps `securityToken=…`, as `AccessKey=…` of the official clients.

    Args:
        setting: names the file in errors.
    Raises:
        ConfigError: it cannot be read, cannot be understood, or lacks a key. The text holds nothing of the file.
    """
    where = f"{setting} {path}"
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"cannot be read on this machine: {error}", key=where) from error
    if path.suffix in _YAML:
        from rocketpy.acl.credentials import parse_credentials

        found = parse_credentials(data, str(path))
        if found is None:
            raise ConfigError("needs two lines, accessKey: … and secretKey: …", key=where)
        return found
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:  # whose text holds a part of the file
        raise ConfigError("is no text in UTF-8", key=where) from None
    pairs = (line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#"))
    values = {key.strip().lower(): value.strip() for key, _, value in pairs}
    names = {"access_key": f"{where}: accessKey", "secret_key": f"{where}: secretKey"}
    parts = {"access_key": values.get("accesskey"), "secret_key": values.get("secretkey")}
    return _complete(parts, values.get("securitytoken"), names)


def _complete(parts: Mapping[str, str | None], token: str | None, names: Mapping[str, str]) -> Credentials:
    for name, value in parts.items():
        if not value:
            raise ConfigError("is missing: an access key and a secret key belong together", key=names[name])
    return Credentials(parts["access_key"] or "", parts["secret_key"] or "", token or None)


def _path_or_text(field: str, value: str) -> Path | str:
    return Path(value) if field.endswith("_file") else value


def _flag(environ: Mapping[str, str], variable: str) -> bool:
    word = environ.get(variable, "").strip().lower()
    if word not in _TRUE | _FALSE:
        raise ConfigError(f'"{word}" is neither true nor false', key=variable)
    return word in _TRUE
