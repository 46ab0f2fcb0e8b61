"""Errors about messages that a query should read and cannot get."""

from __future__ import annotations

from rocketpy.errors import RocketError
from rocketpy.message.message_queue import MessageQueue

GOES_ON = "With failOnDataLoss=false the query goes on"


def queue_text(queue: MessageQueue) -> str:
    """A queue, as errors name it."""
    return f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"


class MessagesMissing(RocketError):
    """Messages are not there any more, as far as can be said."""

    def __init__(self, queue: MessageQueue, wanted: int, text: str) -> None:
        self.queue, self.wanted = queue, wanted
        super().__init__(f"{queue_text(queue)}: {text}")


class DataLost(MessagesMissing):
    """A queue does not reach from the offset that is wanted, or not to it."""

    def __init__(self, queue: MessageQueue, wanted: int, answer_min: int, answer_max: int) -> None:
        self.min_offset, self.max_offset = answer_min, answer_max
        reason = "Messages were deleted before they were read, or the store was replaced"
        there = f"{answer_min} to {answer_max} are there"
        super().__init__(queue, wanted, f"offset {wanted} is wanted, {there}. {reason}. {GOES_ON} with what is there")


class QueueGone(MessagesMissing):
    """The name servers know no such queue, and a query has a position in it."""

    def __init__(self, queue: MessageQueue, wanted: int) -> None:
        super().__init__(
            queue,
            wanted,
            f"was read up to {wanted}, and has no route now. If its broker is down, start the query again when it is "
            "back. Otherwise the topic was deleted, or the checkpoint is that of a query of other topics: name a new "
            f"checkpointLocation. {GOES_ON} without this queue",
        )


class TopicRemade(MessagesMissing):
    """A topic was deleted and made again: the positions of a query are those of the old one."""

    def __init__(self, queue: MessageQueue, wanted: int) -> None:
        super().__init__(
            queue,
            wanted,
            f"was read up to {wanted}, but the topic was deleted and made again since, or the store was replaced. "
            f"To read what is there now, name a new checkpointLocation. {GOES_ON} with the first message that is there",
        )


class RecordsGone(MessagesMissing):
    """A queue names messages whose records the broker does not have: it skips them in its answers."""

    def __init__(self, queue: MessageQueue, wanted: int) -> None:
        reason = "its record was deleted a moment ago, or is damaged"
        super().__init__(queue, wanted, f"the broker skips offset {wanted}: {reason}. {GOES_ON} without it")


class ReplicaBehind(RocketError):
    """A slave lacks messages that its master had when the query was planned: they are not lost."""

    def __init__(self, queue: MessageQueue, wanted: int, end: int, address: str) -> None:
        super().__init__(
            f"{queue_text(queue)}: offset {wanted} is wanted, but the master is away, and the slave {address} ends at "
            f"{end}. Start the query again when the master is back, or the slave has become the master"
        )
