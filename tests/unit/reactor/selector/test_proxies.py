"""Connections behind a proxy are those of the clients that it names; networks as the settings write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.networks import parse_address, parse_networks
from rocketpy.reactor.selector import network_array
from tests.support.selector_rig import SelectorRig, body_of, ffi, frame, lib

RigMaker = Callable[..., SelectorRig]
PROXY_LINE = b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 10911\r\n"
PROXY_LOCAL = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"


@pytest.fixture
def proxied(make_rig: RigMaker) -> SelectorRig:
    """A selector that takes this machine for a proxy."""
    networks = network_array(parse_networks("10.0.0.0/8, 127.0.0.0/8"))
    return make_rig(proxies=networks, proxy_count=2, idle_s=30)


@pytest.mark.parametrize("piece", [1, 5, 43, 1000])
def test_a_proxied_connection_is_that_of_whom_it_names(proxied: SelectorRig, piece: int) -> None:
    client = proxied.connect()
    stream = PROXY_LINE + frame(b"a") + frame(b"b")
    for at in range(0, len(stream), piece):
        client.send(stream[at : at + piece])
        proxied.turn()
    records = [proxied.next(), proxied.next()]
    assert [(record.peer, body_of(record.frame)) for record in records] == [
        (("192.0.2.7", 51234), b"a"),
        (("192.0.2.7", 51234), b"b"),
    ]
    client.send(PROXY_LINE)  # once is enough
    assert proxied.is_closed(client)


@pytest.mark.parametrize(("header", "is_itself"), [(PROXY_LOCAL, True), (b"PROXY UNKNOWN\r\n", False)])
def test_a_proxy_that_speaks_for_itself_is_not_one_that_cannot_say(
    proxied: SelectorRig, header: bytes, is_itself: bool
) -> None:
    client = proxied.connect()
    client.send(header + frame(b"a"))
    assert proxied.next().peer == (client.getsockname() if is_itself else ("0.0.0.0", 0))


@pytest.mark.parametrize("start", [frame(b"plain"), b"PROXY TCP4 nonsense\r\n", b"P" * 200, b"\r\n\r\n\0\r\nQUIX"])
def test_a_proxy_that_does_not_say_is_disconnected(proxied: SelectorRig, start: bytes) -> None:
    client = proxied.connect()
    client.send(start)
    assert proxied.is_closed(client)
    assert proxied.counter(lib.RP_COUNT_PROXY_BAD) == 1
    assert proxied.read() is None


def test_who_is_no_proxy_is_taken_as_it_is(make_rig: RigMaker) -> None:
    rig = make_rig(proxies=network_array(parse_networks("127.0.0.2, 10.0.0.0/8, ::1")), proxy_count=3)
    client = rig.connect()
    client.send(frame(b"plain"))
    assert rig.next().peer == client.getsockname()
    client.send(PROXY_LINE)
    assert rig.is_closed(client)
    assert rig.counter(lib.RP_COUNT_PROXY_BAD) == 0


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("127.0.0.1", ["127.0.0.1", "::ffff:127.0.0.1"], ["127.0.0.2", "::1", "::"]),
        ("10.1.0.0/15", ["10.0.255.1", "10.1.0.0"], ["10.2.0.0", "9.255.255.255"]),
        ("0.0.0.0/0", ["1.2.3.4"], ["::1", "2001:db8::"]),
        ("::/0", ["1.2.3.4", "::1"], []),
        ("2001:db8::/33", ["2001:db8:7fff::1"], ["2001:db8:8000::", "1.2.3.4"]),
    ],
)
def test_what_is_in_a_network(network: str, inside: list[str], outside: list[str]) -> None:
    networks = network_array(parse_networks(network))

    def is_in(text: str) -> bool:
        address = parse_address(text)
        host = ffi.new("rp_host *", {"family": address.version})
        ffi.memmove(host.address, address.packed, len(address.packed))
        return bool(lib.rp_peer_is_in(host, networks, 1))

    assert all(map(is_in, inside))
    assert not any(map(is_in, outside))
