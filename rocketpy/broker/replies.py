"""Responses to requests of the slow path: sent on the channel of the request, in its serialization."""

from __future__ import annotations

from collections.abc import Mapping

from rocketpy.config import BrokerConfig
from rocketpy.remoting.command import FLAG_RESPONSE, RemotingCommand
from rocketpy.remoting.fast_path import PullRequest, PutResult, SendRequest
from rocketpy.remoting.frame import SerializeType


def push_reply(
    request: SendRequest | PullRequest, code: int, remark: str | None, ext_fields: Mapping[str, str] | None = None
) -> None:
    """Send the response unless the request is one-way."""
    if request.is_oneway:
        return
    request.channel.push(
        RemotingCommand(
            code=code,
            opaque=request.opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            ext_fields=dict(ext_fields) if ext_fields is not None else None,
            serialize_type=SerializeType.ROCKETMQ if request.is_rocketmq else SerializeType.JSON,
        )
    )


def send_reply_fields(config: BrokerConfig) -> dict[str, str]:
    """Fields of every response to a send, also of refusals: Java clients read them without a check."""
    return {"MSG_REGION": config.region_id, "TRACE_ON": "true" if config.trace_on else "false"}


def push_send_reply(config: BrokerConfig, request: SendRequest, code: int, remark: str | None) -> None:
    push_reply(request, code, remark, send_reply_fields(config))


def push_stored_reply(config: BrokerConfig, request: SendRequest, result: PutResult, queue_id: int) -> None:
    """Send the success response. `queue_id` is the queue that the sender knows, even if the message is stored
    elsewhere."""
    fields = send_reply_fields(config) | {
        "msgId": result.message_id,
        "queueId": str(queue_id),
        "queueOffset": str(result.queue_offset),
    }
    push_reply(request, result.code, None, fields)
