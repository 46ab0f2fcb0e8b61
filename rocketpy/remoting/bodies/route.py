"""Answers of a name server: GET_ROUTEINFO_BY_TOPIC (105), GET_BROKER_CLUSTER_INFO (106), KVTable (219; also 28, 103).

Broker ids stand quoted: that one compact form works for every client, while spaces would break the Go client.
"""

from __future__ import annotations

from collections.abc import Iterator

from .schema import Body, Int, body, wire

MASTER_ID = 0


def _quoted_ids(members: Iterator[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    for name, member in members:
        if name == "brokerAddrs":
            assert isinstance(member, dict)
            yield name, {str(broker_id): member[broker_id] for broker_id in sorted(member)}
        else:
            yield name, member


@body
class BrokerData(Body):
    """The addresses of one broker name, by broker id; id 0 is the master."""

    broker_addrs: dict[int, str] = wire("brokerAddrs", factory=dict)
    broker_name: str = wire("brokerName", default="")
    cluster: str = wire("cluster", default="")

    def wire_members(self) -> Iterator[tuple[str, object]]:
        return _quoted_ids(Body.wire_members(self))

    @property
    def master_addr(self) -> str | None:
        return self.broker_addrs.get(MASTER_ID)


@body
class QueueData(Body):
    """The queues and permission of a topic on one broker."""

    broker_name: str = wire("brokerName", default="")
    perm: Int = wire("perm", default=0)
    read_queue_nums: Int = wire("readQueueNums", default=0)
    topic_sys_flag: Int = wire("topicSysFlag", default=0, aliases=("topicSynFlag",))
    write_queue_nums: Int = wire("writeQueueNums", default=0)


@body
class TopicRouteData(Body):
    """Both lists are arrays, never null: Java walks them unchecked."""

    broker_datas: list[BrokerData] = wire("brokerDatas", factory=list)
    filter_server_table: dict[str, list[str]] = wire("filterServerTable", factory=dict)
    order_topic_conf: str | None = wire("orderTopicConf", default=None)  # "broker-a:4;broker-b:4"
    queue_datas: list[QueueData] = wire("queueDatas", factory=list)


@body
class ClusterInfo(Body):
    broker_addr_table: dict[str, BrokerData] = wire("brokerAddrTable", factory=dict)
    cluster_addr_table: dict[str, list[str]] = wire("clusterAddrTable", factory=dict)


@body
class KVTable(Body):
    """A table of texts: KV configuration, GET_BROKER_RUNTIME_INFO."""

    table: dict[str, str] = wire("table", factory=dict)
