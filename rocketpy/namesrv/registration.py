"""The registration of a broker, and the tables that the name server keeps of it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketpy.remoting.bodies.topic import DataVersion, TopicConfig


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


@attrs.frozen
class MasterInfo:
    """The master of a slave; both None if none is registered."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


@attrs.define
class LiveBroker:
    """A registered broker address."""

    broker_name: str
    last_update_ms: int
    data_version: DataVersion
    connection: int
    ha_server_addr: str
    master_epoch: int | None = None
    peer: str = ""
