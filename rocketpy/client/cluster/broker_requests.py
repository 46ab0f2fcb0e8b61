"""Requests of brokers to a client: rebalance, reset offsets, report its state, consume a message now, take a reply,
decide a transaction.

Source: RocketMQ 4.9 `ClientRemotingProcessor`. Answers to requests of other codes: REQUEST_CODE_NOT_SUPPORTED.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import attrs

from rocketpy import aio
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.answers import not_supported
from rocketpy.remoting.bodies.client import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpy.remoting.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ReplyMessageRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketpy.remoting.headers.send import CheckTransactionStateRequestHeader

from ..messages import ReceivedMessage
from .received import decode_message

logger = logging.getLogger(__name__)


SERVED_CODES = (
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    RequestCode.CHECK_TRANSACTION_STATE,
)


class AskedConsumer(Protocol):
    """The part of a consumer that serves requests of brokers."""

    @property
    def group(self) -> str: ...

    def wake_rebalance(self) -> None: ...

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None: ...

    def consumed_offsets(self, topic: str) -> dict[MessageQueue, int]: ...

    def running_info(self, *, with_stack: bool) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult: ...


@attrs.define(eq=False)
class BrokerRequests:
    """Serves the requests of all brokers for one client instance. `nursery` outlives every request."""

    nursery: aio.OpenNursery
    consumer: AskedConsumer | None = None
    on_reply: Callable[[ReplyMessageRequestHeader, bytes], None] | None = None  # of a producer that waits for replies
    on_check: Callable[[Channel, CheckTransactionStateRequestHeader, bytes], None] | None = None
    """Of a producer with transactions; it answers over the channel."""

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        """The answer, or None for a one-way request."""
        match request.code:
            case RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                if self.consumer is not None:
                    self.consumer.wake_rebalance()
                return None
            case RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
                self._reset_offset(request)
                return None
            case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                return self._consumer_status(request)
            case RequestCode.GET_CONSUMER_RUNNING_INFO:
                return self._running_info(request)
            case RequestCode.CONSUME_MESSAGE_DIRECTLY:
                return await self._consume_directly(request)
            case RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT if self.on_reply is not None:
                self.on_reply(ReplyMessageRequestHeader.of(request), request.body or b"")
                return RemotingCommand.response()
            case RequestCode.CHECK_TRANSACTION_STATE if self.on_check is not None:
                self.on_check(channel, CheckTransactionStateRequestHeader.of(request), request.body or b"")
                return None
        return not_supported(request.code)

    def _find(self, group: str) -> AskedConsumer | None:
        return self.consumer if self.consumer is not None and self.consumer.group == group else None

    def _reset_offset(self, request: RemotingCommand) -> None:
        """Runs in its own task, because the consumer waits 10 s for handlers before it resets offsets."""
        header = ResetOffsetRequestHeader.of(request)
        offsets = ResetOffsetBody.decode(request.body).offset_table
        consumer = self._find(header.group)
        if consumer is None:
            logger.warning(
                "ignored a request to reset the offsets of group %s: this client has no consumer of it", header.group
            )
            return
        self.nursery.start_soon(consumer.reset_offsets, header.topic, offsets)

    def _consumer_status(self, request: RemotingCommand) -> RemotingCommand:
        header = GetConsumerStatusRequestHeader.of(request)
        consumer = self._find(header.group)
        offsets = {} if consumer is None else consumer.consumed_offsets(header.topic)
        return RemotingCommand.response(body=GetConsumerStatusBody(message_queue_table=offsets).encode())

    def _running_info(self, request: RemotingCommand) -> RemotingCommand:
        header = GetConsumerRunningInfoRequestHeader.of(request)
        consumer = self._find(header.consumer_group)
        if consumer is None:
            return unknown_group(header.consumer_group)
        return RemotingCommand.response(body=consumer.running_info(with_stack=header.jstack_enable).encode())

    async def _consume_directly(self, request: RemotingCommand) -> RemotingCommand:
        header = ConsumeMessageDirectlyRequestHeader.of(request)
        consumer = self._find(header.consumer_group)
        if consumer is None:
            return unknown_group(header.consumer_group)
        message = decode_message(request.body, header.broker_name or "")
        if message is None:
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "the request holds no message")
        result = await consumer.consume_directly(message)
        return RemotingCommand.response(body=result.encode())


def unknown_group(group: str) -> RemotingCommand:
    return RemotingCommand.response(
        ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer"
    )
