"""The properties of automatic failover: how the brokers of one name agree in etcd on who is master."""

# ruff: noqa: RUF009 - setting() returns an attrs field; it is meant to run once, in the class body

from __future__ import annotations

import enum

import attrs

from .replication_config import ReplicationConfig
from .setting import setting

LEASE_MIN_S = 2  # etcd grants no shorter one


class HaMode(enum.Enum):
    PLAIN = "plain"
    AUTOMATIC = "automatic"


@attrs.frozen(eq=False, repr=False, kw_only=True)
class FailoverConfig(ReplicationConfig):
    """Part of MessageStoreConfig."""

    ha_mode: HaMode = setting(
        HaMode.PLAIN,
        "haMode",
        "plain: brokerRole names the master. automatic: the brokers of one brokerName elect it in etcd; brokerRole "
        "then says if sends wait for the in-sync members, and brokerId (1 and up) is the member's own while it is a "
        "slave.",
        important=True,
    )
    ha_etcd_addresses: str = setting(
        "",
        "haEtcdAddresses",
        "Client URLs of etcd, comma-separated: `http://10.0.0.1:2379,http://10.0.0.2:2379`.",
    )
    ha_etcd_user: str | None = setting(
        None,
        "haEtcdUser",
        "User of etcd; needs haEtcdPasswordFile.",
    )
    ha_etcd_password_file: str | None = setting(
        None,
        "haEtcdPasswordFile",
        "File with that user's password on its first line.",
    )
    ha_etcd_ca_file: str | None = setting(
        None,
        "haEtcdCaFile",
        "PEM file with the certificates that etcd's are checked against; else those of the system.",
    )
    ha_etcd_cert_file: str | None = setting(
        None,
        "haEtcdCertFile",
        "PEM file with this broker's certificate for etcd; needs haEtcdKeyFile.",
    )
    ha_etcd_key_file: str | None = setting(
        None,
        "haEtcdKeyFile",
        "PEM file with its key, without a passphrase.",
    )
    ha_etcd_compact_hours: int = setting(
        24,
        "haEtcdCompactHours",
        "The master removes etcd's history older than this, of all keys, also those of other programs. 0: never; "
        "etcd then needs --auto-compaction-retention.",
        unit="h",
        at_most=8760,
    )
    ha_member: str = setting(
        "",
        "haMember",
        "This broker's name in its group; a replacement of the machine keeps it.",
    )
    ha_members: str = setting(
        "",
        "haMembers",
        "Names of all members, comma-separated, in the same order on each.",
    )
    ha_lease_seconds: int = setting(
        6,
        "haLeaseSeconds",
        "A master that has not renewed its lease in etcd for this long is replaced. Longer bears longer pauses of "
        "etcd; shorter fails over sooner.",
        unit="s",
        at_least=LEASE_MIN_S,
        at_most=600,
    )
    ha_unhealthy_seconds: int = setting(
        5,
        "haUnhealthySeconds",
        "A master that cannot open, write or acknowledge its log for this long (bad or full disk, processes that "
        "keep ending) gives way to an in-sync member that can. 0: it stays master.",
        unit="s",
        at_most=600,
    )
    ha_serve_without_lease: bool = setting(
        True,
        "haServeWithoutLease",
        "A synchronous master with in-sync slaves goes on while etcd does not answer: their acknowledgements prove "
        "that it is the only master. Off: it stops a second before its lease can end.",
    )
    ha_max_time_slave_not_catchup: int = setting(
        3_000,
        "haMaxTimeSlaveNotCatchup",
        "A slave that lacks part of the log for this long leaves the in-sync set (of 5.x: 15000 there).",
        unit="ms",
        at_least=100,
    )

    min_in_sync_replicas: int = setting(
        1,
        "minInSyncReplicas",
        "A synchronous master with fewer members in sync, itself included, refuses messages (14) and stores nothing. "
        "1: alone it stores them and answers 11. Must be 1 without haMode=automatic (of 5.x).",
        at_least=1,
        at_most=16,
    )

    @property
    def is_automatic(self) -> bool:
        """Return True if the members elect their master in etcd."""
        return self.ha_mode is HaMode.AUTOMATIC

    @property
    def etcd_addresses(self) -> tuple[str, ...]:
        """The URLs of etcd, without a slash at the end."""
        return tuple(piece.strip().rstrip("/") for piece in self.ha_etcd_addresses.split(",") if piece.strip())

    @property
    def member_names(self) -> tuple[str, ...]:
        return tuple(piece.strip() for piece in self.ha_members.split(",") if piece.strip())
