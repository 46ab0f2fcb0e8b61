"""Queue locks for ordered consumption: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

Source: RocketMQ 4.9 `AdminBrokerProcessor#lockBatchMQ`, `#unlockBatchMQ`.
"""

from __future__ import annotations

from rocketpy.codes import RequestCode
from rocketpy.remoting import fastjson
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.lock import LockBatchRequestBody
from rocketpy.remoting.command import RemotingCommand

from ..services import BrokerServices
from .table import TableProcessor


class LockProcessor(TableProcessor):
    def __init__(self, services: BrokerServices) -> None:
        super().__init__({RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock})
        self._locks = services.locks

    async def _lock(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        body = LockBatchRequestBody.decode(request.body)
        held = self._locks.lock(body.consumer_group, body.mq_set, body.client_id)
        return RemotingCommand.response(body=fastjson.dumps({"lockOKMQSet": held}))

    async def _unlock(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        body = LockBatchRequestBody.decode(request.body)
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return RemotingCommand.response()
