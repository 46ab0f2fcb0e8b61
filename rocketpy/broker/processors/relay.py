"""Admin requests that are relayed to a client: GET_CONSUMER_RUNNING_INFO (307), CONSUME_MESSAGE_DIRECTLY (309).

The client's body and remark are passed back unchanged. A client may be slow, so the request waits outside of its pool.

The operator's access key and signature stay here: a signature covers values, not their names or the request code, and a
consumer chooses its client id. It could send the same values as another request of the operator.

Source: RocketMQ 4.9 `AdminBrokerProcessor#callConsumer`.
"""

from __future__ import annotations

from functools import partial

from rocketpy.codes import MQVersion, RequestCode, ResponseCode, version_name
from rocketpy.errors import MessageInvalid, RequestRefused, RequestTimeout, TooManyRequests, TransportError
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.remoting.abc import Channel, Detached
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rocketpy.remoting.signature import SIGNING_FIELDS
from rocketpy.transport.steps import BODY_SIZE_MAX

from ..services import BrokerServices
from .table import TableProcessor

CLIENT_TIMEOUT_S = 10.0


class RelayProcessor(TableProcessor):
    """Requests of operators that the broker passes on to a consumer, and the answer back."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__(
            {
                RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
                RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            }
        )
        self._services = services

    async def _running_info(self, request: RemotingCommand, channel: Channel) -> Detached:
        header = GetConsumerRunningInfoRequestHeader.of(request)
        return self._call(request, header.consumer_group, header.client_id, None, {})

    async def _consume_directly(self, request: RemotingCommand, channel: Channel) -> Detached:
        header = ConsumeMessageDirectlyRequestHeader.of(request)
        body = None
        if header.msg_id:
            body = self._load(header.msg_id)
        extra = {"brokerName": self._services.settings.broker.broker_name}
        return self._call(request, header.consumer_group, header.client_id or "", body, extra)

    def _load(self, message_id: str) -> bytes:
        try:
            phy_offset = decode_offset_message_id(message_id).phy_offset
        except MessageInvalid as exc:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(exc)) from exc
        image = self._services.store.look_message_by_offset(phy_offset, BODY_SIZE_MAX)
        if image is None:
            remark = f"can not find message by the offset, {phy_offset}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        return bytes(image)

    def _call(
        self, request: RemotingCommand, group: str, client_id: str, body: bytes | None, extra: dict[str, str]
    ) -> Detached:
        client = self._services.consumers.find_client(group, client_id)
        if client is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if client.version < MQVersion.V3_1_8_SNAPSHOT:
            remark = (
                f"The Consumer <{client_id}> Version <{version_name(client.version)}> too low to finish, "
                f"please upgrade it to V3_1_8_SNAPSHOT"
            )
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        fields = {name: value for name, value in (request.ext_fields or {}).items() if name not in SIGNING_FIELDS}
        relayed = RemotingCommand.request(request.code, body=body or request.body, ext_fields=fields | extra)
        ask = partial(_ask, client.channel, relayed, f"consumer <{group}> <{client_id}>")
        return Detached(ask, client.connection, CLIENT_TIMEOUT_S + 1.0)


async def _ask(channel: Channel, relayed: RemotingCommand, who: str) -> RemotingCommand:
    try:
        answer = await channel.invoke(relayed, CLIENT_TIMEOUT_S)
    except RequestTimeout as exc:
        raise RequestRefused(ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} Timeout: {exc}") from exc
    except TooManyRequests:
        raise
    except TransportError as exc:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"invoke {who} Exception: {exc}") from exc
    return RemotingCommand.response(answer.code, answer.remark, body=answer.body, ext_fields=answer.ext_fields)
