"""Processor of the name server: one method per request code.

Source: RocketMQ 4.9 `DefaultRequestProcessor`. Different here: a code that nobody knows is answered
REQUEST_CODE_NOT_SUPPORTED, where 4.9 keeps silent and the client waits for its timeout.
"""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping

import trio

from rocketpy.codes import MQVersion, RequestCode, ResponseCode
from rocketpy.config import Advertised, NamesrvSettings, properties, update_namesrv
from rocketpy.config.update import change_file
from rocketpy.errors import RequestRefused
from rocketpy.logs import LogLimit, and_more
from rocketpy.message.names import text_fault
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.admin_guard import AdminGuard
from rocketpy.remoting.answers import not_supported
from rocketpy.remoting.bodies.register import RegisterBrokerBody
from rocketpy.remoting.bodies.route import KVTable, TopicRouteData
from rocketpy.remoting.bodies.schema import Body
from rocketpy.remoting.bodies.topic import DataVersion, TopicList
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fastjson import dumps
from rocketpy.remoting.headers import namesrv as headers
from rocketpy.remoting.limits import require
from rocketpy.transport.steps import encoded_body, finished

from .admission import Admission
from .kv_config import ORDER_TOPIC_CONFIG, KVConfigManager
from .registration import MasterInfo, Registration, Viewer
from .registration_gate import NO_CONNECTION, RegistrationGate
from .route_info import RouteInfoManager

logger = logging.getLogger(__name__)

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
DATA_VERSION_BYTES_MAX = 4096
CRC_MASK = 0x7FFFFFFF  # Java drops the sign bit

Method = Callable[[RemotingCommand, Channel], Awaitable[RemotingCommand]]


class NamesrvProcessor:
    """Serves every code; one instance per name server.

    Args:
        clock_ms: milliseconds that only grow; for the age of registrations.
    """

    def __init__(
        self, settings: NamesrvSettings, routes: RouteInfoManager, kv: KVConfigManager, clock_ms: Callable[[], int]
    ) -> None:
        self.settings = settings
        self.requests: Counter[str] = Counter()  # by name of the code, for metrics
        self._routes = routes
        self._kv = kv
        self._clock_ms = clock_ms
        self._updating = trio.Lock()
        self._listing = trio.Semaphore(1)  # each list in work holds the names of all topics
        self._gate = RegistrationGate()
        self._refused_masters = LogLimit()
        self.admission = Admission(routes, lambda: self.settings.rocketpy)
        self._guard = AdminGuard.of(
            settings.rocketpy.admin_addresses,
            (settings.server.bind_address,),
            trusts_own=settings.rocketpy.admin_trusts_loopback,
        )
        self._methods: Mapping[int, Method] = {
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_list,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route_info,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._get_unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._get_unit_sub_ununit_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        """The answer to `request`; errors of ours become answers in the transport."""
        method = self._methods.get(request.code)
        if method is None:
            self.requests["unknown"] += 1
            return not_supported(request.code)
        self.requests[request.name] += 1
        self._guard.check(request.code, channel.peer.host)
        return await method(request, channel)

    # --- key and value ------------------------------------------------------------------------------------------------

    async def _put_kv_config(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        if request.ext_field("namespace") is None or request.ext_field("key") is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        header = headers.PutKVConfigRequestHeader.of(request)
        require(text_fault("namespace", header.namespace) or text_fault("key", header.key))
        await self._kv.put(header.namespace, header.key, header.value)
        return RemotingCommand.response()

    async def _get_kv_config(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = headers.KVConfigRequestHeader.of(request)
        value = self._kv.value(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            empty = headers.GetKVConfigResponseHeader()
            return RemotingCommand.response(ResponseCode.QUERY_NOT_FOUND, remark, empty)
        return RemotingCommand.response(header=headers.GetKVConfigResponseHeader(value=value))

    async def _delete_kv_config(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = headers.KVConfigRequestHeader.of(request)
        await self._kv.delete(header.namespace, header.key)
        return RemotingCommand.response()

    async def _get_kv_list(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        namespace = headers.GetKVListByNamespaceRequestHeader.of(request).namespace
        table = self._kv.namespace(namespace)
        if table is None:
            remark = f"No config item, Namespace: {namespace}"
            return RemotingCommand.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return RemotingCommand.response(body=await encoded_body(KVTable(table=dict(table))))

    # --- brokers ------------------------------------------------------------------------------------------------------

    async def _register_broker(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = headers.RegisterBrokerRequestHeader.of(request)
        if header.body_crc32 and header.body_crc32 != zlib.crc32(request.body or b"") & CRC_MASK:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        async with self._gate.turn(channel.connection, len(request.body or b"")):
            master = await self._enter(header, request, channel)
        order = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return RemotingCommand.response(
            header=headers.RegisterBrokerResponseHeader(
                ha_server_addr=master.ha_server_addr, master_addr=master.master_addr
            ),
            body=None if order is None else await encoded_body(KVTable(table=dict(order))),
        )

    async def _enter(
        self, header: headers.RegisterBrokerRequestHeader, request: RemotingCommand, channel: Channel
    ) -> MasterInfo:
        """Read and apply a registration. It is a separate function so that its topics are freed before the next one."""
        work = RegisterBrokerBody.reading(request.body, compressed=header.compressed, version=request.version)
        body = await finished(work)
        registration = _registration(header, body, channel, says_filter_servers=request.version >= MQVersion.V3_0_11)
        await finished(self._routes.forgetting())  # removed topics must not count
        await finished(self.admission.checking(registration))
        try:
            return await finished(self._routes.registering(registration, channel.connection, self._clock_ms()))
        except RequestRefused as exc:
            self._tell_of_refused_master(registration, exc.remark)
            raise

    def _tell_of_refused_master(self, registration: Registration, remark: str) -> None:
        """Log both addresses: an epoch that nobody has was registered by somebody else than the group."""
        if told := self._refused_masters.take():
            logger.warning(
                "refused a master, from %s: %s, registered from %s. If that is not a broker of the group, close this "
                "port to its host%s",
                registration.peer,
                remark,
                self._routes.master_peer(registration.broker_name),
                and_more(told),
            )

    async def forget_gone_brokers(self) -> None:
        """Remove the topics of removed brokers; a duty of the server."""
        if self._routes.has_gone_brokers:
            async with self._gate.turn(NO_CONNECTION, 0):
                await finished(self._routes.forgetting())

    async def _unregister_broker(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = headers.BrokerRequestHeader.of(request)
        self._routes.unregister(header.broker_addr)
        return RemotingCommand.response()

    async def _query_data_version(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = headers.BrokerRequestHeader.of(request)
        asked = DataVersion.decode_request(request.body or b"{}", DATA_VERSION_BYTES_MAX)
        changed, known = self._routes.query_data_version(
            header.broker_addr, asked, channel.connection, self._clock_ms()
        )
        return RemotingCommand.response(
            header=headers.QueryDataVersionResponseHeader(changed=changed),
            body=None if known is None else known.encode(),
        )

    async def _wipe_write_perm(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        count = await finished(self._routes.wipe_write_perm(headers.BrokerNameRequestHeader.of(request).broker_name))
        return RemotingCommand.response(header=headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    async def _add_write_perm(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        count = await finished(self._routes.add_write_perm(headers.BrokerNameRequestHeader.of(request).broker_name))
        return RemotingCommand.response(header=headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count))

    async def _get_cluster_info(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return RemotingCommand.response(body=await encoded_body(self._routes.cluster_info(Viewer.of(channel))))

    # --- topics -------------------------------------------------------------------------------------------------------

    async def _get_route_info(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """The route of a topic; to clients before 4.9.4 with bare numbers as keys, as fastjson wrote them for them."""
        header = headers.GetRouteInfoRequestHeader.of(request)
        route = self._routes.route(header.topic, Viewer.of(channel))
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}{FAQ}"
            return RemotingCommand.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self.settings.namesrv.order_message_enable:
            route.order_topic_conf = self._kv.value(ORDER_TOPIC_CONFIG, header.topic)
        standard = request.version >= MQVersion.V4_9_4 or bool(header.accept_standard_json_only)
        return RemotingCommand.response(body=route.encode() if standard else encode_with_bare_ids(route))

    async def _get_topics(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return await self._listed(self._routes.topics())

    async def _delete_topic(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = headers.DeleteTopicInNamesrvRequestHeader.of(request)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return RemotingCommand.response()

    async def _get_topics_by_cluster(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        cluster = headers.GetTopicsByClusterRequestHeader.of(request).cluster
        return await self._listed(self._routes.topics_of_cluster(cluster))

    async def _get_system_topics(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        names, addr = self._routes.system_topics(Viewer.of(channel))
        return await _topic_list(names, addr)

    async def _get_unit_topics(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return await self._listed(self._routes.unit_topics())

    async def _get_unit_sub_topics(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return await self._listed(self._routes.unit_sub_topics())

    async def _get_unit_sub_ununit_topics(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return await self._listed(self._routes.unit_sub_ununit_topics())

    async def _listed(self, work: Generator[None, None, list[str]]) -> RemotingCommand:
        """Answer with the topics that `work` finds; one such request at a time."""
        async with self._listing:
            return await _topic_list(await finished(work))

    # --- configuration ------------------------------------------------------------------------------------------------

    async def _update_config(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """Change settings, in the file first and then here."""
        try:
            changes = properties.read_changes(request.body)
        except properties.PropertiesError:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
        async with self._updating:
            update = update_namesrv(self.settings, changes)
            await trio.to_thread.run_sync(change_file, self.settings.update_path, update.changes)
            self.settings = update.settings
        return RemotingCommand.response()

    async def _get_config(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return RemotingCommand.response(body=self.settings.to_properties().encode())


def encode_with_bare_ids(route: TopicRouteData) -> bytes:
    """A route as 4.9 writes it for clients before 4.9.4: broker ids without quotes, `{0:"10.0.0.1:10911"}`."""
    members = {name: member for name, member in route.wire_members() if member is not None}
    members["brokerDatas"] = [dict(Body.wire_members(broker)) for broker in route.broker_datas]
    return dumps(members)


async def _topic_list(topics: list[str], broker_addr: str | None = None) -> RemotingCommand:
    body = await encoded_body(TopicList(topic_list=topics, broker_addr=broker_addr))
    return RemotingCommand.response(body=body)


def _registration(
    header: headers.RegisterBrokerRequestHeader,
    body: RegisterBrokerBody,
    channel: Channel,
    *,
    says_filter_servers: bool,
) -> Registration:
    """Take the fields of a request. Raises: RequestRefused: the advertised addresses cannot be read."""
    return Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_addr=header.broker_addr,
        broker_id=header.broker_id,
        ha_server_addr=header.ha_server_addr,
        data_version=body.topic_config_serialize_wrapper.data_version,
        topics=body.topic_config_serialize_wrapper.topic_config_table,
        filter_servers=tuple(body.filter_server_list) if says_filter_servers else None,
        master_epoch=header.master_epoch,
        peer=str(channel.peer),
        viewer=Viewer.of(channel),
        advertised=_advertised("advertisedAddrs", header.advertised_addrs),
        ha_advertised=_advertised("advertisedHaAddrs", header.advertised_ha_addrs),
    )


def _advertised(field: str, text: str | None) -> Advertised | None:
    try:
        return Advertised.parse(text, 0) if text else None
    except ValueError as exc:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{field}: {exc}") from None
