"""Remarks of refusals in the reference's words. Clients use the codes only; operators search their logs for the
remarks."""

from __future__ import annotations

import time

from rocketpy.codes import ResponseCode
from rocketpy.message import names
from rocketpy.message.sys_flag import PermName
from rocketpy.remoting.bodies.topic import TopicConfig

FAQ_SUFFIX = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
SENDS_REFUSED_BY_SLAVE = "service not available now: this broker is a slave and takes no messages; send to its master"
NOT_PASSED_ON = (
    "service not available now: this broker is a slave, and its master has not taken the message; send again"
)
PERHAPS_STORED = (  # the same text in csrc/workers/send/send_answer.c; passed_sends.py knows the answer by it
    "service not available now: this broker is not certainly the master any more; the message may be stored"
)
CHANGES_REFUSED_BY_SLAVE = (
    "Can't modify topic or subscription group from slave broker, please execute it from master broker."
)


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
