"""The registration of a broker, and the entries that the name server's tables keep of it.

An entry of a topic is a QueueData without its broker, packed as bytes: read queues, write queues, perm, topicSysFlag.
As bytes, so that the cyclic garbage collector has nothing to visit: with objects it held the loop for 90 ms at 100 000
topics of three brokers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import attrs

from rocketpy.config import Advertised
from rocketpy.networks import parse_address
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.route import QueueData
from rocketpy.remoting.bodies.topic import DataVersion, TopicConfig

QUEUES = struct.Struct(">4i")
UNKNOWN_VERSION = DataVersion(counter=-(1 << 63), timestamp_ms=0)  # of a broker whose topics are being registered


@attrs.frozen
class Viewer:
    """The place from which a client or a broker asks. It decides which address of a broker is the answer."""

    listener: str = ""
    host: str = "0.0.0.0"

    @classmethod
    def of(cls, channel: Channel) -> Viewer:
        return cls(channel.listener, channel.peer.host)

    def sees(self, address: str, advertised: Advertised | None) -> str:
        """Return `address`, or another one of the same broker that is advertised for this viewer."""
        if advertised is None:
            return address
        return advertised.seen_by(self.listener, parse_address(self.host)) or address


ANYBODY = Viewer()  # sees the addresses of brokerIP1


@attrs.frozen
class Registration:
    """The registration of a broker (code 103)."""

    cluster: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    data_version: DataVersion
    topics: Mapping[str, TopicConfig]
    filter_servers: tuple[str, ...] | None = ()  # None: not given (brokers before 3.0.11)
    master_epoch: int | None = None  # of a master with automatic failover
    peer: str = ""  # the other end of the connection that it came on
    viewer: Viewer = ANYBODY
    advertised: Advertised | None = None  # other addresses of broker_addr and ha_server_addr; None: there are none
    ha_advertised: Advertised | None = None


@attrs.frozen
class MasterInfo:
    """The master of a slave; both None if none is registered."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


@attrs.frozen
class Reach:
    """The addresses of a broker, beside the one by which it is known."""

    ha_server_addr: str
    advertised: Advertised | None = None
    ha_advertised: Advertised | None = None


@attrs.define
class LiveBroker:
    """A registered broker address."""

    broker_name: str
    last_update_ms: int
    connection: int
    reach: Reach
    master_epoch: int | None = None
    peer: str = ""
    data_version: DataVersion = attrs.field(init=False, default=UNKNOWN_VERSION)


def packed(config: TopicConfig, removed_perm: int) -> bytes:
    perm = config.perm & ~removed_perm
    return QUEUES.pack(config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag)


def unpacked(broker_name: str, entry: bytes) -> QueueData:
    read_queues, write_queues, perm, flag = QUEUES.unpack(entry)
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=perm,
        topic_sys_flag=flag,
    )
