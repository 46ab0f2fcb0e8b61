"""Settings of the console, and what is wrong with them: one line, before anything is opened."""

from __future__ import annotations

import socket
from ipaddress import ip_address, ip_network
from pathlib import Path

import attrs

from rocketpy.config import TlsConfig
from rocketpy.errors import ConfigError
from rocketpy.networks import Network

PORT = 8180
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@attrs.frozen
class ConsoleSettings:
    """Address, hosts, accounts, certificate and files of the console.

    Args:
        hosts: names by which browsers reach the console, beside `bind`, this machine's name and the loopback.
        accounts: a file of accounts (plain_acl.yml); None: no login.
        allow_changes: users who have logged in may send dead letters again.
        proxies: addresses or networks of proxies in front, whose header X-Forwarded-For is trusted.
        certificate, key: PEM files; None: without TLS.
        alarms: a file of alarms.
    """

    bind: str = "127.0.0.1"
    port: int = PORT
    hosts: tuple[str, ...] = ()
    accounts: Path | None = None
    allow_changes: bool = False
    proxies: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    alarms: Path | None = None

    def __attrs_post_init__(self) -> None:
        """Raises ConfigError: the options contradict each other, or would open the console to everybody."""
        if not is_loopback(self.bind) and self.accounts is None:
            raise ConfigError(
                f"--bind {self.bind} lets other hosts in, and there is no login; "
                "give --accounts FILE (a plain_acl.yml), or bind to 127.0.0.1"
            )
        if self.allow_changes and self.accounts is None:
            raise ConfigError("--allow-changes needs a login; give --accounts FILE (a plain_acl.yml)")
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("--certificate and --key belong together; give both or none")
        for proxy, network in zip(self.proxies, self.proxy_networks, strict=True):
            if network.prefixlen == 0:
                raise ConfigError(f"--proxy {proxy} trusts every client; give the address of the proxy")

    @property
    def is_secret_in_clear(self) -> bool:
        """Return True if passwords come over a network without TLS of the console's own."""
        return not is_loopback(self.bind) and self.certificate is None

    @property
    def proxy_networks(self) -> tuple[Network, ...]:
        """Return `proxies`. Raises ConfigError."""
        try:
            return tuple(ip_network(proxy) for proxy in self.proxies)
        except ValueError as error:
            raise ConfigError(f"--proxy: {error}; give an address, for example 127.0.0.1, or a network") from error

    @property
    def tls(self) -> TlsConfig | None:
        if self.certificate is None:
            return None
        return TlsConfig(tls_server_cert_path=str(self.certificate), tls_server_key_path=str(self.key))

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Return the names that a request may have in its header Host."""
        own = () if is_loopback(self.bind) else (socket.gethostname(), socket.getfqdn())
        return frozenset(name.lower().strip("[]") for name in (*self.hosts, self.bind, *LOOPBACK_HOSTS, *own))
