"""Waits for a bounded time until the files of deleted queues are removed. If files are left, the remark says so.

The wait occupies no task of the admin pool: administration is needed most when the disk of the consume queues is full.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from rocketpy.remoting.abc import Detached
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import Completion, FastPath

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
