"""The properties of MessageStoreConfig that are about replication: a master and the slaves that copy its log.

Keys and defaults are the reference's (4.9, some of 5.x), except for the last ones, which only rocketpy has.
"""

# ruff: noqa: RUF009 - setting() returns an attrs field; it is meant to run once, in the class body

from __future__ import annotations

import enum

import attrs

from rocketpy.values import Value

from .setting import LONG_MAX, Effect, setting


class BrokerRole(enum.Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@attrs.frozen(eq=False, repr=False, kw_only=True)
class ReplicationConfig(Value):
    """Part of MessageStoreConfig."""

    broker_role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER,
        "brokerRole",
        "ASYNC_MASTER answers without waiting for the slave; SYNC_MASTER waits (survives the loss of the master's "
        "disk, costs a round trip); SLAVE copies a master.",
        effect=Effect.REFUSED,
        important=True,
    )
    ha_listen_port: int = setting(
        0,
        "haListenPort",
        "Port that slaves dial.",
        default_text="listenPort + 1",
        ignored="always listenPort + 1, as in the reference",
        at_most=65_535,
    )
    ha_master_address: str | None = setting(
        None,
        "haMasterAddress",
        "`host:port` of a slave's master; else the name server gives it.",
        important=True,
    )
    ha_send_heartbeat_interval: int = setting(
        5_000,
        "haSendHeartbeatInterval",
        "Master and slave send something at least this often.",
        unit="ms",
        at_least=1,
        c="rp_master_config.heartbeat_ns rp_slave_stream_config.report_interval_ns",
    )
    ha_housekeeping_interval: int = setting(
        20_000,
        "haHousekeepingInterval",
        "A replication connection that received nothing for this long is closed.",
        unit="ms",
        at_least=1,
        c="rp_master_config.housekeeping_ns rp_slave_stream_config.silence_max_ns",
    )
    ha_transfer_batch_size: int = setting(
        32_768,
        "haTransferBatchSize",
        "Most log bytes in a frame to a slave of the reference; slaves of rocketpy get up to 128 KiB.",
        unit="bytes",
        at_least=1_024,
        at_most=4_194_304,
        c="rp_master_config.frame_max",
    )
    ha_slave_fallbehind_max: int = setting(
        268_435_456,
        "haSlaveFallbehindMax",
        "A slave with more lag is not waited for: SYNC_MASTER answers SLAVE_NOT_AVAILABLE (the message is stored).",
        unit="bytes",
        at_least=1,
        at_most=LONG_MAX,
        c="rp_send_config.fall_behind_max",
    )
    slave_timeout: int = setting(
        3_000,
        "slaveTimeout",
        "SYNC_MASTER: time until FLUSH_SLAVE_TIMEOUT (the message is stored). A slave that acknowledges nothing for "
        "this long while bytes wait counts as absent until it does.",
        unit="ms",
        at_least=1,
        c="rp_send_config.slave_timeout_ms rp_master_config.stall_ns",
    )
    offset_check_in_slave: bool = setting(
        False,
        "offsetCheckInSlave",
        "A slave answers a pull outside its range like a master, with the nearest offset. Off: it waits a second for "
        "the log, then answers PULL_RETRY_IMMEDIATELY with the requested offset.",
        c="rp_pull_config.offset_check_in_slave",
    )
    max_ha_transfer_byte_in_second: int = setting(
        0,
        "maxHaTransferByteInSecond",
        "Most log bytes to one slave in a second (of 5.x); 0: no limit. Frames are sent whole; an excess delays the "
        "next.",
        unit="bytes",
        at_most=LONG_MAX,
        c="rp_master_config.bytes_per_second",
    )
    ha_addresses: str = setting(
        "127.0.0.0/8,::1",
        "haAddresses",
        "Addresses and networks, comma-separated, from which slaves may connect and copy every message. Slaves of "
        "the reference cannot authenticate: only this list protects the port.",
    )
    ha_connections_max: int = setting(
        16,
        "haConnectionsMax",
        "Slaves that may replicate at once; more are closed. At most 16 others may be in the handshake.",
        at_least=1,
        at_most=64,
        c="rp_master_config.slaves_max",
    )
    ha_secret_file: str | None = setting(
        None,
        "haSecretFile",
        "File with a secret that brokers of rocketpy prove to each other before a log byte is sent. Slaves of the "
        "reference are then refused.",
    )
    ha_use_tls: bool = setting(
        False,
        "haUseTLS",
        "A slave gets the log by TLS, with the authorities and certificate of its requests. Its master must serve TLS, "
        "and be a broker of rocketpy. Needs useTLS=true.",
        default_text="true if tls.server.mode is enforcing and useTLS true",
    )
    ha_check_crc: bool = setting(
        True,
        "haCheckCrc",
        "A slave checks the CRC of each body before it stores the message.",
        c="rp_send_config.check_crc",
    )
    ha_truncate_diverged: bool = setting(
        False,
        "haTruncateDiverged",
        "A slave whose log differs from its master's (a broker of rocketpy) cuts off the tail that differs, at most "
        "256 MiB, keeps it in the store's directory `diverged`, and goes on. Needs haSecretFile. Off: the slave stops "
        "following. With haMode=automatic members always cut.",
    )
    ha_diverged_size_max: int = setting(
        4 << 30,
        "haDivergedSizeMax",
        "Most bytes in the directory `diverged`. A slave that would need more neither cuts nor follows.",
        unit="bytes",
        at_most=LONG_MAX,
    )

    @property
    def is_slave(self) -> bool:
        return self.broker_role is BrokerRole.SLAVE
