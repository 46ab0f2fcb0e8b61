"""Cleaning: expired files of queues and of the log (306, 329), queues of deleted topics (316).

A deletion waits for a bounded time until the files of its queues are removed. If files are left, the remark says so.
The wait occupies no task of the admin pool: administration is needed most when the disk of the consume queues is full.

Source: RocketMQ 4.9 `AdminBrokerProcessor`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from rocketpy.codes import RequestCode
from rocketpy.remoting.abc import Channel, Detached
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import Completion, FastPath
from rocketpy.transport.steps import Steps

from ..services import BrokerServices
from .table import TableProcessor

logger = logging.getLogger(__name__)

DELETION_WAIT_S = 3.0
EXPIRED_WAIT_S = 30.0
WAITERS_MAX = 64  # requests that wait for the store worker at once
STORE = "store worker"
FILES_ARE_LEFT = (
    "deleted; consume queue files are not removed yet: the store worker removes them when it has dispatched the "
    "messages stored before. If that takes long, check the broker's log and the disk of storePathRootDir"
)
EXPIRED_ARE_LEFT = (
    "the store worker is still removing the files of expired queues; repeat the command, or check the broker's log"
)


class CleaningProcessor(TableProcessor):
    """Removes what no topic needs any more: files of queues and of the log."""

    def __init__(self, services: BrokerServices) -> None:
        super().__init__(
            {
                RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_expired_queues,
                RequestCode.CLEAN_UNUSED_TOPIC: self._clean_unused_topics,
                RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete_expired_log,
            }
        )
        self._services = services

    async def _clean_expired_queues(self, request: RemotingCommand, channel: Channel) -> Detached:
        return clean_expired(self._services.fast_path)

    async def _delete_expired_log(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        """Request deletion of log files older than fileReservedTime. Answered at once, because there may be many
        files."""
        self._services.store.request_delete_expired()
        return RemotingCommand.response()

    async def _clean_unused_topics(self, request: RemotingCommand, channel: Channel) -> Detached:
        """Delete the queues of topics that no longer have a configuration."""
        services, steps = self._services, Steps()
        queues = await trio.to_thread.run_sync(services.store.queue_states)
        found, deletions = set(), []
        for queue in queues:
            found.add(queue.topic)
            await steps.did()
        for topic in found:
            await steps.did()
            if services.topics.select(topic) is None and not services.topics.is_system(topic):
                logger.info("topic %s has queues but no configuration: deleting its queues", topic)
                deletions.append(services.fast_path.delete_queues(topic))
        return answer_after(deletions, services.topics.position.pass_deletion)


def answer_after(deletions: Sequence[Completion], keep: Callable[[], Awaitable[None]]) -> Detached:
    """The response to a deletion. `keep` brings to the disk that the messages of the topics are passed."""
    return Detached(partial(_wait_for, deletions, keep), STORE, DELETION_WAIT_S + 1.0, at_once_max=WAITERS_MAX)


async def _wait_for(deletions: Sequence[Completion], keep: Callable[[], Awaitable[None]]) -> RemotingCommand:
    with trio.move_on_after(DELETION_WAIT_S):
        for deletion in deletions:
            await deletion.wait()
    await keep()
    are_gone = all(deletion.is_set() for deletion in deletions)
    return RemotingCommand.response(remark=None if are_gone else FILES_ARE_LEFT)


def clean_expired(fast_path: FastPath) -> Detached:
    """Remove the files of queues whose messages are all deleted. Answered when they are removed, or after
    EXPIRED_WAIT_S."""
    return Detached(partial(_clean_expired, fast_path), STORE, EXPIRED_WAIT_S + 1.0, at_once_max=WAITERS_MAX)


async def _clean_expired(fast_path: FastPath) -> RemotingCommand:
    with trio.move_on_after(EXPIRED_WAIT_S) as scope:
        await fast_path.clean_expired_queues()
    return RemotingCommand.response(remark=EXPIRED_ARE_LEFT if scope.cancelled_caught else None)
