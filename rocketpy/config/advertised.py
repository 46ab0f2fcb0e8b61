"""Addresses of a broker for clients that cannot use brokerIP1: advertisedAddresses, and the name server's listeners.

    10.1.0.0/16=10.1.0.5:10911          for clients, and slaves, of this network
    outside=shop.example.org:20911      for those that ask by the listener `outside` of the name server

A broker sends the text with its registration (advertisedAddrs). A name server of rocketpy answers with the address for
who asks; one of RocketMQ ignores the field, and answers brokerIP1. No client needs to know of it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import TypeAlias

import attrs

TEXT_MAX = 4096  # characters that a name server accepts
ENTRIES_MAX = 64
PORT_MIN, PORT_MAX = 3, 65_535  # port - 2 leads to the broker, too
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]{1,253})(?::([0-9]{1,5}))?", re.ASCII)

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@attrs.frozen
class Advertised:
    """The addresses of one broker, `host:port`, by listener and by network; smaller networks first."""

    listeners: Mapping[str, str]
    networks: tuple[tuple[Network, str], ...]

    @classmethod
    def parse(cls, text: str, default_port: int, shift: int = 0) -> Advertised:
        """Read `WHERE=HOST[:PORT]`, separated by `;`.

        Args:
            shift: is added to each port: 1 for the HA port.
        Raises:
            ValueError: its text says which piece is wrong, and why.
        """
        listeners: dict[str, str] = {}
        networks: dict[Network, str] = {}
        if len(text) > TEXT_MAX:
            raise ValueError(f"{len(text)} characters, at most {TEXT_MAX} are allowed")
        for piece in filter(None, map(str.strip, text.split(";"))):
            where, equals, value = (part.strip() for part in piece.partition("="))
            if not equals:
                raise ValueError(f"{piece!r} is not WHERE=HOST:PORT (several are separated by ';')")
            host, port = _host_and_port(value, default_port)
            if not PORT_MIN <= port <= PORT_MAX - shift:
                raise ValueError(f"{piece!r}: port - 2 and port + 1 are used too, so {PORT_MIN} to {PORT_MAX - 1}")
            address = f"{host}:{port + shift}"
            table: dict[str, str] | dict[Network, str] = listeners
            key: str | Network = where
            if not _NAME.fullmatch(where):
                table, key = networks, _network(where)
            if key in table:
                raise ValueError(f"{where} stands there twice")
            table[key] = address  # type: ignore[index]  # each kind of key goes into its table
        if len(listeners) + len(networks) > ENTRIES_MAX:
            raise ValueError(f"{len(listeners) + len(networks)} addresses, at most {ENTRIES_MAX} are allowed")
        return cls(listeners, tuple(sorted(networks.items(), key=lambda item: -item[0].prefixlen)))

    def __str__(self) -> str:
        entries = [*self.listeners.items(), *self.networks]
        return ";".join(f"{where}={address}" for where, address in entries)

    @property
    def addresses(self) -> list[str]:
        """All addresses, `host:port`."""
        return [*self.listeners.values(), *(address for _, address in self.networks)]

    @property
    def hosts(self) -> list[str]:
        """The hosts, each once, without brackets."""
        return list(dict.fromkeys(address.rpartition(":")[0].strip("[]") for address in self.addresses))

    def seen_by(self, listener: str, address: Address) -> str | None:
        """Return the address for a client that came by a listener from an address. None: it has none of its own."""
        if listener in self.listeners:
            return self.listeners[listener]
        return next((found for network, found in self.networks if address in network), None)


def parse_listeners(text: str) -> dict[str, tuple[str, int]]:
    """Read `NAME=HOST:PORT`, separated by `;`: host and port of each listener, by name.

    Raises:
        ValueError: its text says which piece is wrong, and why.
    """
    listeners: dict[str, tuple[str, int]] = {}
    for piece in filter(None, map(str.strip, text.split(";"))):
        name, _, value = (part.strip() for part in piece.partition("="))
        if not _NAME.fullmatch(name):
            raise ValueError(f"{piece!r} is not NAME=HOST:PORT with letters, digits, '-' or '_' in the name")
        host, port = _host_and_port(value, 0)
        if name in listeners:
            raise ValueError(f"{name} stands there twice")
        if not 1 <= port <= 65_535:
            raise ValueError(f"{piece!r} has no port from 1 to 65535")
        listeners[name] = (host.strip("[]"), port)
    return listeners


def _host_and_port(text: str, default_port: int) -> tuple[str, int]:
    """Return the host, an IPv6 address in brackets, and the port."""
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not HOST:PORT, or [IPV6]:PORT")
    host, port = found.groups()
    if host.startswith("["):
        _network(host[1:-1])
    return host, default_port if port is None else int(port)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is no network (10.1.0.0/16)") from None
