"""The name server: 100 to 106, 205, 216, 219, 224, 322, 327."""

from __future__ import annotations

from ..schema import Header, Int, header, wire


@header
class PutKVConfigRequestHeader(Header):
    namespace: str = wire("namespace")
    key: str = wire("key")
    value: str = wire("value", default="")


@header
class KVConfigRequestHeader(Header):
    """GET_KV_CONFIG and DELETE_KV_CONFIG."""

    namespace: str = wire("namespace")
    key: str = wire("key")


@header
class GetKVConfigResponseHeader(Header):
    value: str | None = wire("value", default=None)


@header
class GetKVListByNamespaceRequestHeader(Header):
    namespace: str = wire("namespace")


@header
class RegisterBrokerRequestHeader(Header):
    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster_name: str = wire("clusterName")
    ha_server_addr: str = wire("haServerAddr", default="")
    broker_id: int = wire("brokerId")
    compressed: bool = wire("compressed", default=False)
    body_crc32: Int = wire("bodyCrc32", default=0)  # over the body as sent, low 31 bits; 0: not checked
    master_epoch: int | None = wire("masterEpoch", default=None)  # rocketpy: of a master with automatic failover
    advertised_addrs: str | None = wire("advertisedAddrs", default=None)  # rocketpy: config/advertised.py
    advertised_ha_addrs: str | None = wire("advertisedHaAddrs", default=None)


@header
class RegisterBrokerResponseHeader(Header):
    """The answer to REGISTER_BROKER. The addresses are given only to a slave whose master is alive."""

    ha_server_addr: str | None = wire("haServerAddr", default=None)
    master_addr: str | None = wire("masterAddr", default=None)


@header
class BrokerRequestHeader(Header):
    """UNREGISTER_BROKER and QUERY_DATA_VERSION."""

    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster_name: str = wire("clusterName")
    broker_id: int = wire("brokerId")


@header
class QueryDataVersionResponseHeader(Header):
    changed: bool = wire("changed")


@header
class GetRouteInfoRequestHeader(Header):
    topic: str = wire("topic")
    accept_standard_json_only: bool | None = wire("acceptStandardJsonOnly", default=None)


@header
class BrokerNameRequestHeader(Header):
    """WIPE_WRITE_PERM_OF_BROKER and ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str = wire("brokerName")


@header
class WipeWritePermOfBrokerResponseHeader(Header):
    wipe_topic_count: Int = wire("wipeTopicCount")


@header
class AddWritePermOfBrokerResponseHeader(Header):
    add_topic_count: Int = wire("addTopicCount")


@header
class DeleteTopicInNamesrvRequestHeader(Header):
    topic: str = wire("topic")
    cluster_name: str | None = wire("clusterName", default=None)


@header
class GetTopicsByClusterRequestHeader(Header):
    cluster: str = wire("cluster")
