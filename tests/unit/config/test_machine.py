"""The choice of the announced address."""

import ipaddress

import pytest

from rocketpy.config.machine import choose_address, is_concrete, local_addresses


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        ([], "127.0.0.1"),
        (["192.168.1.5", "10.0.0.5"], "10.0.0.5"),
        (["192.168.1.5", "192.168.2.5"], "192.168.2.5"),
        (["127.0.0.2", "172.16.0.1", "10.0.0.5"], "172.16.0.1"),
        (["fd00::1"], "fd00::1"),
        (["fd00::1", "192.168.1.5"], "192.168.1.5"),
    ],
)
def test_choice(addresses: list[str], chosen: str) -> None:
    """Holds: trap, the address that brokerIP1 becomes."""
    assert choose_address(addresses) == chosen


def test_concrete() -> None:
    assert is_concrete("10.0.0.1")
    assert not any(is_concrete(address) for address in ("0.0.0.0", "::", ""))


def test_this_host_has_only_numeric_addresses() -> None:
    for address in local_addresses():
        assert not ipaddress.ip_address(address).is_loopback
