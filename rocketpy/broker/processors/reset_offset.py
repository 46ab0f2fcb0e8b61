"""Reset and query of offsets in clients: request 222 is pushed to them as 220, request 223 as 221.

The broker does not change its own table: clients drop their queues, store the new offsets and commit them.

Source: RocketMQ 4.9 `Broker2Client`.
"""

from __future__ import annotations

from functools import partial

import trio

from rocketpy.codes import LanguageCode, MQVersion, RequestCode, ResponseCode, version_name
from rocketpy.errors import BodyInvalid, RequestRefused, TransportError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel, Detached
from rocketpy.remoting.bodies.offset import GetConsumerStatusBody
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from rocketpy.transport.steps import Steps, encoded_body

from ..managers.client_channel import ClientChannelInfo
from ..services import BrokerServices
from .table import TableProcessor

CLIENT_TIMEOUT_S = 5.0
QUEUES_PER_STEP = 20  # each is a search by time
MEMBERS_AT_ONCE = 32
MEMBERS_TIMEOUT_S = 15.0  # for all members of a group; later answers are ignored
ANSWER_BYTES_MAX = 1024 * 1024  # largest answer of one member
TO_THE_END = -1


class ResetOffsetProcessor(TableProcessor):
    """Has the members of a group set their offsets to a time, or tell them."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__(
            {
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._status,
            }
        )
        self._services = services
        self._readers = trio.CapacityLimiter(1)  # answers are parsed in a thread, because each may take a second

    async def _reset(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = ResetOffsetRequestHeader.of(request)
        config = self._services.topics.select(header.topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        targets = await self._targets(config, header)
        members = self._members(header.group)
        for member in members:
            if member.version < MQVersion.V3_0_7_SNAPSHOT:
                remark = f"the client does not support this feature. version={version_name(member.version)}"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        if not members:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp_ms}"
            )
            raise RequestRefused(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        table = await encoded_body({"offsetTable": targets})
        pushed = _as_list(targets) if request.language is LanguageCode.CPP else table
        for member in members:
            member.channel.push(
                RemotingCommand.oneway(
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                    ResetOffsetRequestHeader(
                        topic=header.topic,
                        group=header.group,
                        timestamp_ms=header.timestamp_ms,
                        is_force=header.is_force,
                    ),
                    pushed,
                )
            )
        return RemotingCommand.response(body=table)

    async def _targets(self, config: TopicConfig, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        """The new offset of each queue; without `force` never a larger one than now."""
        services, topic = self._services, config.topic_name
        targets = {}
        steps = Steps(QUEUES_PER_STEP)
        for queue_id in range(config.write_queue_nums):
            await steps.did()
            current = services.offsets.query(header.group, topic, queue_id)
            if current < 0:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
            if header.timestamp_ms == TO_THE_END:
                target = services.store.max_offset(topic, queue_id)
            else:
                target = services.store.offset_since(topic, queue_id, header.timestamp_ms)
            target = max(0, target)
            queue = MessageQueue(topic, services.settings.broker.broker_name, queue_id)
            targets[queue] = target if header.is_force or target < current else current
        return targets

    async def _status(self, request: RemotingCommand, channel: Channel) -> Detached:
        """The offsets that each member (or the one given) reports; members that do not answer are left out."""
        header = GetConsumerStatusRequestHeader.of(request)
        members = [
            member
            for member in self._members(header.group)
            if not header.client_addr or member.client_id == header.client_addr
        ]
        if not self._members(header.group):
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        ask = partial(self._ask_members, members, header)
        return Detached(ask, ("status", header.group), MEMBERS_TIMEOUT_S + 1.0, at_once_max=4)

    async def _ask_members(
        self, members: list[ClientChannelInfo], header: GetConsumerStatusRequestHeader
    ) -> RemotingCommand:
        table: dict[str, dict[MessageQueue, int]] = {}
        places = trio.Semaphore(MEMBERS_AT_ONCE)
        with trio.move_on_after(MEMBERS_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                for member in members:
                    await places.acquire()
                    nursery.start_soon(self._ask_in_turn, places, member, header, table)
        return RemotingCommand.response(body=await encoded_body({"consumerTable": table}))

    async def _ask_in_turn(
        self,
        places: trio.Semaphore,
        member: ClientChannelInfo,
        header: GetConsumerStatusRequestHeader,
        table: dict[str, dict[MessageQueue, int]],
    ) -> None:
        try:
            await self._ask_status(member, header, table)
        finally:
            places.release()

    async def _ask_status(
        self,
        member: ClientChannelInfo,
        header: GetConsumerStatusRequestHeader,
        table: dict[str, dict[MessageQueue, int]],
    ) -> None:
        question = RemotingCommand.request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            GetConsumerStatusRequestHeader(topic=header.topic, group=header.group),
        )
        try:
            answer = await member.channel.invoke(question, CLIENT_TIMEOUT_S)
        except TransportError:
            return
        if answer.code == ResponseCode.SUCCESS and answer.body and len(answer.body) <= ANSWER_BYTES_MAX:
            try:
                read = await trio.to_thread.run_sync(GetConsumerStatusBody.decode, answer.body, limiter=self._readers)
                table[member.client_id] = read.message_queue_table
            except BodyInvalid:
                return  # an invalid answer counts as none

    def _members(self, group: str) -> list[ClientChannelInfo]:
        entry = self._services.consumers.group(group)
        return list(entry.channels.values()) if entry else []


def _as_list(targets: dict[MessageQueue, int]) -> bytes:
    """The format of the C++ client."""
    rows = [
        {"brokerName": queue.broker_name, "offset": offset, "queueId": queue.queue_id, "topic": queue.topic}
        for queue, offset in targets.items()
    ]
    return fastjson.dumps({"offsetTable": rows})
