"""Queue locks for ordered consumption: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

Source: RocketMQ 4.9 `AdminBrokerProcessor#lockBatchMQ`, `#unlockBatchMQ`.
"""

from __future__ import annotations

from collections.abc import Iterator

import trio

from rocketpy.codes import RequestCode
from rocketpy.message import names
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.group import LockBatchRequestBody
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.limits import require
from rocketpy.transport.steps import Steps, encoded_body, read_body

from ..services import BrokerServices
from .table import TableProcessor

QUEUES_PER_STEP = 200
QUEUES_MAX = 65_536  # of one request: as many as a topic can have


class LockProcessor(TableProcessor):
    """Locks of queues that are consumed in order."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__({RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock})
        self._services, self._locks = services, services.locks

    async def _lock(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        body, held = await _checked(request), []
        for queues in _slices(body.mq_set):
            held += self._locks.lock(body.consumer_group, self._existing(queues), body.client_id)
            await trio.lowlevel.checkpoint()
        return RemotingCommand.response(body=await encoded_body({"lockOKMQSet": held}))

    def _existing(self, queues: list[MessageQueue]) -> list[MessageQueue]:
        """Return the queues that are here, with access control: else one account could use up all locks. Others are not
        granted, since a client may not yet know that its topic has fewer queues."""
        services = self._services
        if services.access is None:
            return queues
        own, has_queue = services.settings.broker.broker_name, services.topics.has_queue
        return [queue for queue in queues if queue.broker_name == own and has_queue(queue.topic, queue.queue_id)]

    async def _unlock(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        body = await _checked(request)
        for queues in _slices(body.mq_set):
            self._locks.unlock(body.consumer_group, queues, body.client_id)
            await trio.lowlevel.checkpoint()
        return RemotingCommand.response()


def _slices(queues: list[MessageQueue]) -> Iterator[list[MessageQueue]]:
    """Split the queues; each slice is one step."""
    return (queues[start : start + QUEUES_PER_STEP] for start in range(0, len(queues), QUEUES_PER_STEP))


async def _checked(request: RemotingCommand) -> LockBatchRequestBody:
    """Decode the body and check its names. Raises: BodyInvalid, RequestRefused."""
    body = await read_body(LockBatchRequestBody, request.body)
    require(names.group_fault(body.consumer_group))
    require(names.text_fault("client id", body.client_id))
    if len(body.mq_set) > QUEUES_MAX:
        require(f"{len(body.mq_set)} queues in one request, at most {QUEUES_MAX} are allowed")
    steps = Steps()
    for queue in body.mq_set:
        await steps.did()
        require(names.known_topic_fault(queue.topic) or names.text_fault("broker name", queue.broker_name))
    return body
