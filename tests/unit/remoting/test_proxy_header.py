"""The PROXY protocol: whole headers, every beginning of one, everything that is none; Python and C agree."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from ipaddress import ip_address

import pytest

from rocketpy.errors import RemoteProtocolError
from rocketpy.remoting.abc import Peer
from rocketpy.remoting.proxy_header import (
    HEADER_MAX,
    NOBODY,
    SIGNATURE,
    ProxyHeader,
    ProxyHeaderKind,
    bytes_to_read,
    cut_proxy_header,
)
from tests.support.cases import cases

try:
    from rocketpy.native.core import ffi, lib
except ImportError:
    lib = None

V4 = bytes([192, 0, 2, 7, 10, 0, 0, 1]) + struct.pack(">HH", 51234, 10911)
V6 = bytes.fromhex("20010db8000000000000000000000007") + bytes(15) + b"\1" + struct.pack(">HH", 51234, 10911)
MAPPED = bytes(10) + b"\xff\xff" + bytes([192, 0, 2, 7]) + bytes(16) + struct.pack(">HH", 1, 2)
EXTENSIONS = b"\x01\x00\x02h2" + b"\x04\x00\x00"


def binary(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + struct.pack(">BBH", 0x20 | command, family, len(rest)) + rest


FRIEND = Peer("192.0.2.7", 51234)
FRIEND_V6 = Peer("2001:db8::7", 51234)
WHOLE = {
    b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 10911\r\n": (ProxyHeaderKind.PEER, FRIEND),
    b"PROXY TCP4 255.255.255.255 0.0.0.0 0 65535\r\n": (ProxyHeaderKind.PEER, Peer("255.255.255.255", 0)),
    b"PROXY TCP6 2001:db8::7 ::1 51234 10911\r\n": (ProxyHeaderKind.PEER, FRIEND_V6),
    b"PROXY TCP6 ::ffff:192.0.2.7 ::1 51234 10911\r\n": (ProxyHeaderKind.PEER, FRIEND),
    b"PROXY UNKNOWN\r\n": (ProxyHeaderKind.UNKNOWN, NOBODY),
    b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n": (ProxyHeaderKind.UNKNOWN, NOBODY),
    binary(1, 0x11, V4): (ProxyHeaderKind.PEER, FRIEND),
    binary(1, 0x11, V4 + EXTENSIONS): (ProxyHeaderKind.PEER, FRIEND),
    binary(1, 0x21, V6): (ProxyHeaderKind.PEER, FRIEND_V6),
    binary(1, 0x21, MAPPED): (ProxyHeaderKind.PEER, Peer("192.0.2.7", 1)),
    binary(1, 0x12, V4): (ProxyHeaderKind.UNKNOWN, NOBODY),
    binary(1, 0x31, bytes(216)): (ProxyHeaderKind.UNKNOWN, NOBODY),
    binary(1, 0x00, b"whatever"): (ProxyHeaderKind.UNKNOWN, NOBODY),
    binary(0, 0x00, b""): (ProxyHeaderKind.LOCAL, NOBODY),
    binary(0, 0x11, b"no addresses"): (ProxyHeaderKind.LOCAL, NOBODY),
    binary(1, 0x00, bytes(HEADER_MAX - 16)): (ProxyHeaderKind.UNKNOWN, NOBODY),
}
BAD = [
    b"\0\0\0\x20\0\0\0\x08",
    b"\x16\x03\x01",
    b"GET / HTTP/1.1\r\n",
    b"PROXY\r\n",
    b"PROXX",
    b"PROXY \r\n",
    b"P\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 10911\r\r",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 51234\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 10911 1\r\n",
    b"PROXY TCP4  192.0.2.7 10.0.0.1 51234 10911\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 10911 \r\n",
    b"PROXY TCP4 2001:db8::7 ::1 51234 10911\r\n",
    b"PROXY TCP6 192.0.2.7 10.0.0.1 51234 10911\r\n",
    b"PROXY TCP4 192.0.2.07 10.0.0.1 51234 10911\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 051234 10911\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 10911\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 -1 10911\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1  10911\r\n",
    b"PROXY TCP6 fe80::1%lo ::1 51234 10911\r\n",
    b"PROXY TCP4 192.0.2.7\0 10.0.0.1 51234 10911\r\n",
    b"PROXY TCP5 192.0.2.7 10.0.0.1 51234 10911\r\n",
    b"PROXY UNKNOWNX\r\n",
    b"PROXY UNKNOWN \0\r\n",
    b"PROXY UNKNOWN " + b"x" * 107,
    b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n",
    binary(2, 0x11, V4),
    SIGNATURE + b"\x11",
    SIGNATURE + b"\x21\x41",
    SIGNATURE + b"\x21\x13",
    binary(1, 0x11, V4[:-1]),
    binary(1, 0x21, V6[:-1]),
    binary(1, 0x31, bytes(215)),
    binary(1, 0x11, V4 + b"\1\0"),
    binary(1, 0x11, V4 + b"\1\0\2x"),
    binary(1, 0x00, bytes(HEADER_MAX - 15)),
]


def by_c(data: bytes) -> ProxyHeader | str | None:
    """What the C makes of it; "bad" for what is no header."""
    found = ffi.new("rp_proxy_header *")
    exact = ffi.new("uint8_t[]", data)
    status = lib.rp_proxy_header_cut(exact, len(data), found)
    if status == lib.RP_INCOMPLETE:
        return None
    if status != lib.RP_OK:
        assert status in (lib.RP_INVALID, lib.RP_TOO_LARGE)
        return "bad"
    packed = bytes(found.peer.address[0 : 4 if found.peer.family == 4 else 16])
    return ProxyHeader(ProxyHeaderKind(found.kind), Peer(str(ip_address(packed)), found.peer.port), found.size)


def by_python(data: bytes) -> ProxyHeader | str | None:
    try:
        return cut_proxy_header(data)
    except RemoteProtocolError:
        return "bad"


Cut = Callable[[bytes], "ProxyHeader | str | None"]


@pytest.fixture(params=["python", "c"])
def cut(request: pytest.FixtureRequest) -> Cut:
    if request.param == "c" and lib is None:
        pytest.skip("needs the compiled core")
    return {"python": by_python, "c": by_c}[request.param]


@cases("data", WHOLE)
def test_whole_headers(cut: Cut, data: bytes) -> None:
    kind, peer = WHOLE[data]
    assert cut(data) == ProxyHeader(kind, peer, len(data))
    assert cut(data + b"\0\0\0\x20PROXY \r\n") == ProxyHeader(kind, peer, len(data))


@cases("data", WHOLE)
def test_every_beginning_may_become_one(cut: Cut, data: bytes) -> None:
    assert [cut(data[:size]) for size in range(len(data))] == [None] * len(data)


@cases("data", BAD)
def test_everything_else_is_none(cut: Cut, data: bytes) -> None:
    assert cut(data) == "bad"


@cases("data", WHOLE)
def test_a_reader_never_reads_beyond_it(data: bytes) -> None:
    read = b""
    while cut_proxy_header(read) is None:
        wanted = bytes_to_read(read)
        assert wanted > 0
        assert len(read) + wanted <= len(data)
        read += data[len(read) : len(read) + wanted]
    assert read == data


@pytest.mark.skipif(lib is None, reason="needs the compiled core")
@pytest.mark.parametrize("seed", range(8))
def test_python_and_c_agree_on_damaged_headers(seed: int) -> None:
    draw = random.Random(seed)
    alphabet = b"0123456789abcdef.: \r\n\0TCPUNKOWRXY46%" + bytes([0x21, 0x20, 0x11, 0x31, 0xFF])
    for _ in range(4000):
        data = bytearray(draw.choice([*WHOLE, *BAD])[:400])
        for _ in range(draw.randrange(4)):
            at = draw.randrange(len(data) + 1)
            data[at : at + draw.randrange(3)] = bytes(draw.choices(alphabet, k=draw.randrange(3)))
        assert by_c(bytes(data)) == by_python(bytes(data)), bytes(data)
