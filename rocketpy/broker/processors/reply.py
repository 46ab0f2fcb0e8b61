"""Replies to requests of clients (324, 325): each is pushed to the client that waits for it (326), and stored.

A requester is a producer. Its client id is in the properties of its message, and the consumer that answers copies it
into the reply. The client may be slow, so the push waits outside of its pool (docs/adr/0070), and at most
PUSHES_PER_CLIENT are sent to a client at once: a burst of replies waits here for its turn.

Source: RocketMQ 4.9 `ReplyMessageProcessor`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused, TransportError
from rocketpy.faults import printable
from rocketpy.logs import LogLimit, and_more
from rocketpy.message.names import reply_topic
from rocketpy.message.properties import PROPERTIES_SIZE_MAX, PUSH_REPLY_TIME, REPLY_TO_CLIENT, WAIT, without_property
from rocketpy.remoting.abc import Channel, Detached
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import MessageToPut, SendRequest
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.headers.client import ReplyMessageRequestHeader
from rocketpy.remoting.headers.send import SendMessageRequestHeader, SendMessageResponseHeader, read_send_header

from .. import replies
from ..property_edits import text_property, with_values
from ..replies import send_reply_fields
from ..sending.slow_send import Refusal, Target
from ..services import BrokerServices
from .table import TableProcessor

CLIENT_TIMEOUT_S = 10.0
PUSHES_PER_CLIENT = 32  # to one client at once
REPLIES_PER_CLIENT = 512  # for one client, or from one connection: those that wait for their turn included

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class _Turns:
    """The turns of one client: as many as may be pushed at once."""

    slots: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(PUSHES_PER_CLIENT))
    users: int = 0


class ReplyProcessor(TableProcessor):
    """Stores replies and pushes each to the connection of its requester.

    Args:
        target: the checks of every send (SlowSend.target).
    """

    def __init__(self, services: BrokerServices, target: Callable[[SendRequest], Refusal | Target]) -> None:
        super().__init__(
            {
                RequestCode.SEND_REPLY_MESSAGE: self._reply,
                RequestCode.SEND_REPLY_MESSAGE_V2: self._reply,
            }
        )
        self._services = services
        self._target = target
        self._turns: dict[int, _Turns] = {}  # by connection of the requester, while replies for it are under way
        self._log = LogLimit()

    async def _reply(self, request: RemotingCommand, channel: Channel) -> Detached:
        header = read_send_header(request)
        self._check_topic(header.topic)
        reply = self._send_request(request, header, channel)
        target = self._target(reply)
        await self._services.topics.file.save()  # it may be a new one
        if isinstance(target, Refusal):
            raise RequestRefused(target.code, target.remark)
        limit = self._services.settings.store.max_message_size
        if len(reply.body) > limit or len(reply.properties) > PROPERTIES_SIZE_MAX or b"\0" in reply.properties:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, replies.store_failure(ResponseCode.MESSAGE_ILLEGAL, limit)
            )
        client_id = text_property(reply.properties, REPLY_TO_CLIENT)
        if client_id is None:
            remark = f"reply message properties[{REPLY_TO_CLIENT}] is null"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        client = self._services.producers.find_channel(client_id)
        if client is None:
            remark = f"push reply message fail, channel of <{client_id}> not found."
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        return Detached(
            partial(self._finish, reply, header, target, client, client_id),
            client.connection,
            timeout_s=2 * CLIENT_TIMEOUT_S,
            at_once_max=REPLIES_PER_CLIENT,
            asker_max=REPLIES_PER_CLIENT,
        )

    def _check_topic(self, topic: str) -> None:
        """Refuse replies for other topics, unless aclStrict is off: else the right to send to any topic would be the
        right to push replies to all clients. Clients of the reference send each to the reply topic of the cluster, with
        the namespace of the producer before it."""
        access, expected = self._services.access, reply_topic(self._services.settings.broker.broker_cluster_name)
        is_expected = topic == expected or topic.endswith(f"%{expected}")
        if access is not None and access.is_strict and not is_expected:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"replies are for topic {expected}, not {topic}")

    def _send_request(
        self, request: RemotingCommand, header: SendMessageRequestHeader, channel: Channel
    ) -> SendRequest:
        properties = (header.properties or "").encode("utf-8", "replace")
        return SendRequest(
            channel=channel,
            opaque=request.opaque,
            code=request.code,
            version=int(request.version),
            received_ms=self._services.clock.monotonic_ms(),
            is_oneway=request.is_oneway,
            is_rocketmq=request.serialize_type is SerializeType.ROCKETMQ,
            is_batch=False,
            wait_store=(text_property(properties, WAIT) or "true").lower() != "false",
            has_wait=text_property(properties, WAIT) is not None,
            topic=header.topic,
            producer_group=header.producer_group,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp_ms=header.born_timestamp_ms,
            message_flag=header.flag,
            reconsume_times=header.reconsume_times or 0,
            max_reconsume_times=header.max_reconsume_times,
            unit_mode=header.unit_mode,
            properties=without_property(properties, WAIT.encode()),
            body=request.body or b"",
            raw=b"",
        )

    async def _finish(
        self, reply: SendRequest, header: SendMessageRequestHeader, target: Target, client: Channel, client_id: str
    ) -> RemotingCommand:
        """Push, then store: the client waits for the push. The outcome of the push is the answer, as in the
        reference."""
        fault = await self._push(reply, header, target, client, client_id)
        message_id, queue_offset = "0", 0
        if self._services.settings.broker.store_reply_message_enable:
            result = await self._services.fast_path.put(_stored(reply, target))
            if result.is_stored:
                message_id, queue_offset = result.message_id, result.queue_offset
            else:
                self._warn("store", f"could not store a reply in topic {reply.topic}: code {result.code}")
        fields = send_reply_fields(self._services.settings.broker)
        if fault is not None:
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, fault, ext_fields=fields)
        stored = SendMessageResponseHeader(msg_id=message_id, queue_id=target.queue_id, queue_offset=queue_offset)
        return RemotingCommand.response(header=stored, ext_fields=fields)

    async def _push(
        self, reply: SendRequest, header: SendMessageRequestHeader, target: Target, client: Channel, client_id: str
    ) -> str | None:
        """Returns None if the client has taken the reply, else the remark of the answer."""
        request = RemotingCommand.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._push_header(reply, header, target), reply.body
        )
        try:
            async with self._turn(client.connection):
                answer = await client.invoke(request, CLIENT_TIMEOUT_S)
        except TransportError as exc:
            self._warn("push", f"could not push a reply to client {client_id} at {client.peer}: {exc}")
        else:
            if answer.code == ResponseCode.SUCCESS:
                return None
            remark = printable(answer.remark or "")
            self._warn("push", f"client {client_id} at {client.peer} refused a reply: {answer.code} {remark}")
        return f"push reply message to <{client_id}>fail."

    def _push_header(
        self, reply: SendRequest, header: SendMessageRequestHeader, target: Target
    ) -> ReplyMessageRequestHeader:
        services = self._services
        now_ms = services.clock.now_ms()
        properties = with_values(reply.properties, **{PUSH_REPLY_TIME: str(now_ms)})
        return ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=reply.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=target.queue_id,
            sys_flag=target.sys_flag,
            born_timestamp_ms=reply.born_timestamp_ms,
            flag=reply.message_flag,
            properties=properties.decode(),
            reconsume_times=reply.reconsume_times,
            unit_mode=reply.unit_mode,
            born_host=str(reply.channel.peer),
            store_host=services.settings.broker_addr,
            store_timestamp_ms=now_ms,
        )

    @asynccontextmanager
    async def _turn(self, connection: int) -> AsyncIterator[None]:
        """Wait for a turn at the client."""
        turns = self._turns.setdefault(connection, _Turns())
        turns.users += 1
        try:
            async with turns.slots:
                yield
        finally:
            turns.users -= 1
            if turns.users == 0:
                del self._turns[connection]

    def _warn(self, kind: str, text: str) -> None:
        if told := self._log.take(kind):
            logger.warning("reply: %s%s", text, and_more(told))


def _stored(reply: SendRequest, target: Target) -> MessageToPut:
    """The reply as it is stored: with its properties as they were sent."""
    return MessageToPut(
        topic=reply.topic,
        queue_id=target.queue_id,
        body=reply.body,
        properties=reply.properties,
        message_flag=reply.message_flag,
        sys_flag=target.sys_flag,
        born_timestamp_ms=reply.born_timestamp_ms,
        born_host=(reply.channel.peer.host, reply.channel.peer.port),
        reconsume_times=reply.reconsume_times,
        wait_store=reply.wait_store,
    )
