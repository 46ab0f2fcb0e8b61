"""Responses to requests of the slow path: sent on the channel of the request, in its serialization; and the remarks of
refusals, in the reference's words. Clients use the codes only; operators search their logs for the remarks."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rocketpy.codes import ResponseCode
from rocketpy.config import BrokerConfig
from rocketpy.message import names
from rocketpy.message.sys_flag import PermName
from rocketpy.remoting.bodies.topic import TopicConfig
from rocketpy.remoting.command import FLAG_RESPONSE, RemotingCommand
from rocketpy.remoting.fast_path import PullRequest, PutResult, SendRequest
from rocketpy.remoting.frame import SerializeType

FAQ_SUFFIX = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
SENDS_REFUSED_BY_SLAVE = "service not available now: this broker is a slave and takes no messages; send to its master"
NOT_PASSED_ON = (
    "service not available now: this broker is a slave, and its master has not taken the message; send again"
)
PERHAPS_STORED = (  # the same text in csrc/workers/send/send_answer.c; passed_on_sends.py knows the answer by it
    "service not available now: this broker is not certainly the master any more; the message may be stored"
)
CHANGES_REFUSED_BY_SLAVE = (
    "Can't modify topic or subscription group from slave broker, please execute it from master broker."
)


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


# --- remarks


def invalid_topic(topic: str) -> str | None:
    """Remark for a topic name that is not valid; None if it is valid."""
    if names.topic_fault(topic) is None:
        return None
    if not topic.strip():
        return "The specified topic is blank."
    if len(topic) > names.TOPIC_LENGTH_MAX and names.topic_fault(topic[: names.TOPIC_LENGTH_MAX]) is None:
        return "The specified topic is longer than topic max length."
    return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


def store_failure(code: int, max_message_size: int, may_be_stored: bool = False) -> str:
    """Remark for a message that could not be stored."""
    if may_be_stored:
        return PERHAPS_STORED
    if code == ResponseCode.MESSAGE_ILLEGAL:
        return (
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {max_message_size}B, msg properties length limit 32KB."
        )
    if code == ResponseCode.SERVICE_NOT_AVAILABLE:
        return (
            "service not available now. It may be caused by one of the following reasons: "
            "the broker's disk is full, it is a slave, or it is shutting down."
        )
    if code == ResponseCode.SYSTEM_BUSY:
        return "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while"
    return "UNKNOWN_ERROR"


def unsupported_filter(expression_type: str) -> str:
    return f"The broker does not support consumer to filter message by {expression_type}"


def topic_text(topic: TopicConfig) -> str:
    """The topic in the reference's text form."""
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={PermName(topic.perm)}, "
        f"topicFilterType={topic.topic_filter_type}, topicSysFlag={topic.topic_sys_flag}, "
        f"order={'true' if topic.order else 'false'}]"
    )


def human_time(timestamp_ms: int) -> str:
    """`yyyy-MM-dd HH:mm:ss,SSS`, local time."""
    seconds, millis = divmod(timestamp_ms, 1000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))},{millis:03d}"
