"""The address fields of a record: 4 or 16 address bytes, then the port as a 4-byte integer.

Short: connections have addresses too, and no records.
"""

from __future__ import annotations

import socket
import struct

from rocketpy.errors import MessageInvalid, NumberInvalid

from .numbers import parse_integer

_PORT = struct.Struct(">i")
HOST_SIZE_V4 = 8
HOST_SIZE_V6 = 20
PORT_MAX = 65_535

Host = tuple[str, int]
"""Numeric address and port."""


def pack_host(host: Host) -> bytes:
    """The 8 (IPv4) or 20 (IPv6) bytes of an address. An IPv4-mapped IPv6 address is IPv4, as in Java.

    Raises:
        MessageInvalid: the address is not numeric, or the port is not a number of 32 bits.
    """
    address, port = host
    try:
        if ":" not in address:
            return socket.inet_pton(socket.AF_INET, address) + _PORT.pack(port)
        packed = socket.inet_pton(socket.AF_INET6, address)
        if packed.startswith(bytes(10) + b"\xff\xff"):
            packed = packed[12:]
        return packed + _PORT.pack(port)
    except (OSError, struct.error) as exc:
        raise MessageInvalid(f"not a numeric address and port: {host!r}") from exc


def unpack_host(packed: bytes | memoryview) -> Host:
    """Address and port of 8 or 20 bytes."""
    family = socket.AF_INET if len(packed) == HOST_SIZE_V4 else socket.AF_INET6
    return socket.inet_ntop(family, bytes(packed[:-4])), _PORT.unpack_from(packed, len(packed) - 4)[0]


def format_host(host: Host) -> str:
    """`ip:port`, with brackets around an IPv6 address."""
    address, port = host
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def parse_host(text: str) -> Host:
    """Return address and port of `ip:port` or `[ip]:port`; a host name passes as well.

    Raises:
        NumberInvalid: there is no port, or it is no number from 0 to PORT_MAX.
    """
    address, colon, port = text.rpartition(":")
    if not colon:
        raise NumberInvalid("not host:port: the port is missing")
    return address.removeprefix("[").removesuffix("]"), parse_integer(port, 0, PORT_MAX)
