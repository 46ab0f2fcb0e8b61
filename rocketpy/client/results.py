"""Results of calls: outcomes are values, errors are raised, with a broker's code or one of the client itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from functools import partial
from itertools import count, repeat
from typing import NamedTuple

import attrs

from rocketpy.codes import ResponseCode
from rocketpy.message.message_queue import MessageQueue

from .messages import ReceivedMessage


class SendStatus(Enum):
    """All four mean that the message is stored; the last three that something promised beside it was late."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


SEND_STATUS: Mapping[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(NamedTuple):
    """The ids and the place of a stored message. A batch has its ids joined by commas, and the offset of its first
    message."""

    status: SendStatus
    msg_id: str
    """Made by the client; travels with the message (UNIQ_KEY)."""
    offset_msg_id: str
    """Made by the broker: its address, and the offset in its CommitLog."""
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    passed_on: bool = False
    """A former master has passed the message on: the client asks for the route again."""


_made = tuple.__new__  # of a named tuple: the class itself takes three times as long


def results_of_members(result: SendResult, msg_ids: Sequence[str]) -> Iterable[SendResult]:
    """Return the results of the messages of a batch, from the result of the batch.

    Source: RocketMQ 5 `ProduceAccumulator#splitSendResults`.
    """
    offset_ids = result.offset_msg_id.split(",")
    if len(offset_ids) != len(msg_ids):  # a queue that keeps batches whole
        offset_ids = [result.offset_msg_id] * len(msg_ids)
    status, _, _, queue, first_offset, *others = result
    fields = zip(repeat(status), msg_ids, offset_ids, repeat(queue), count(first_offset), *map(repeat, others))
    return map(partial(_made, SendResult), fields)


class PullStatus(Enum):
    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


PULL_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


@attrs.frozen
class PullResult:
    """A broker's answer to a pull. `messages` is empty unless FOUND, and may be empty then, after the tag check."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[ReceivedMessage, ...] = ()
    suggest_which_broker_id: int = 0


@attrs.frozen
class StoredPull:
    """As PullResult, with the messages as stored records: `body` holds them one after the other."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body: bytes
    suggest_which_broker_id: int = 0


class ConsumeAction(Enum):
    SUCCESS = "SUCCESS"
    RETRY = "RETRY"
    SUSPEND = "SUSPEND"
    """Ordered: this queue pauses, then the same messages again."""
    COMMIT = "COMMIT"
    """Ordered, with auto_commit=False: everything handed out so far is done."""
    ROLLBACK = "ROLLBACK"


@attrs.frozen
class ConsumeResult:
    """A handler's result for the messages it was given; returning None is SUCCESS, raising is RETRY.

    Args:
        delay_level: of a retry: 0 lets the broker lengthen the delay with each attempt, -1 is the dead letter topic, of
            ordered consumers as well, which the reference does not do; other levels mean nothing to those.
        ack_index: of a batch: the last message that is done (0-based); None for all of them.
        suspend_s: of a suspension: seconds before the queue goes on; None for the consumer's setting.
        auto_commit: False on ordered SUCCESS keeps the messages handed out until a later COMMIT.
    """

    action: ConsumeAction
    delay_level: int = 0
    ack_index: int | None = None
    suspend_s: float | None = None
    auto_commit: bool = True

    @classmethod
    def retry(cls, delay_level: int = 0) -> ConsumeResult:
        """Deliver again later. Levels: 0: longer with each attempt; 1 to 18: as those of `Message.delay_level`."""
        return cls(ConsumeAction.RETRY, delay_level=delay_level)

    @classmethod
    def dead_letter(cls) -> ConsumeResult:
        """Move to the topic `%DLQ%GROUP`; nobody gets it again."""
        return cls(ConsumeAction.RETRY, delay_level=-1)

    @classmethod
    def partial(cls, ack_index: int, delay_level: int = 0) -> ConsumeResult:
        """A batch that is done up to and including `ack_index`; the rest is retried."""
        return cls(ConsumeAction.SUCCESS, delay_level=delay_level, ack_index=ack_index)

    @classmethod
    def suspend(cls, seconds: float | None = None) -> ConsumeResult:
        """Ordered: deliver the same messages again after a pause of the queue."""
        return cls(ConsumeAction.SUSPEND, suspend_s=seconds)

    @classmethod
    def hold(cls) -> ConsumeResult:
        """Ordered: fine so far, but do not commit before a later `commit()`."""
        return cls(ConsumeAction.SUCCESS, auto_commit=False)

    @classmethod
    def commit(cls) -> ConsumeResult:
        """Ordered: these messages, and those before that were held, are done."""
        return cls(ConsumeAction.COMMIT, auto_commit=False)

    @classmethod
    def rollback(cls) -> ConsumeResult:
        """Ordered: deliver the held messages again."""
        return cls(ConsumeAction.ROLLBACK, auto_commit=False)


CONSUMED = ConsumeResult(ConsumeAction.SUCCESS)


def acknowledged_count(result: ConsumeResult, size: int) -> int:
    """Return the number of messages of a concurrent batch that are done, from the first on.

    Source: RocketMQ 4.9 `ConsumeMessageConcurrentlyService#processConsumeResult`.
    """
    if result.action not in (ConsumeAction.SUCCESS, ConsumeAction.COMMIT):
        return 0
    return size if result.ack_index is None else max(0, min(result.ack_index + 1, size))


class ClientCode(IntEnum):
    """Errors that no broker has answered, by the reference's numbers. Source: RocketMQ 4.9 `ClientErrorCode`."""

    NONE = -1
    CONNECT_BROKER = 10001
    ACCESS_BROKER_TIMEOUT = 10002
    BROKER_NOT_EXIST = 10003
    NO_NAME_SERVER = 10004
    NOT_FOUND_TOPIC = 10005
    REQUEST_TIMEOUT = 10006
    CREATE_REPLY_MESSAGE = 10007
