"""PULL_MESSAGE (11) and its 5.x alias LITE_PULL_MESSAGE (361)."""

from __future__ import annotations

from enum import IntFlag

from ..schema import Header, Int, header, wire


class PullSysFlag(IntFlag):
    """The bits of a pull's `sysFlag`."""

    COMMIT_OFFSET = 0x1  # `commitOffset` counts
    SUSPEND = 0x2  # the broker may hold the pull
    SUBSCRIPTION = 0x4  # `subscription` counts
    CLASS_FILTER = 0x8
    LITE_PULL = 0x10
    BULK = 0x10000  # ours: the answer may be larger (bulkPullCount, bulkPullBytes); other brokers ignore it


@header
class PullMessageRequestHeader(Header):
    consumer_group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: Int = wire("queueId")
    queue_offset: int = wire("queueOffset")
    max_msg_nums: Int = wire("maxMsgNums")
    sys_flag: Int = wire("sysFlag", default=0)
    commit_offset: int = wire("commitOffset", default=0)
    suspend_timeout_ms: int = wire("suspendTimeoutMillis", default=0)
    subscription: str | None = wire("subscription", default=None)
    sub_version: int = wire("subVersion", default=0)  # milliseconds from Java, nanoseconds from Go, or 0
    expression_type: str | None = wire("expressionType", default=None)  # None is TAG
    broker_name: str | None = wire("bname", default=None)


@header
class PullMessageResponseHeader(Header):
    """All four are mandatory to Java with the codes 0, 19, 20 and 21."""

    suggest_which_broker_id: int = wire("suggestWhichBrokerId")
    next_begin_offset: int = wire("nextBeginOffset")
    min_offset: int = wire("minOffset")
    max_offset: int = wire("maxOffset")
