"""Groups and their members for admins: 200, 207, 201, 203, 204, 328, and 352 of 5.x; SQL92 filters for slaves: 30002.

Source: RocketMQ 4.9 `AdminBrokerProcessor`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.message.names import group_fault
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.group import SubscriptionGroupConfig
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllConsumerFilterHeader,
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    GroupRequestHeader,
)
from rocketpy.remoting.json_writer import Members
from rocketpy.transport.steps import encoded_body, finished, read_body

from .. import replies
from ..managers.client_channel import ClientChannelInfo
from ..managers.table_followers import TABLE_VERSION, version_text
from ..services import BrokerServices
from .admin_topics import QUEUE_NUMS_MAX
from .table import TableProcessor


class AdminGroupProcessor(TableProcessor):
    """Creates, lists and deletes consumer groups."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__(
            {
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._update,
                RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all,
                RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._one,
                RequestCode.GET_ALL_CONSUMER_FILTER: self._all_filters,
                RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumers,
                RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producers,
                RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
            }
        )
        self._services = services

    async def _update(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        self._check_changeable()
        config = await read_body(SubscriptionGroupConfig, request.body)
        fault = group_fault(config.group_name)
        if fault is not None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, fault)
        if not 0 <= config.retry_queue_nums <= QUEUE_NUMS_MAX:
            remark = f"a retry topic has 0 to {QUEUE_NUMS_MAX} queues, not {config.retry_queue_nums}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        self._services.groups.update(config)
        await self._services.groups.file.save()
        return RemotingCommand.response()

    async def _delete(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        self._check_changeable()
        header = DeleteSubscriptionGroupRequestHeader.of(request)
        services = self._services
        if services.groups.delete(header.group_name):
            await services.groups.file.save()
        if header.remove_offset:
            await services.offsets.remove_group(header.group_name)
            await services.offsets.file.save()
        if services.settings.broker.auto_delete_unused_stats:
            await finished(services.stats.forget_group(header.group_name))
        return RemotingCommand.response()

    async def _all(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """All groups, or `{}` if the slave has this version."""
        services = self._services
        fields = {TABLE_VERSION: version_text(services.groups.data_version)}
        has_version = services.followers.has_version(request, channel)
        body = await encoded_body({} if has_version else services.groups.document())
        return RemotingCommand.response(body=body, ext_fields=fields)

    async def _one(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        name = GroupRequestHeader.of(request).group
        config = self._services.groups.select(name)
        if config is None:
            remark = f"subscription group [{name}] does not exist"
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return RemotingCommand.response(body=config.encode())

    async def _all_filters(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """All SQL92 filters, or `{}` if the slave has this version."""
        filters = self._services.filters
        header = GetAllConsumerFilterHeader(version=filters.version)
        known = GetAllConsumerFilterHeader.of(request).version
        table: object = {} if known == header.version else filters.document()
        return RemotingCommand.response(header=header, body=await encoded_body(table))

    async def _consumers(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        group = GetConsumerConnectionListRequestHeader.of(request).consumer_group
        entry = self._services.consumers.group(group)
        if entry is None:
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        body = {
            "connectionSet": map(_connection, list(entry.channels.values())),
            "consumeFromWhere": entry.consume_from_where,
            "consumeType": entry.consume_type,
            "messageModel": entry.message_model,
            "subscriptionTable": entry.subscriptions,
        }
        if entry.is_differing:  # clients of other versions do not read it
            body["differingSubscriptions"] = [
                {"clientId": entry.client_id_of(view.connection), "members": view.members, "text": view.text}
                for view in entry.views.shown
            ]
        return RemotingCommand.response(body=await encoded_body(body))

    async def _producers(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        group = GetProducerConnectionListRequestHeader.of(request).producer_group
        members = self._services.producers.members(group)
        if not members:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return RemotingCommand.response(body=await encoded_body({"connectionSet": map(_connection, members)}))

    async def _all_producers(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        producers = self._services.producers

        def groups() -> Iterator[tuple[str, object]]:
            for group in producers.group_names:
                yield group, map(_producer, producers.members(group))

        return RemotingCommand.response(body=await encoded_body({"data": Members(groups)}))

    def _check_changeable(self) -> None:
        if self._services.settings.is_slave:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, replies.CHANGES_REFUSED_BY_SLAVE)


def _connection(info: ClientChannelInfo) -> dict[str, Any]:
    return {
        "clientAddr": str(info.channel.peer),
        "clientId": info.client_id,
        "language": info.language,
        "version": info.version,
    }


def _producer(info: ClientChannelInfo) -> dict[str, Any]:
    return {
        "clientId": info.client_id,
        "language": info.language,
        "lastUpdateTimestamp": info.last_heartbeat.timestamp_ms,
        "remoteIP": f"/{info.channel.peer}",
        "version": info.version,
    }
