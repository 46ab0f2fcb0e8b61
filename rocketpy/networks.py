"""Configured networks, and whether an address is in one of them.

Short: proxies, slaves and administrators are all named so, and each is looked up elsewhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_networks(text: str) -> tuple[Network, ...]:
    """Addresses and networks, separated by commas.

    Raises:
        ValueError: names the piece that is neither.
    """
    return tuple(ipaddress.ip_network(piece.strip(), strict=False) for piece in text.split(",") if piece.strip())


def parse_address(host: str) -> Address:
    """Parse a numeric address; an IPv4-mapped IPv6 address becomes IPv4.

    Raises:
        ValueError: it is not an address.
    """
    address = ipaddress.ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def network_of(host: str) -> str:
    """Return the key by which limits count a peer: an IPv4 address, or the /64 of an IPv6 address, because one client
    may have all of it. Other text is returned unchanged."""
    try:
        address = parse_address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address) if address.version == 4 else str(ipaddress.IPv6Network((int(address), 64), strict=False))
