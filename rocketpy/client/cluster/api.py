"""One method per request code of clients, signed and sent to a given address.

Every method raises TransportError if there was no response, BrokerError if the response is an error, HeaderInvalid or
BodyInvalid if it cannot be read. `invoke` and `pull` return the response unread, also if it is an error.
Source: RocketMQ 4.9 `MQClientAPIImpl`, `AclClientRPCHook`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Sequence

import attrs

from rocketpy.codes import STORED_RESPONSE_CODES, RequestCode, ResponseCode
from rocketpy.errors import BodyInvalid, BrokerError, HeaderInvalid, NumberInvalid
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.numbers import parse_int, parse_long
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.client import CheckClientRequestBody, HeartbeatData, SubscriptionData
from rocketpy.remoting.bodies.group import (
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from rocketpy.remoting.bodies.route import TopicRouteData
from rocketpy.remoting.bodies.topic import TopicList, TopicOffset, TopicOffsets, TopicStatsTable
from rocketpy.remoting.command import EncodableHeader, RemotingCommand
from rocketpy.remoting.fastjson import loads
from rocketpy.remoting.headers.admin import TopicStatsRequestHeader
from rocketpy.remoting.headers.client import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from rocketpy.remoting.headers.namesrv import GetRouteInfoRequestHeader
from rocketpy.remoting.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketpy.remoting.headers.pull import (
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from rocketpy.remoting.headers.send import (
    PASSED_ON_FIELD,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
)
from rocketpy.remoting.schema import Header
from rocketpy.remoting.signature import Credentials, sign
from rocketpy.transport.channel import Waiter

from ..messages import ReceivedMessage
from ..results import PULL_STATUS, SEND_STATUS, PullResult, PullStatus, SendResult, StoredPull
from .name_servers import NameServers, Remoting
from .received import decode_messages, decode_pulled

PULL_FIELDS = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId")


@attrs.define(eq=False)
class MQClientAPI:
    """Requests over `remoting`, signed when there are credentials; routes are asked of `name_servers`."""

    remoting: Remoting
    name_servers: NameServers
    credentials: Credentials | None = None

    def invoke(self, address: str, command: RemotingCommand, timeout_s: float) -> Awaitable[RemotingCommand]:
        """Return the response, with any code."""
        if self.credentials is not None:
            sign(command, self.credentials)
        return self.remoting.invoke(address, command, timeout_s)

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes | None = None,
        *,
        timeout_s: float,
    ) -> RemotingCommand:
        """The response of a successful request. Raises BrokerError for any other code."""
        response = await self.invoke(address, RemotingCommand.request(code, header, body), timeout_s)
        return succeeded(response, address)

    async def ask_name_server(
        self, code: RequestCode, header: Header | None = None, body: bytes | None = None, *, timeout_s: float
    ) -> RemotingCommand:
        """As `ask`, to the chosen name server."""
        command = RemotingCommand.request(code, header, body)
        if self.credentials is not None:
            sign(command, self.credentials)
        return succeeded(await self.name_servers.invoke(command, timeout_s), self.name_servers.chosen)

    async def oneway(
        self, address: str, code: RequestCode, header: EncodableHeader, body: bytes | None, timeout_s: float
    ) -> None:
        command = RemotingCommand.oneway(code, header, body)
        if self.credentials is not None:
            sign(command, self.credentials)
        await self.remoting.invoke_oneway(address, command, timeout_s)

    # --- routes and membership ----------------------------------------------------------------------------------------

    async def topic_route(self, topic: str, timeout_s: float) -> TopicRouteData:
        header = GetRouteInfoRequestHeader(topic=topic)
        response = await self.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_s=timeout_s)
        return TopicRouteData.decode(response.body)

    async def topics(self, timeout_s: float) -> list[str]:
        """Every topic that the name server knows."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        response = await self.ask_name_server(code, timeout_s=timeout_s)
        return list(TopicList.decode(response.body).topic_list)

    async def heartbeat(self, address: str, data: HeartbeatData, timeout_s: float) -> int:
        """Tell a broker who this client is. Returns: the broker's version number, on which SQL filters depend."""
        response = await self.ask(address, RequestCode.HEART_BEAT, body=data.encode(), timeout_s=timeout_s)
        return response.version

    async def unregister(
        self, address: str, client_id: str, producer_group: str | None, consumer_group: str | None, timeout_s: float
    ) -> None:
        header = UnregisterClientRequestHeader(
            client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
        )
        await self.ask(address, RequestCode.UNREGISTER_CLIENT, header, timeout_s=timeout_s)

    async def consumer_ids(self, address: str, group: str, timeout_s: float) -> list[str]:
        header = GetConsumerListByGroupRequestHeader(consumer_group=group)
        response = await self.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, timeout_s=timeout_s)
        return list(GetConsumerListByGroupResponseBody.decode(response.body).consumer_id_list)

    async def check_client_config(
        self, address: str, client_id: str, group: str, subscription: SubscriptionData, timeout_s: float
    ) -> None:
        """Ask the broker to check that it can filter by the expression. Raises BrokerError if it cannot."""
        body = CheckClientRequestBody(client_id=client_id, group=group, subscription_data=subscription)
        await self.ask(address, RequestCode.CHECK_CLIENT_CONFIG, body=body.encode(), timeout_s=timeout_s)

    # --- messages -----------------------------------------------------------------------------------------------------

    async def send(
        self,
        address: str,
        code: RequestCode,
        header: EncodableHeader,
        body: bytes,
        queue: MessageQueue,
        msg_id: str,
        timeout_s: float,
    ) -> SendResult:
        """Send a message or a batch. The wait for the answer is about the queue (unanswered_sends.py)."""
        command = RemotingCommand(code, ext_fields=header, body=body)
        if self.credentials is not None:
            sign(command, self.credentials)
        response = await self.remoting.invoke(address, command, timeout_s, about=queue)
        if response.code not in STORED_RESPONSE_CODES:
            raise BrokerError(response.code, response.remark, address=address)
        return _send_result(response, queue, msg_id)

    async def send_oneway(
        self, address: str, code: RequestCode, header: EncodableHeader, body: bytes, timeout_s: float
    ) -> None:
        await self.oneway(address, code, header, body, timeout_s)

    async def end_transaction(self, address: str, header: EndTransactionRequestHeader, timeout_s: float) -> None:
        """Without an answer, as in Java: if it is lost, the broker asks."""
        await self.oneway(address, RequestCode.END_TRANSACTION, header, None, timeout_s)

    def answer_check(self, channel: Channel, header: EndTransactionRequestHeader) -> None:
        """End a transaction over the connection on which the broker has asked about it."""
        command = RemotingCommand.oneway(RequestCode.END_TRANSACTION, header)
        if self.credentials is not None:
            sign(command, self.credentials)
        channel.push(command)

    def pull(self, address: str, header: PullMessageRequestHeader, timeout_s: float) -> Awaitable[RemotingCommand]:
        """Return the wait for the answer, which `pull_result` reads. A coroutine around it would cost memory for each
        queue that waits for messages."""
        return self.invoke(address, RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=header), timeout_s)

    def pull_without_task(
        self, address: str, header: PullMessageRequestHeader, timeout_s: float, waiter: Waiter
    ) -> bool:
        """As `pull`, without a task: `waiter` gets the answer. Returns False if nothing was sent (no connection)."""
        command = RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=header)
        if self.credentials is not None:
            sign(command, self.credentials)
        return self.remoting.invoke_without_task(address, command, timeout_s, waiter)

    async def pull_stored(self, address: str, header: PullMessageRequestHeader, timeout_s: float) -> StoredPull:
        """Pull without decoding the messages."""
        return stored_pull(await self.pull(address, header, timeout_s), address)

    async def pull_all_stored(
        self, address: str, headers: Sequence[PullMessageRequestHeader], timeout_s: float
    ) -> list[StoredPull]:
        """Pulls that are sent together, answered in their order. Raises if any of them has no answer."""
        commands = [RemotingCommand.request(RequestCode.PULL_MESSAGE, header) for header in headers]
        if self.credentials is not None:
            for command in commands:
                sign(command, self.credentials)
        responses = await self.remoting.invoke_all(address, commands, timeout_s)
        return [stored_pull(response, address) for response in responses]

    async def send_message_back(
        self, address: str, group: str, message: ReceivedMessage, delay_level: int, times_max: int, timeout_s: float
    ) -> None:
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.phy_offset,
            group=group,
            delay_level=delay_level,
            origin_msg_id=message.offset_msg_id,
            origin_topic=message.topic,
            max_reconsume_times=times_max,
            broker_name=message.queue.broker_name,
        )
        await self.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_s=timeout_s)

    async def view_message(self, address: str, phy_offset: int, timeout_s: float) -> ReceivedMessage:
        header = ViewMessageRequestHeader(offset=phy_offset)
        response = await self.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header, timeout_s=timeout_s)
        messages = decode_messages(response.body, "")
        if not messages:
            raise BrokerError(ResponseCode.NO_MESSAGE, f"no message at offset {phy_offset}", address=address)
        return messages[0]

    async def query_messages(
        self, address: str, header: QueryMessageRequestHeader, broker_name: str, timeout_s: float
    ) -> list[ReceivedMessage]:
        """Messages by key, their bodies as they are stored (see `inflated`); an empty list if there are none."""
        response = await self.invoke(address, RemotingCommand.request(RequestCode.QUERY_MESSAGE, header), timeout_s)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        return decode_messages(succeeded(response, address).body, broker_name, inflate=False)

    # --- offsets ------------------------------------------------------------------------------------------------------

    async def query_consumer_offset(
        self, address: str, group: str, queue: MessageQueue, timeout_s: float
    ) -> int | None:
        """The committed offset, None when there is none. Every other refusal is an error, unlike in Java 4.9."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        command = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        response = await self.invoke(address, command, timeout_s)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return OffsetResponseHeader.of(succeeded(response, address)).offset

    async def update_consumer_offset(
        self, address: str, group: str, queue: MessageQueue, offset: int, timeout_s: float, *, oneway: bool
    ) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        if oneway:
            await self.oneway(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, None, timeout_s)
        else:
            await self.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_s=timeout_s)

    async def max_offset(self, address: str, queue: MessageQueue, timeout_s: float) -> int:
        header = _queue_header(queue)
        response = await self.ask(address, RequestCode.GET_MAX_OFFSET, header, timeout_s=timeout_s)
        return OffsetResponseHeader.of(response).offset

    async def topic_offsets(
        self, address: str, topic: str, broker_name: str, timeout_s: float
    ) -> dict[MessageQueue, TopicOffset]:
        """Offsets of all write queues that a broker has of a topic; their times only from brokers of RocketMQ."""
        header = TopicStatsRequestHeader(topic=topic, offsets_only=True)
        response = await self.ask(address, RequestCode.GET_TOPIC_STATS_INFO, header, timeout_s=timeout_s)
        answer = loads(response.body or b"")
        if not isinstance(answer, dict) or "maxOffsets" not in answer:
            return dict(TopicStatsTable.from_json(answer).offset_table)
        offsets = TopicOffsets.from_json(answer)
        if len(offsets.min_offsets) != len(offsets.max_offsets):
            raise BodyInvalid(f"{len(offsets.min_offsets)} minOffsets, but {len(offsets.max_offsets)} maxOffsets")
        return {
            MessageQueue(topic, broker_name, queue_id): TopicOffset(min_offset=low, max_offset=high)
            for queue_id, (low, high) in enumerate(zip(offsets.min_offsets, offsets.max_offsets, strict=True))
        }

    async def min_offset(self, address: str, queue: MessageQueue, timeout_s: float) -> int:
        header = _queue_header(queue)
        response = await self.ask(address, RequestCode.GET_MIN_OFFSET, header, timeout_s=timeout_s)
        return OffsetResponseHeader.of(response).offset

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int, timeout_s: float) -> int:
        """The offset of a message that was stored about then: the nearest one, or any of several at that time."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=timestamp_ms, broker_name=queue.broker_name
        )
        response = await self.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, timeout_s=timeout_s)
        return OffsetResponseHeader.of(response).offset

    # --- locks --------------------------------------------------------------------------------------------------------

    async def lock_queues(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue], timeout_s: float
    ) -> set[MessageQueue]:
        """Take or renew locks of queues that are consumed in order. Returns: the queues that are locked for us now."""
        body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=list(queues))
        response = await self.ask(address, RequestCode.LOCK_BATCH_MQ, body=body.encode(), timeout_s=timeout_s)
        return set(LockBatchResponseBody.decode(response.body).lock_ok_mq_set)

    async def unlock_queues(
        self, address: str, group: str, client_id: str, queues: Collection[MessageQueue], timeout_s: float
    ) -> None:
        body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=list(queues))
        await self.ask(address, RequestCode.UNLOCK_BATCH_MQ, body=body.encode(), timeout_s=timeout_s)


def succeeded(response: RemotingCommand, address: str | None) -> RemotingCommand:
    """The response itself. Raises BrokerError when its code is not SUCCESS."""
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError(response.code, response.remark, address=address)
    return response


def _send_result(response: RemotingCommand, queue: MessageQueue, msg_id: str) -> SendResult:
    """Return the result of a send that was stored. Read without a SendMessageResponseHeader: a sixth of the time.

    Raises:
        HeaderInvalid: there is no place of the message in it.
    """
    fields = response.ext_fields or {}
    try:
        queue_id, queue_offset = parse_int(fields["queueId"]), parse_long(fields["queueOffset"])
    except (KeyError, NumberInvalid):
        raise HeaderInvalid(f"the answer of a send lacks queueId or queueOffset: {fields!r:.200}") from None
    return SendResult(
        SEND_STATUS[response.code],
        msg_id,
        fields.get("msgId", ""),
        queue if queue.queue_id == queue_id else attrs.evolve(queue, queue_id=queue_id),
        queue_offset,
        fields.get("transactionId"),
        fields.get("MSG_REGION") or "DefaultRegion",
        fields.get("TRACE_ON", "true").lower() == "true",
        fields.get(PASSED_ON_FIELD, "").lower() == "true",
    )


def pull_result(response: RemotingCommand, address: str, broker_name: str, *, inflate: bool = True) -> PullResult:
    """Return the answer to a pull. Raises BrokerError if it was refused. `inflate`: as `decode_messages`."""
    status, begin, least, most, suggested = _pull_numbers(response, address)
    found: list[ReceivedMessage] = []
    if status is PullStatus.FOUND:
        found, begin = decode_pulled(response.body, broker_name, begin, inflate=inflate)
    return PullResult(status, begin, least, most, tuple(found), suggested)


def stored_pull(response: RemotingCommand, address: str) -> StoredPull:
    """Return the answer to a pull. Raises BrokerError if it was refused."""
    status, begin, least, most, suggested = _pull_numbers(response, address)
    return StoredPull(status, begin, least, most, response.body or b"", suggested)


def _pull_numbers(response: RemotingCommand, address: str) -> tuple[PullStatus, int, int, int, int]:
    """Return status, next, least and greatest offset, and the broker to ask next. Read without a
    PullMessageResponseHeader: a third of the time.

    Raises:
        BrokerError: the pull was refused. HeaderInvalid: a number is missing.
    """
    status = PULL_STATUS.get(response.code)
    if status is None:
        raise BrokerError(response.code, response.remark, address=address)
    fields = response.ext_fields or {}
    try:
        begin, least, most, suggested = [parse_long(fields[name]) for name in PULL_FIELDS]
    except (KeyError, NumberInvalid):
        raise HeaderInvalid(f"the answer of a pull lacks one of {', '.join(PULL_FIELDS)}: {fields!r:.200}") from None
    return status, begin, least, most, suggested


def _queue_header(queue: MessageQueue) -> QueueRequestHeader:
    return QueueRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
