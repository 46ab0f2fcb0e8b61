"""Who may administer: this machine, and the addresses that the operator names; everybody else is a stranger.

There is no access control in the sense of 4.x (ACL) yet, so what changes or reveals a server's settings is served by
where it comes from. With a listener on loopback, the default, nobody is a stranger.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import attrs

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

ADMIN_CODES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
    }
)


def parse_networks(text: str) -> tuple[Network, ...]:
    """Addresses and networks, separated by commas.

    Raises:
        ValueError: names the piece that is neither.
    """
    return tuple(ipaddress.ip_network(piece.strip(), strict=False) for piece in text.split(",") if piece.strip())


@attrs.frozen
class AdminGuard:
    """Judges by the peer's address alone."""

    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, allowed: str, own: Iterable[str] = ()) -> AdminGuard:
        """`allowed` is the setting adminAddresses; `own` are addresses of this machine (names are passed over)."""
        networks = list(parse_networks(allowed))
        for address in own:
            try:
                networks.append(ipaddress.ip_network(address))
            except ValueError:
                continue
        return cls(tuple(networks))

    def check(self, code: int, host: str) -> None:
        """
        Raises:
            RequestRefused: NO_PERMISSION, an administrative request of a stranger.
        """
        if code not in ADMIN_CODES:
            return
        address = ipaddress.ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None)
        address = mapped or address
        if address.is_loopback or any(address in network for network in self.networks):
            return
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"{host} may not administer this server; its operator can allow it by adminAddresses",
        )
