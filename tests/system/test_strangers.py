"""Who may administer a broker: by the address that it sees, or that a proxy names."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.broker import RunningBroker, running_broker
from tests.support.wire import TIMEOUT_S, Wire, max_offset, pull_request, records_of, send_request, until

PROXY_HOST = "127.0.0.2"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {"proxyProtocolFrom": PROXY_HOST, "adminAddresses": "192.0.2.0/24", "adminTrustsLoopback": "false"}
    with running_broker(settings) as running:
        yield running


def open_wire(broker: RunningBroker, header: bytes, source: str = PROXY_HOST) -> Wire:
    wire = Wire(socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S, source_address=(source, 0)))
    wire.sock.sendall(header)
    return wire


def may_administer(wire: Wire) -> bool:
    code = wire.ask(RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)).code
    assert code in (ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION)
    return code == ResponseCode.SUCCESS


def line(host: str) -> bytes:
    return f"PROXY TCP4 {host} 10.0.0.1 51234 10911\r\n".encode()


@pytest.mark.parametrize(
    ("header", "trusted"),
    [
        (line("192.0.2.9"), True),
        (line("198.51.100.7"), False),
        (line("127.0.0.1"), False),
        (b"PROXY UNKNOWN\r\n", False),
    ],
)
def test_whom_the_proxy_names_is_who_asks(broker: RunningBroker, header: bytes, trusted: bool) -> None:
    """Fault: Every client of a TLS proxy on the broker's machine could administer the broker."""
    with open_wire(broker, header) as wire:
        assert may_administer(wire) is trusted


def test_this_machine_is_not_trusted_where_that_is_switched_off(broker: RunningBroker) -> None:
    with Wire.open(broker.port) as wire:
        assert not may_administer(wire)
        assert wire.ask(send_request("Open", b"still served")).code == ResponseCode.SUCCESS


def test_it_is_by_default() -> None:
    with running_broker() as broker, Wire.open(broker.port) as wire:
        assert may_administer(wire)


def test_the_born_host_is_the_clients(broker: RunningBroker) -> None:
    with open_wire(broker, line("198.51.100.7")) as wire:
        assert wire.ask(send_request("Born", b"x")).code == ResponseCode.SUCCESS
        until(lambda: max_offset(wire, "Born") == 1, "dispatch")
        (record,) = records_of(wire.ask(pull_request("Born", 0)))
        assert record.born_host == ("198.51.100.7", 51234)


def test_a_proxy_without_a_header_is_closed_and_logged(broker: RunningBroker) -> None:
    with open_wire(broker, b"") as wire:
        wire.tell(send_request("Open", b"x"))
        assert wire.is_closed_by_peer()
    until(lambda: "sent no PROXY header" in broker.text(), "the log line")
