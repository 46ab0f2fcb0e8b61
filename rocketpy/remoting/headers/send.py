"""Sends (10, 310, batch 320), CONSUMER_SEND_MSG_BACK (36), transactions (37, 39, 323).

The V2 header has the fields of the first under one-letter names; the code says which one is used.
"""

from __future__ import annotations

import attrs

from rocketpy.codes import RequestCode

from ..command import RemotingCommand
from ..schema import Header, Int, header, wire

V2_CODES = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2})


PASSED_ON_FIELD = "passedOn"  # of an answer: a slave of rocketpy has passed the send on, and the route has changed


@header
class SendMessageRequestHeader(Header):
    """The fields that describe a message, whose body is the request's. `batch`, not the code, decides how the body is
    read."""

    producer_group: str = wire("producerGroup")
    topic: str = wire("topic")
    default_topic: str = wire("defaultTopic", default="")
    default_topic_queue_nums: Int = wire("defaultTopicQueueNums", default=4)
    queue_id: Int = wire("queueId")  # negative: the broker chooses
    sys_flag: Int = wire("sysFlag", default=0)
    born_timestamp_ms: int = wire("bornTimestamp", default=0)
    flag: Int = wire("flag", default=0)
    properties: str | None = wire("properties", default=None)
    reconsume_times: Int | None = wire("reconsumeTimes", default=None)
    unit_mode: bool = wire("unitMode", default=False)
    max_reconsume_times: Int | None = wire("maxReconsumeTimes", default=None)
    batch: bool = wire("batch", default=False)
    broker_name: str | None = wire("bname", default=None)

    def to_v2(self) -> SendMessageRequestHeaderV2:
        """The same under the one-letter names."""
        return SendMessageRequestHeaderV2(**attrs.asdict(self, recurse=False))


@header
class SendMessageRequestHeaderV2(Header):
    """SendMessageRequestHeader under its short names."""

    producer_group: str = wire("a")
    topic: str = wire("b")
    default_topic: str = wire("c", default="")
    default_topic_queue_nums: Int = wire("d", default=4)
    queue_id: Int = wire("e")
    sys_flag: Int = wire("f", default=0)
    born_timestamp_ms: int = wire("g", default=0)
    flag: Int = wire("h", default=0)
    properties: str | None = wire("i", default=None)
    reconsume_times: Int | None = wire("j", default=None)
    unit_mode: bool = wire("k", default=False)
    max_reconsume_times: Int | None = wire("l", default=None)
    batch: bool = wire("m", default=False)
    broker_name: str | None = wire("n", default=None)

    def to_v1(self) -> SendMessageRequestHeader:
        """The same under the long names."""
        return SendMessageRequestHeader(**attrs.asdict(self, recurse=False))


def read_send_header(command: RemotingCommand) -> SendMessageRequestHeader:
    """The send header of any of the five send codes. Raises HeaderInvalid as Header.of does."""
    if command.code in V2_CODES:
        return SendMessageRequestHeaderV2.of(command).to_v1()
    return SendMessageRequestHeader.of(command)


@header
class SendMessageResponseHeader(Header):
    """The place of a stored message; Java fails on an answer without `queueId` or `queueOffset`."""

    msg_id: str = wire("msgId", default="")
    queue_id: Int = wire("queueId")
    queue_offset: int = wire("queueOffset")
    transaction_id: str | None = wire("transactionId", default=None)
    region: str | None = wire("MSG_REGION", default=None)
    trace_on: bool | None = wire("TRACE_ON", default=None)
    passed_on: bool | None = wire(PASSED_ON_FIELD, default=None)


@header
class ConsumerSendMsgBackRequestHeader(Header):
    """A consumer could not handle a message: store it again, later. `offset` is a CommitLog offset."""

    offset: int = wire("offset")
    group: str = wire("group")
    delay_level: Int = wire("delayLevel", default=0)  # 0: by the number of attempts; negative: dead letter queue
    origin_msg_id: str | None = wire("originMsgId", default=None)
    origin_topic: str | None = wire("originTopic", default=None)
    unit_mode: bool = wire("unitMode", default=False)
    max_reconsume_times: Int | None = wire("maxReconsumeTimes", default=None)
    broker_name: str | None = wire("bname", default=None)


@header
class EndTransactionRequestHeader(Header):
    """The end of a transaction. Both offsets are those of the half message; the broker checks them and the group."""

    producer_group: str = wire("producerGroup")
    tran_state_table_offset: int = wire("tranStateTableOffset")
    commit_log_offset: int = wire("commitLogOffset")
    commit_or_rollback: Int = wire("commitOrRollback")  # 8 commit, 12 rollback, 0 not decided
    from_transaction_check: bool = wire("fromTransactionCheck", default=False)
    msg_id: str | None = wire("msgId", default=None)
    transaction_id: str | None = wire("transactionId", default=None)
    broker_name: str | None = wire("bname", default=None)


@header
class CheckTransactionStateRequestHeader(Header):
    """A broker asks a producer how its transaction ended. `msg_id` is the unique id."""

    tran_state_table_offset: int = wire("tranStateTableOffset")
    commit_log_offset: int = wire("commitLogOffset")
    msg_id: str | None = wire("msgId", default=None)
    transaction_id: str | None = wire("transactionId", default=None)
    offset_msg_id: str | None = wire("offsetMsgId", default=None)
    broker_name: str | None = wire("bname", default=None)


@header
class ResumeCheckHalfMessageRequestHeader(Header):
    msg_id: str | None = wire("msgId", default=None)  # an offset message id
