"""LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42)."""

from __future__ import annotations

from rocketpy.message.message_queue import MessageQueue

from .schema import Body, body, wire


@body
class LockBatchRequestBody(Body):
    """The request of both codes."""

    client_id: str = wire("clientId", default="")
    consumer_group: str = wire("consumerGroup", default="")
    mq_set: list[MessageQueue] = wire("mqSet", factory=list)


@body
class LockBatchResponseBody(Body):
    """The queues that are locked now: equal to the requested ones in all three fields; the others are not."""

    lock_ok_mq_set: list[MessageQueue] = wire("lockOKMQSet", factory=list)
