"""The key by which limits count a peer."""

from __future__ import annotations

import pytest

from rocketpy.networks import network_of


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("a host", "a host"),
    ],
)
def test_ipv6_peers_are_counted_by_their_64_network_others_by_themselves(host: str, network: str) -> None:
    assert network_of(host) == network
