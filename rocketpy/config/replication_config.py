"""The properties of MessageStoreConfig that are about replication: a master and the slaves that copy its log.

Keys and defaults are the reference's (4.9, some of 5.x), except for the last ones, which only rocketpy has.
"""

# ruff: noqa: RUF009 - setting() returns an attrs field; it is meant to run once, in the class body

from __future__ import annotations

import enum

import attrs

from .setting import LONG_MAX, Effect, setting


class BrokerRole(enum.Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@attrs.frozen(kw_only=True)
class ReplicationConfig:
    """Part of MessageStoreConfig."""

    broker_role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER,
        "brokerRole",
        "ASYNC_MASTER answers without waiting for the slave; SYNC_MASTER waits for it (survives the loss of the "
        "master's disk, costs a round trip); SLAVE copies a master.",
        effect=Effect.REFUSED,
        important=True,
    )
    ha_listen_port: int = setting(
        0,
        "haListenPort",
        "Port that slaves dial. Always listenPort + 1, whatever is given, as in the reference.",
        default_text="listenPort + 1",
        ignored="it is always listenPort + 1, as in the reference",
        at_most=65_535,
    )
    ha_master_address: str | None = setting(
        None,
        "haMasterAddress",
        "`host:port` of the master for a slave; without it the name server gives it.",
        important=True,
    )
    ha_send_heartbeat_interval: int = setting(
        5_000,
        "haSendHeartbeatInterval",
        "Master and slave send something at least this often.",
        unit="ms",
        at_least=1,
    )
    ha_housekeeping_interval: int = setting(
        20_000,
        "haHousekeepingInterval",
        "A replication connection on which nothing has arrived for this long is closed.",
        unit="ms",
        at_least=1,
    )
    ha_transfer_batch_size: int = setting(
        32_768,
        "haTransferBatchSize",
        "Most bytes of the log in one frame to a slave of the reference. Those of rocketpy get up to 128 KiB.",
        unit="bytes",
        at_least=1_024,
        at_most=4_194_304,
    )
    ha_slave_fallbehind_max: int = setting(
        268_435_456,
        "haSlaveFallbehindMax",
        "A slave that is further behind is not waited for: SYNC_MASTER answers SLAVE_NOT_AVAILABLE (the message is "
        "stored).",
        unit="bytes",
        at_least=1,
        at_most=LONG_MAX,
    )
    slave_timeout: int = setting(
        3_000,
        "slaveTimeout",
        "SYNC_MASTER: when to answer FLUSH_SLAVE_TIMEOUT (the message is stored). A slave that has acknowledged "
        "nothing for this long while bytes wait for it counts as absent until it does.",
        unit="ms",
        at_least=1,
    )
    offset_check_in_slave: bool = setting(
        False,
        "offsetCheckInSlave",
        "A slave answers a pull outside of its range like a master, with the nearest offset. Otherwise it waits for a "
        "second for the log to get there, then answers PULL_RETRY_IMMEDIATELY with the offset that was asked for.",
    )
    max_ha_transfer_byte_in_second: int = setting(
        0,
        "maxHaTransferByteInSecond",
        "Most bytes of the log that the master sends to one slave in a second (of 5.x); 0: no limit. Frames are sent "
        "whole; what one has beyond the limit is made up for before the next.",
        unit="bytes",
        at_most=LONG_MAX,
    )
    ha_addresses: str = setting(
        "127.0.0.0/8,::1",
        "haAddresses",
        "Addresses and networks, separated by commas, from which slaves may connect. A slave gets a copy of every "
        "message; brokers of the reference cannot authenticate themselves, so this list is all that protects the port.",
    )
    ha_connections_max: int = setting(
        16,
        "haConnectionsMax",
        "Slaves that may replicate at once; a further one is closed. Connections in the handshake have a bound of "
        "their own (16).",
        at_least=1,
        at_most=64,
    )
    ha_secret_file: str | None = setting(
        None,
        "haSecretFile",
        "File with the secret that brokers of rocketpy prove to each other before a byte of the log is sent. Slaves of "
        "the reference are refused then, because they have no such proof.",
    )
    ha_check_crc: bool = setting(
        True,
        "haCheckCrc",
        "A slave compares the CRC of each message's body before it stores the message.",
    )
    ha_truncate_diverged: bool = setting(
        False,
        "haTruncateDiverged",
        "A slave whose log differs from that of its master, which is a broker of rocketpy, cuts off the end that "
        "differs, at most 256 MiB, keeps it in the directory `diverged` of the store, and goes on. That end may have "
        "acknowledged messages that the master has lost. Needs haSecretFile, so that nobody else has it cut. Off: the "
        "slave stops following, and says where they differ. With haMode=automatic members do this by themselves.",
    )
    ha_diverged_size_max: int = setting(
        4 << 30,
        "haDivergedSizeMax",
        "Most bytes in the directory `diverged` of the store, which has what was cut off logs that differed from their "
        "master's. A log that would need more is not cut, and does not follow, until somebody has made room.",
        unit="bytes",
        at_most=LONG_MAX,
    )

    @property
    def is_slave(self) -> bool:
        return self.broker_role is BrokerRole.SLAVE
