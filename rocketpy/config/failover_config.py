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


@attrs.frozen(kw_only=True)
class FailoverConfig(ReplicationConfig):
    """Part of MessageStoreConfig."""

    ha_mode: HaMode = setting(
        HaMode.PLAIN,
        "haMode",
        "plain: brokerRole says who is master, and people change it. automatic: the brokers of one brokerName elect "
        "their master with the help of etcd; brokerRole then says whether sends wait for the in-sync members "
        "(SYNC_MASTER) or not (ASYNC_MASTER), and brokerId is the member's own while it is a slave, 1 and up.",
        important=True,
    )
    ha_etcd_addresses: str = setting(
        "",
        "haEtcdAddresses",
        "URLs of etcd's client ports, separated by commas: `http://10.0.0.1:2379,http://10.0.0.2:2379`.",
    )
    ha_etcd_user: str | None = setting(
        None,
        "haEtcdUser",
        "User of etcd. Give haEtcdPasswordFile too.",
    )
    ha_etcd_password_file: str | None = setting(
        None,
        "haEtcdPasswordFile",
        "File with the password of haEtcdUser, on its first line.",
    )
    ha_etcd_ca_file: str | None = setting(
        None,
        "haEtcdCaFile",
        "File with the certificates that etcd's are checked against, PEM. Without it those of the system are used.",
    )
    ha_etcd_cert_file: str | None = setting(
        None,
        "haEtcdCertFile",
        "File with this broker's certificate for etcd, PEM. Give haEtcdKeyFile too.",
    )
    ha_etcd_key_file: str | None = setting(
        None,
        "haEtcdKeyFile",
        "File with the key of haEtcdCertFile, PEM, without a passphrase.",
    )
    ha_etcd_compact_hours: int = setting(
        24,
        "haEtcdCompactHours",
        "The master removes the history of etcd that is older than this, of all keys: of those of others, too. 0: it "
        "removes none, and etcd needs --auto-compaction-retention.",
        unit="h",
        at_most=8760,
    )
    ha_member: str = setting(
        "",
        "haMember",
        "This broker's name in its group. It stays when the machine is replaced: the group knows its members by it.",
    )
    ha_members: str = setting(
        "",
        "haMembers",
        "Names of all members of the group, separated by commas: the same list in the same order on each.",
    )
    ha_lease_seconds: int = setting(
        6,
        "haLeaseSeconds",
        "A master that has not renewed its lease in etcd for this long is replaced. A longer one bears longer pauses "
        "of etcd, a shorter one shortens a failover.",
        unit="s",
        at_least=LEASE_MIN_S,
        at_most=600,
    )
    ha_unhealthy_seconds: int = setting(
        5,
        "haUnhealthySeconds",
        "A master that for this long could not open, write or acknowledge its log (a disk that fails or is full, "
        "processes that end again and again) gives way to another in-sync member that can. 0: it stays master.",
        unit="s",
        at_most=600,
    )
    ha_serve_without_lease: bool = setting(
        True,
        "haServeWithoutLease",
        "A synchronous master with in-sync slaves goes on while etcd does not answer: their acknowledgements are proof "
        "enough that nobody else is master. false: it stops a second before its lease can end.",
    )
    ha_max_time_slave_not_catchup: int = setting(
        3_000,
        "haMaxTimeSlaveNotCatchup",
        "A slave that has not had all of the log for this long leaves the in-sync set (of 5.x, where it is 15000).",
        unit="ms",
        at_least=100,
    )

    min_in_sync_replicas: int = setting(
        1,
        "minInSyncReplicas",
        "A synchronous master with fewer members in sync, itself included, refuses messages (14) and stores nothing. "
        "1: alone it stores them, and answers 11. Without haMode=automatic it must be 1 (of 5.x).",
        at_least=1,
        at_most=16,
    )

    @property
    def is_automatic(self) -> bool:
        """Return True if etcd decides which member is master."""
        return self.ha_mode is HaMode.AUTOMATIC

    @property
    def etcd_addresses(self) -> tuple[str, ...]:
        """The URLs of etcd, without a slash at the end."""
        return tuple(piece.strip().rstrip("/") for piece in self.ha_etcd_addresses.split(",") if piece.strip())

    @property
    def member_names(self) -> tuple[str, ...]:
        return tuple(piece.strip() for piece in self.ha_members.split(",") if piece.strip())
