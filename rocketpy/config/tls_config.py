"""TlsConfig: certificates and modes, by the system properties of the reference. Also read from the name server's file.

All but the first two and `tls.config.file` may also stand in the file `tls.config.file`, which overrides (load.py).
"""

# ruff: noqa: RUF009 - setting() returns an attrs field; it is meant to run once, in the class body

from __future__ import annotations

import enum
from pathlib import Path

import attrs

from rocketpy.values import Value

from .setting import Effect, setting

TLS_FILE = "/etc/rocketmq/tls.properties"
NOT_IN_TLS_FILE = frozenset({"tls.server.mode", "useTLS", "tls.config.file"})


class TlsMode(enum.Enum):
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(enum.Enum):
    """A server's demand for certificates of clients."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@attrs.frozen(eq=False, repr=False, kw_only=True)
class TlsConfig(Value):
    """TlsSystemConfig of the reference. Nobody changes it while a server runs: an administrator of messages is none of
    certificates."""

    tls_server_mode: TlsMode = setting(
        TlsMode.DISABLED,
        "tls.server.mode",
        "disabled: plain connections only; permissive: both; enforcing: TLS only. "
        "The reference is permissive, with a certificate that nobody can check.",
        effect=Effect.REFUSED,
    )
    use_tls: bool = setting(
        False,
        "useTLS",
        "Call name servers and the master by TLS. `tls.enable` is the same.",
        default_text="true if tls.server.mode is enforcing",
        effect=Effect.REFUSED,
    )
    tls_config_file: str = setting(
        TLS_FILE,
        "tls.config.file",
        "File whose `tls.` settings override those given elsewhere, except mode and useTLS. Read at the start if TLS "
        "is on; the default may be missing.",
        effect=Effect.REFUSED,
    )
    tls_server_cert_path: str | None = setting(
        None,
        "tls.server.certPath",
        "PEM: certificate of the server, then those of the authorities between it and a trusted one.",
        effect=Effect.REFUSED,
    )
    tls_server_key_path: str | None = setting(
        None,
        "tls.server.keyPath",
        "PEM: its key (PKCS#8).",
        effect=Effect.REFUSED,
    )
    tls_server_key_password: str | None = setting(
        None,
        "tls.server.keyPassword",
        "Password of an encrypted key. Never shown.",
        effect=Effect.REFUSED,
        secret=True,
    )
    tls_server_need_client_auth: ClientAuth = setting(
        ClientAuth.NONE,
        "tls.server.need.client.auth",
        "Ask clients for a certificate: none, optional, or require. Needs tls.server.authClient=true, and optional is "
        "none without it.",
        effect=Effect.REFUSED,
    )
    tls_server_auth_client: bool = setting(
        False,
        "tls.server.authClient",
        "Check certificates of clients with tls.server.trustCertPath.",
        effect=Effect.REFUSED,
    )
    tls_server_trust_cert_path: str | None = setting(
        None,
        "tls.server.trustCertPath",
        "PEM: authorities of clients.",
        effect=Effect.REFUSED,
    )
    tls_client_cert_path: str | None = setting(
        None,
        "tls.client.certPath",
        "PEM: certificate that a broker shows to servers that ask for one.",
        effect=Effect.REFUSED,
    )
    tls_client_key_path: str | None = setting(
        None,
        "tls.client.keyPath",
        "PEM: its key.",
        effect=Effect.REFUSED,
    )
    tls_client_key_password: str | None = setting(
        None,
        "tls.client.keyPassword",
        "Password of an encrypted key. Never shown.",
        effect=Effect.REFUSED,
        secret=True,
    )
    tls_client_auth_server: bool = setting(
        True,
        "tls.client.authServer",
        "Check that certificates of servers are signed by a trusted authority and name the address that was called. "
        "The reference does not (false).",
        effect=Effect.REFUSED,
    )
    tls_client_trust_cert_path: str | None = setting(
        None,
        "tls.client.trustCertPath",
        "PEM: authorities of servers.",
        default_text="the authorities of the system",
        effect=Effect.REFUSED,
    )
    tls_test_mode_enable: bool = setting(
        False,
        "tls.test.mode.enable",
        "For tests (default of the reference: true): a server without a certificate makes one that nobody can check "
        "(needs the extra `tls`), and a broker trusts any server.",
        effect=Effect.REFUSED,
    )

    @property
    def is_served(self) -> bool:
        """Return True if a server accepts TLS."""
        return self.tls_server_mode is not TlsMode.DISABLED

    @property
    def makes_certificate(self) -> bool:
        """Return True if a server makes a certificate for tests."""
        return self.tls_test_mode_enable and not self.tls_server_cert_path

    @property
    def checks_clients(self) -> bool:
        """Return True if a server asks clients for certificates."""
        return self.tls_server_auth_client and self.tls_server_need_client_auth is not ClientAuth.NONE

    @property
    def checks_servers(self) -> bool:
        """Return True if a broker checks the certificates of servers."""
        return self.tls_client_auth_server and not self.tls_test_mode_enable

    @property
    def server_files(self) -> tuple[Path, ...]:
        """The files of a server's certificate."""
        trusted = self.tls_server_trust_cert_path if self.checks_clients else None
        return _paths(self.tls_server_cert_path, self.tls_server_key_path, trusted)

    @property
    def client_files(self) -> tuple[Path, ...]:
        """The files of a broker that calls others."""
        trusted = self.tls_client_trust_cert_path if self.checks_servers else None
        return _paths(self.tls_client_cert_path, self.tls_client_key_path, trusted)

    def fault(self) -> tuple[str, str] | None:
        """Return the key and the reason of settings that contradict each other; None: they agree."""
        pairs = {
            "tls.server": (self.tls_server_cert_path, self.tls_server_key_path),
            "tls.client": (self.tls_client_cert_path, self.tls_client_key_path),
        }
        for side, (certificate, key) in pairs.items():
            if bool(certificate) is not bool(key):
                given, missing = ("certPath", "keyPath") if certificate else ("keyPath", "certPath")
                return f"{side}.{given}", f"needs {side}.{missing} too: the PEM files of the certificate and its key"
        if self.is_served and not self.tls_server_cert_path and not self.tls_test_mode_enable:
            return "tls.server.mode", (
                f"{self.tls_server_mode.value} needs tls.server.certPath and tls.server.keyPath, PEM files of a "
                "certificate and its key (for tests: tls.test.mode.enable=true)"
            )
        if self.tls_server_need_client_auth is ClientAuth.REQUIRE and not self.tls_server_auth_client:
            return "tls.server.need.client.auth", (
                "require needs tls.server.authClient=true and tls.server.trustCertPath: a certificate that nobody "
                "checks proves nothing"
            )
        if self.checks_clients and not self.tls_server_trust_cert_path:
            return "tls.server.authClient", "needs tls.server.trustCertPath, a PEM file of the authorities of clients"
        return None


def _paths(*texts: str | None) -> tuple[Path, ...]:
    return tuple(Path(text) for text in texts if text)
