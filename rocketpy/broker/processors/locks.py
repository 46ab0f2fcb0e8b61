"""Queue locks for ordered consumption: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

Source: RocketMQ 4.9 `AdminBrokerProcessor#lockBatchMQ`, `#unlockBatchMQ`.
"""

from __future__ import annotations

from rocketpy.codes import RequestCode
from rocketpy.message import names
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.lock import LockBatchRequestBody
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.limits import require

from ..services import BrokerServices
from .table import TableProcessor

QUEUES_MAX = 65_536  # of one request: as many as a topic can have


class LockProcessor(TableProcessor):
    def __init__(self, services: BrokerServices) -> None:
        super().__init__({RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock})
        self._locks = services.locks

    async def _lock(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        body = _checked(request)
        held = self._locks.lock(body.consumer_group, body.mq_set, body.client_id)
        return RemotingCommand.response(body=fastjson.dumps({"lockOKMQSet": held}))

    async def _unlock(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        body = _checked(request)
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return RemotingCommand.response()


def _checked(request: RemotingCommand) -> LockBatchRequestBody:
    """The body, whose names are names. Raises: BodyInvalid, RequestRefused."""
    body = LockBatchRequestBody.decode_request(request.body)
    require(names.group_fault(body.consumer_group))
    require(names.text_fault("client id", body.client_id))
    if len(body.mq_set) > QUEUES_MAX:
        require(f"{len(body.mq_set)} queues in one request, at most {QUEUES_MAX} are allowed")
    for queue in body.mq_set:
        require(names.known_topic_fault(queue.topic) or names.text_fault("broker name", queue.broker_name))
    return body
