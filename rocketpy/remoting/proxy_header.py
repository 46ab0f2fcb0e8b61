"""The header in which a proxy names the client of a connection: the PROXY protocol of HAProxy, versions 1 and 2.

    1:  PROXY TCP4|TCP6 <source> <destination> <source port> <destination port>\\r\\n    at most 107 bytes
        PROXY UNKNOWN ...\\r\\n
    2:  signature(12) version and command(1) family and protocol(1) size of the rest(2)
        source, destination, source port, destination port, extensions of type(1) size(2) value

The same in C, where the layout is drawn: csrc/wire/peer.c.
"""

from __future__ import annotations

import enum
import ipaddress
import struct

import attrs

from rocketpy.errors import RemoteProtocolError
from rocketpy.message.numbers import int_or
from rocketpy.networks import parse_address

from .abc import Peer

LINE_MAX = 107
HEADER_MAX = 4096
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
HEAD = struct.Struct(">12sBBH")
_LINE_START = b"PROXY "
_LINE_MIN = len(b"PROXY UNKNOWN\r\n")
_LOCAL, _COMMANDS = 0, 2
_FAMILIES, _PROTOCOLS, _STREAM = 4, 3, 1
_ADDRESS_BYTES = (0, 12, 36, 216)  # by family: none, IPv4, IPv6, unix
_FAMILY_NONE, _FAMILY_V4, _FAMILY_V6, _FAMILY_UNIX = range(_FAMILIES)
NOBODY = Peer("0.0.0.0", 0)


class ProxyHeaderKind(enum.Enum):
    """Whom a header names. The values are RP_PROXY_* of the C core."""

    LOCAL = 1
    """A connection of the proxy itself (a health check): the peer of the socket is the client."""
    PEER = 2
    UNKNOWN = 3
    """The proxy does not know the client."""


@attrs.frozen
class ProxyHeader:
    kind: ProxyHeaderKind
    peer: Peer
    size: int  # bytes; the stream of the client begins after it


def cut_proxy_header(data: bytes) -> ProxyHeader | None:
    """Parse the header at the beginning of a stream; None: it is incomplete.

    Raises:
        RemoteProtocolError: the bytes are not such a header.
    """
    if not data:
        return None
    return _cut_line(data) if data[:1] == b"P" else _cut_binary(data)


def bytes_to_read(data: bytes) -> int:
    """Number of bytes to read next after an incomplete header, so that no byte of the client's stream is read."""
    if not data:
        return _LINE_MIN  # shorter than any other
    if data[:1] == b"P":
        return max(1, _LINE_MIN - len(data))
    if len(data) < HEAD.size:
        return HEAD.size - len(data)
    return HEAD.size + int(HEAD.unpack_from(data)[3]) - len(data)


def _bad(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"bad PROXY header: {reason}")


def _cut_line(data: bytes) -> ProxyHeader | None:
    looked = data[:LINE_MAX]
    if not looked.startswith(_LINE_START[: len(looked)]):
        raise _bad("not the beginning of one")
    end = looked.find(b"\r")
    if (end < 0 and len(data) >= LINE_MAX) or end + 2 > LINE_MAX:
        raise _bad(f"longer than {LINE_MAX} bytes")
    if end < 0 or end + 2 > len(data):
        return None
    if data[end + 1 : end + 2] != b"\n":
        raise _bad("the line does not end with CR LF")
    if end < len(_LINE_START) or b"\0" in data[:end]:
        raise _bad("the line is incomplete")
    words = data[len(_LINE_START) : end].decode("latin-1").split(" ")
    if words[0] == "UNKNOWN":
        return ProxyHeader(ProxyHeaderKind.UNKNOWN, NOBODY, end + 2)
    if len(words) != 5 or words[0] not in ("TCP4", "TCP6"):
        raise _bad("expected TCP4 or TCP6 with two addresses and two ports, or UNKNOWN")
    _, source, destination, source_port, destination_port = words
    version = 4 if words[0] == "TCP4" else 6
    host = _host(_packed(version, source))
    _packed(version, destination)
    _port(destination_port)
    return ProxyHeader(ProxyHeaderKind.PEER, Peer(host, _port(source_port)), end + 2)


def _packed(version: int, text: str) -> bytes:
    try:
        address = ipaddress.ip_address(text)
    except ValueError as exc:
        raise _bad(f"{text!r} is not an address") from exc
    if address.version != version or "%" in text:
        raise _bad(f"{text!r} is not an IPv{version} address")
    return address.packed


def _port(text: str) -> int:
    port = int_or(text, -1)
    if not 0 <= port <= 65_535 or text != str(port):
        raise _bad(f"{text!r} is not a port")
    return port


def _host(packed: bytes) -> str:
    return str(parse_address(str(ipaddress.ip_address(packed))))


def _cut_binary(data: bytes) -> ProxyHeader | None:
    if not data.startswith(SIGNATURE[: len(data)]):
        raise _bad("not the beginning of one")
    if len(data) > 12 and (data[12] >> 4 != 2 or data[12] & 15 >= _COMMANDS):
        raise _bad(f"unknown version and command {data[12]:#x}")
    if len(data) > 13 and (data[13] >> 4 >= _FAMILIES or data[13] & 15 >= _PROTOCOLS):
        raise _bad(f"unknown family and protocol {data[13]:#x}")
    if len(data) < HEAD.size:
        return None
    _, command, address, following = HEAD.unpack_from(data)
    size = HEAD.size + following
    if size > HEADER_MAX:
        raise _bad(f"{size} bytes, more than {HEADER_MAX}")
    if len(data) < size:
        return None
    if command & 15 == _LOCAL:
        return ProxyHeader(ProxyHeaderKind.LOCAL, NOBODY, size)
    family, protocol = address >> 4, address & 15
    rest = data[HEAD.size : size]
    taken = _ADDRESS_BYTES[family]
    if len(rest) < taken or (family != _FAMILY_NONE and not _are_extensions(rest[taken:])):
        raise _bad("its size does not match its content")
    if protocol != _STREAM or family in (_FAMILY_NONE, _FAMILY_UNIX):
        return ProxyHeader(ProxyHeaderKind.UNKNOWN, NOBODY, size)
    source, port = (rest[:4], rest[8:10]) if family == _FAMILY_V4 else (rest[:16], rest[32:34])
    return ProxyHeader(ProxyHeaderKind.PEER, Peer(_host(source), int.from_bytes(port, "big")), size)


def _are_extensions(data: bytes) -> bool:
    at = 0
    while at + 3 <= len(data):
        at += 3 + int.from_bytes(data[at + 1 : at + 3], "big")
    return at == len(data)
