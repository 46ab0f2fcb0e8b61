"""Admin: what operators ask of name servers and brokers, as awaitable methods.

    async with Admin(name_servers="127.0.0.1:9876") as admin:
        for queue, offsets in (await admin.topic_stats("OrderTopic")).items(): ...

Where Java asks one broker at random, this asks all and merges (`consumer_connection`, `who_consumes`).
Source: RocketMQ 4.9 `DefaultMQAdminExtImpl`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import attrs

from rocketpy.client.brokers import Brokers
from rocketpy.client.client_id import build_client_id
from rocketpy.client.instance import ClientInstance
from rocketpy.client.lifetime import Lifetime, Open
from rocketpy.client.options import ClientOptions, ProducerOptions
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config.properties import as_mapping, format_mapping
from rocketpy.errors import BrokerError, ClientError, RocketError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import retry_topic
from rocketpy.remoting.bodies.connection import ConsumerConnection, ProducerConnection, ProducerTableInfo
from rocketpy.remoting.bodies.consume_stats import ConsumeStats, ConsumeStatsList
from rocketpy.remoting.bodies.group import GroupList, SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.remoting.bodies.kv import KVTable
from rocketpy.remoting.bodies.offset import ResetOffsetBody
from rocketpy.remoting.bodies.route import ClusterInfo, TopicRouteData
from rocketpy.remoting.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpy.remoting.bodies.stats import BrokerStatsData
from rocketpy.remoting.bodies.topic import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.broker import GetConsumeStatsInBrokerHeader, ViewBrokerStatsDataRequestHeader
from rocketpy.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketpy.remoting.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rocketpy.remoting.headers.namesrv import (
    AddWritePermOfBrokerResponseHeader,
    BrokerNameRequestHeader,
    DeleteTopicInNamesrvRequestHeader,
    GetKVConfigResponseHeader,
    KVConfigRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocketpy.remoting.headers.topic import CreateTopicRequestHeader, TopicRequestHeader
from rocketpy.remoting.schema import Header

from .errors import PartialFailure

MASTER_ID = 0
TIMEOUT_S = 5.0
LONG_TIMEOUT_S = 15.0  # consume statistics, running info, direct consumption
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
TO_THE_END = -1  # a timestamp that means the end of the queue


class Admin:
    """An operator's client. Brokers never see it in a group: it sends no heartbeats.

    Args:
        name_servers: `host:port;host:port`; the environment's NAMESRV_ADDR when left out.
        timeout: seconds for ordinary requests.
    """

    def __init__(
        self,
        *,
        timeout: float = TIMEOUT_S,
        options: ClientOptions | None = None,
        lifetime: Lifetime | None = None,
        **settings: Any,
    ) -> None:
        self.options = attrs.evolve(options, **settings) if options else ProducerOptions(**settings)
        self.timeout_s = timeout
        self.client_id = build_client_id(self.options)
        self._lifetime = lifetime or Lifetime(self.options, self.client_id)
        self._open: Open | None = None

    async def __aenter__(self) -> Self:
        self._open = await self._lifetime.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._open is not None
        opened, self._open = self._open, None
        return await opened.close(kind, error, trace)

    @property
    def opened(self) -> Open:
        if self._open is None:
            raise ClientError("the admin client is not running: use it within `async with`")
        return self._open

    @property
    def instance(self) -> ClientInstance:
        return self.opened.instance

    @property
    def brokers(self) -> Brokers:
        """Requests about single queues."""
        return Brokers(self.instance)

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes | None = None,
        *,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """A successful answer of one server. Raises BrokerError, TransportError."""
        return await self.instance.api.ask(address, code, header, body, timeout_s=timeout_s or self.timeout_s)

    async def ask_name_server(self, code: RequestCode, header: Header | None = None) -> RemotingCommand:
        return await self.instance.api.ask_name_server(code, header, timeout_s=self.timeout_s)

    async def each_name_server(
        self, code: RequestCode, header: Header | None = None, body: bytes | None = None
    ) -> dict[str, RemotingCommand]:
        """Answers by address. One that fails does not stop the others.

        Raises:
            PartialFailure: some failed. RocketError: all did.
        """
        addresses = self.options.name_server_list
        if not addresses:
            raise ClientError("no name server address: pass -n or set NAMESRV_ADDR")
        return await each(addresses, lambda address: self.ask(address, code, header, body))

    # --- clusters and routes ------------------------------------------------------------------------------------------

    async def cluster_info(self) -> ClusterInfo:
        return ClusterInfo.decode((await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)).body)

    async def addresses_of(self, cluster: str, *, masters_only: bool = True) -> list[str]:
        """Addresses of the brokers of a cluster. Raises ClientError when there is none."""
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
            raise ClientError(f"cluster {cluster} has no broker; clusters are: {known}")
        return found

    async def route(self, topic: str) -> TopicRouteData:
        """The topic's route; its brokers are known from then on. Raises BrokerError TOPIC_NOT_EXIST."""
        if not await self.instance.update_route(topic):
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"no route for topic {topic}")
        return self.instance.routes[topic]

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

    # --- topics -------------------------------------------------------------------------------------------------------

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
        """From the cluster's masters, then from every name server."""
        masters = await self.addresses_of(cluster)
        header = TopicRequestHeader(topic=topic)
        await each(masters, lambda address: self.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header))
        await self.each_name_server(
            RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrvRequestHeader(topic=topic)
        )

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Offsets of every queue, of all brokers that have the topic."""
        merged: dict[MessageQueue, TopicOffset] = {}
        for address in (await self.masters_of_topic(topic)).values():
            response = await self.ask(address, RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic=topic))
            merged |= TopicStatsTable.decode(response.body).offset_table
        return merged

    async def who_consumes(self, topic: str) -> list[str]:
        """Groups of the topic, of all its brokers (Java asks the first only)."""
        groups: set[str] = set()
        for address in (await self.masters_of_topic(topic)).values():
            response = await self.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader(topic=topic))
            groups.update(GroupList.decode(response.body).group_list)
        return sorted(groups)

    # --- groups -------------------------------------------------------------------------------------------------------

    async def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        response = await self.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupWrapper.decode(response.body).subscription_group_table

    async def create_group(self, address: str, config: SubscriptionGroupConfig) -> None:
        await self.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())

    async def delete_group(self, address: str, group: str, *, remove_offset: bool) -> None:
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, remove_offset=remove_offset)
        await self.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Offsets of a group on every broker that has its retry topic, merged.

        Raises:
            BrokerError: TOPIC_NOT_EXIST: the group has no retry topic: it never was online, or broadcasts.
        """
        merged = ConsumeStats()
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        for address in (await self.masters_of_topic(retry_topic(group))).values():
            response = await self.ask(address, RequestCode.GET_CONSUME_STATS, header, timeout_s=self.timeout_s * 3)
            stats = ConsumeStats.decode(response.body)
            merged.offset_table.update(stats.offset_table)
            merged.consume_tps += stats.consume_tps
        return merged

    async def consumer_connection(self, group: str, address: str | None = None) -> ConsumerConnection:
        """Members and subscriptions of a group, of all brokers of its retry topic, or of one.

        Raises:
            BrokerError: CONSUMER_NOT_ONLINE.
        """
        addresses = [address] if address else list((await self.masters_of_topic(retry_topic(group))).values())
        merged: ConsumerConnection | None = None
        failure: RocketError | None = None
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        for each_address in addresses:
            try:
                response = await self.ask(each_address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            except RocketError as error:
                failure = error
                continue
            found = ConsumerConnection.decode(response.body)
            if merged is None:
                merged = found
            else:
                known = {connection.client_id for connection in merged.connection_set}
                merged.connection_set += [c for c in found.connection_set if c.client_id not in known]
                merged.subscription_table = found.subscription_table | merged.subscription_table
        if merged is None or not merged.connection_set:
            raise failure or BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, f"group {group} has no member online")
        return merged

    async def producer_connection(self, group: str, topic: str) -> ProducerConnection:
        """Members of a producer group at the brokers of a topic, merged."""
        merged = ProducerConnection()
        failure: RocketError | None = None
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        for address in (await self.masters_of_topic(topic)).values():
            try:
                response = await self.ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
            except RocketError as error:
                failure = error
                continue
            known = {connection.client_id for connection in merged.connection_set}
            found = ProducerConnection.decode(response.body).connection_set
            merged.connection_set += [c for c in found if c.client_id not in known]
        if failure is not None and not merged.connection_set:
            raise failure
        return merged

    async def all_producers(self, address: str) -> ProducerTableInfo:
        return ProducerTableInfo.decode((await self.ask(address, RequestCode.GET_ALL_PRODUCER_INFO)).body)

    async def running_info(
        self, group: str, client_id: str, *, with_stack: bool = False, address: str | None = None
    ) -> ConsumerRunningInfo:
        """A member's own account of itself, relayed by a broker that knows it."""
        addresses = [address] if address else list((await self.masters_of_topic(retry_topic(group))).values())
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=with_stack
        )
        failure: RocketError | None = None
        for each_address in addresses:
            try:
                response = await self.ask(
                    each_address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_s=self.timeout_s * 3
                )
                return ConsumerRunningInfo.decode(response.body)
            except RocketError as error:
                failure = error
        raise failure or ClientError(f"no broker knows group {group}")

    async def consume_directly(
        self, address: str, group: str, client_id: str, offset_msg_id: str
    ) -> ConsumeMessageDirectlyResult:
        """Have one member consume one message now, outside of any offset."""
        header = ConsumeMessageDirectlyRequestHeader(consumer_group=group, client_id=client_id, msg_id=offset_msg_id)
        response = await self.ask(
            address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout_s=self.timeout_s * 3
        )
        return ConsumeMessageDirectlyResult.decode(response.body)

    async def broker_consume_stats(self, address: str, *, is_order: bool, timeout_s: float) -> ConsumeStatsList:
        header = GetConsumeStatsInBrokerHeader(is_order=is_order)
        response = await self.ask(address, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout_s=timeout_s)
        return ConsumeStatsList.decode(response.body)

    async def reset_offset(
        self, address: str, group: str, topic: str, timestamp_ms: int, *, force: bool
    ) -> dict[MessageQueue, int]:
        """Have a broker move an online group. Raises BrokerError CONSUMER_NOT_ONLINE when it is not."""
        header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp_ms=timestamp_ms, is_force=force)
        response = await self.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return ResetOffsetBody.decode(response.body).offset_table

    # --- brokers ------------------------------------------------------------------------------------------------------

    async def runtime_info(self, address: str) -> dict[str, str]:
        return KVTable.decode((await self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)).body).table

    async def broker_stats(self, address: str, name: str, key: str) -> BrokerStatsData:
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        return BrokerStatsData.decode((await self.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)).body)

    async def broker_config(self, address: str) -> dict[str, str]:
        return read_properties((await self.ask(address, RequestCode.GET_BROKER_CONFIG)).body)

    async def update_broker_config(self, address: str, changes: Mapping[str, str]) -> None:
        await self.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=format_mapping(changes).encode())

    # --- name servers -------------------------------------------------------------------------------------------------

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        await self.each_name_server(RequestCode.PUT_KV_CONFIG, header)

    async def kv(self, namespace: str, key: str) -> str | None:
        """The value, None when there is none. Any other failure is raised: it must not read as "no value"."""
        header = KVConfigRequestHeader(namespace=namespace, key=key)
        try:
            response = await self.ask_name_server(RequestCode.GET_KV_CONFIG, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return GetKVConfigResponseHeader.of(response).value

    async def delete_kv(self, namespace: str, key: str) -> None:
        header = KVConfigRequestHeader(namespace=namespace, key=key)
        await self.each_name_server(RequestCode.DELETE_KV_CONFIG, header)

    async def namesrv_config(self) -> dict[str, dict[str, str]]:
        answers = await self.each_name_server(RequestCode.GET_NAMESRV_CONFIG)
        return {address: read_properties(answer.body) for address, answer in answers.items()}

    async def update_namesrv_config(self, changes: Mapping[str, str]) -> None:
        await self.each_name_server(RequestCode.UPDATE_NAMESRV_CONFIG, body=format_mapping(changes).encode())

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Take the write permission of a broker's topics out of the routes. Returns: topics per name server."""
        header = BrokerNameRequestHeader(broker_name=broker_name)
        answers = await self.each_name_server(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return {
            address: WipeWritePermOfBrokerResponseHeader.of(answer).wipe_topic_count
            for address, answer in answers.items()
        }

    async def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Undo `wipe_write_perm`: permissions become 6, whatever they were."""
        header = BrokerNameRequestHeader(broker_name=broker_name)
        answers = await self.each_name_server(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return {
            address: AddWritePermOfBrokerResponseHeader.of(answer).add_topic_count
            for address, answer in answers.items()
        }


async def each(
    addresses: Iterable[str], ask: Callable[[str], Awaitable[RemotingCommand]]
) -> dict[str, RemotingCommand]:
    """Ask every address, one after the other; failures do not stop the round.

    Raises:
        PartialFailure: some failed. The first RocketError: all did.
    """
    answers: dict[str, RemotingCommand] = {}
    failures: dict[str, RocketError] = {}
    for address in addresses:
        try:
            answers[address] = await ask(address)
        except RocketError as error:
            failures[address] = error
    if failures and answers:
        raise PartialFailure(failures, sorted(answers))
    if failures:
        raise next(iter(failures.values()))
    return answers



def read_properties(body: bytes | None) -> dict[str, str]:
    """Java properties text as a mapping."""
    return as_mapping((body or b"").decode("utf-8", "replace"))
