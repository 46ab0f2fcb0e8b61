"""Facts about the machine that defaults of settings depend on: cores, name, and which of its addresses to announce when
the broker listens on all of them.

Source: `RemotingUtil#getLocalAddress`: interfaces that are up, no loopback, no bridges; the first IPv4 address that
does not start with 127.0 or 192.168, else the last IPv4, else the first IPv6, else localhost.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

_SYS_CLASS_NET = Path("/sys/class/net")
_IF_INET6 = Path("/proc/net/if_inet6")  # address, index, prefix length, scope, flags, name
_SIOCGIFADDR = 0x8915  # ioctl: the IPv4 address of an interface
_IFREQ = struct.Struct("16s24s")  # name, then a sockaddr: family (2), port (2), address (4)


@attrs.frozen
class Machine:
    """The machine, or in tests another one."""

    cores: int
    host_name: str
    detect_address: Callable[[], str]


def this_machine() -> Machine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(cores, socket.gethostname() or "DEFAULT_BROKER", lambda: choose_address(local_addresses()))


def choose_address(addresses: Sequence[str]) -> str:
    """The reference's choice among numeric addresses in the order of their interfaces."""
    ipv4 = [address for address in addresses if ":" not in address]
    ipv6 = [address for address in addresses if ":" in address]
    for address in ipv4:
        if not address.startswith(("127.0", "192.168")):
            return address
    if ipv4:
        return ipv4[-1]
    return ipv6[0] if ipv6 else "127.0.0.1"


def local_addresses() -> list[str]:
    """Numeric addresses of all interfaces but loopback, bridges and those without an address."""
    addresses: list[str] = []
    import fcntl  # Linux only, as the broker is; the client imports this package everywhere

    names = [name for _, name in socket.if_nameindex() if name != "lo"]
    names = [name for name in names if not (_SYS_CLASS_NET / name / "bridge").exists()]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name in names:
            request = _IFREQ.pack(name.encode(), b"")
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # no IPv4 address on this one
            addresses.append(socket.inet_ntoa(answer[20:24]))
    if _IF_INET6.exists():
        for line in _IF_INET6.read_text().splitlines():
            digits, _, _, _, _, name = line.split()
            address = ipaddress.IPv6Address(bytes.fromhex(digits))
            if name in names and not address.is_link_local:
                addresses.append(str(address))
    return addresses


def is_concrete(bind_address: str) -> bool:
    """True when an address names one interface (clients can dial it), not all of them."""
    return bind_address not in ("", "0.0.0.0", "::", "*")
