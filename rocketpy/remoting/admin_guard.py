"""Decides who may administer the server: this machine, if it is trusted, and the addresses that the operator
configures.

Administrative requests are allowed or refused by the address of the peer; access control (rocketpy/acl), if it is on,
decides besides. With a listener on loopback, the default, all peers are allowed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import attrs

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.networks import Network, is_in, parse_address, parse_networks

GUARDED_CODES = frozenset(  # an administrator's address is needed
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_ALL_CONSUMER_FILTER,
    }
)
PEER_CODES = frozenset(
    {
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_ALL_CONSUMER_FILTER,
    }
)
"""Requests between brokers of one group: for the settings before a slave takes bytes
(rocketpy/replication/master_log.py), for the state of replication, and for the table of filters, which may be long."""


@attrs.frozen
class AdminGuard:
    """Checks the peer's address only."""

    networks: tuple[Network, ...] = ()
    trusts_loopback: bool = True
    peers: tuple[Network, ...] = ()
    """Slaves, which may have every message: PEER_CODES are for them, too. Not for loopback, which has its own rule."""

    @classmethod
    def of(cls, allowed: str, own: Iterable[str] = (), *, trusts_own: bool = True, peers: str = "") -> AdminGuard:
        """`allowed` is the setting adminAddresses, `trusts_own` adminTrustsLoopback, `peers` haAddresses; `own` are
        addresses of this machine (names, and the address that stands for all of them, are passed over)."""
        networks = list(parse_networks(allowed))
        for host in own if trusts_own else ():
            try:
                address = parse_address(host)
            except ValueError:
                continue
            if not address.is_unspecified:
                networks.append(ipaddress.ip_network(address))
        return cls(tuple(networks), trusts_own, tuple(parse_networks(peers)))

    def check(self, code: int, host: str) -> None:
        """Let a request of `host` pass, or refuse it.

        Raises:
            RequestRefused: NO_PERMISSION, an administrative request from another address.
        """
        if code not in GUARDED_CODES:
            return
        address = parse_address(host)
        if (self.trusts_loopback and address.is_loopback) or is_in(address, self.networks):
            return
        if code in PEER_CODES and not address.is_loopback and is_in(address, self.peers):
            return
        slave = ", or by haAddresses if it is a slave" if code in PEER_CODES else ""
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"{host} may not administer this server; its operator can allow it by adminAddresses{slave}",
        )
