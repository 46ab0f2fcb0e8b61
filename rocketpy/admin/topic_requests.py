"""Clusters, routes and topics."""

from __future__ import annotations

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import BrokerError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import RETRY_PREFIX, TRACE_TOPIC
from rocketpy.remoting.bodies.group import GroupList
from rocketpy.remoting.bodies.route import MASTER_ID, ClusterInfo, TopicRouteData
from rocketpy.remoting.bodies.topic import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rocketpy.remoting.headers.admin import CreateTopicRequestHeader, TopicRequestHeader, TopicStatsRequestHeader
from rocketpy.remoting.headers.namesrv import DeleteTopicInNamesrvRequestHeader

from .core import AdminCore, NotFound, each, read_answer

NO_CLUSTER = "Make sure the specified clusterName exists or the name server connected to is correct."  # Java's words


class TopicRequests(AdminCore):
    """Operations on topics."""

    async def cluster_info(self) -> ClusterInfo:
        return ClusterInfo.decode((await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)).body)

    async def addresses_of(self, cluster: str, *, masters_only: bool = True) -> list[str]:
        """Addresses of the brokers of a cluster. Raises NotFound when there is none."""
        info = await self.cluster_info()
        found = [
            address
            for name in sorted(info.cluster_addr_table.get(cluster, []))
            if (broker := info.broker_addr_table.get(name)) is not None
            for broker_id, address in sorted(broker.broker_addrs.items())
            if broker_id == MASTER_ID or not masters_only
        ]
        if not found:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise NotFound(f"cluster {cluster} has no broker; clusters are: {known}. {NO_CLUSTER}")
        return found

    async def route(self, topic: str) -> TopicRouteData:
        """The topic's route; its brokers are known from then on. Raises BrokerError TOPIC_NOT_EXIST."""
        if not await self.instance.update_route(topic):
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, _no_route(topic))
        return self.instance.routes[topic]

    async def queue(self, topic: str, broker_name: str, queue_id: int) -> MessageQueue:
        """A queue of the topic. Raises NotFound: no such broker has the topic; BrokerError: as `route`."""
        if all(data.broker_name != broker_name for data in (await self.route(topic)).broker_datas):
            raise NotFound(f"The broker[{broker_name}] not exist, or has no topic {topic}")
        return MessageQueue(topic, broker_name, queue_id)

    async def masters_of_topic(self, topic: str) -> dict[str, str]:
        """Broker name -> address of the brokers that have the topic: masters, or what there is."""
        route = await self.route(topic)
        return {
            data.broker_name: data.broker_addrs.get(MASTER_ID) or data.broker_addrs[min(data.broker_addrs)]
            for data in sorted(route.broker_datas, key=lambda data: data.broker_name)
            if data.broker_addrs
        }

    async def clusters_of_topic(self, topic: str) -> set[str]:
        route, info = await self.route(topic), await self.cluster_info()
        names = {data.broker_name for data in route.broker_datas}
        return {cluster for cluster, members in info.cluster_addr_table.items() if names & set(members)}

    async def topics(self) -> list[str]:
        response = await self.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(TopicList.decode(response.body).topic_list)

    async def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        response = await self.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        return TopicConfigSerializeWrapper.decode(response.body).topic_config_table

    async def create_topic(self, address: str, config: TopicConfig) -> None:
        """Create a topic or replace its settings on one master."""
        header = CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic="TBW102",
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type.value,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
        )
        await self.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic(self, topic: str, cluster: str) -> None:
        """Delete a topic from the cluster's masters, then from every name server."""
        masters = await self.addresses_of(cluster)
        header = TopicRequestHeader(topic=topic)
        await each(masters, lambda address: self.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header))
        await self.each_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrvRequestHeader(topic=topic))

    async def topic_stats(self, topic: str, *, address: str | None = None) -> dict[MessageQueue, TopicOffset]:
        """Offsets of every queue, of all brokers that have the topic, or of one."""
        merged: dict[MessageQueue, TopicOffset] = {}
        for each_address in [address] if address else (await self.masters_of_topic(topic)).values():
            response = await self.ask(
                each_address, RequestCode.GET_TOPIC_STATS_INFO, TopicStatsRequestHeader(topic=topic)
            )
            merged |= (await read_answer(TopicStatsTable, response.body)).offset_table
        return merged

    async def who_consumes(self, topic: str) -> list[str]:
        """Groups of the topic, of all its brokers (Java asks the first only), in the order of their answers."""
        groups: dict[str, None] = {}
        for address in (await self.masters_of_topic(topic)).values():
            response = await self.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader(topic=topic))
            groups.update(dict.fromkeys(GroupList.decode(response.body).group_list))
        return list(groups)


def _no_route(topic: str) -> str:
    """Return Java's words, and the remedy where the operator has not named this topic."""
    text = f"No topic route info in name server for the topic: {topic}"
    if topic.startswith(RETRY_PREFIX):
        group = topic.removeprefix(RETRY_PREFIX)
        return (
            f"{text}; group {group} has never had a member, or has another name: mqadmin consumerProgress lists groups"
        )
    if topic == TRACE_TOPIC:
        return f"{text}; to trace messages set traceTopicEnable=true on one broker, and trace=True in clients"
    return text
