"""Preparations under way: work elsewhere that requests wait for in their turn (remoting/abc.py, Preparation).

A connection that is held has one request here, so their number is bounded by that of the requests that wait in pools. A
deadline, the end of the connection, or the end of the process ends each.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import attrs
import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.remoting.abc import Preparation, Response, Rest

from .pool_queue import PoolQueue, Waiting


class Preparable(Waiting, Protocol):
    """A request that waits, and what is left of it when it has been prepared."""

    rest: Rest | None


_J = TypeVar("_J", bound=Preparable)


@attrs.frozen(eq=False)
class FailedRest:
    """The rest of a request whose preparation has failed: it raises the reason, in the turn of the request."""

    reason: Exception

    async def __call__(self) -> Response:
        raise self.reason


@attrs.define(eq=False)
class Preparations:
    """Runs preparations, each in a task of the caller, and ends them."""

    _scopes: dict[int, trio.CancelScope] = attrs.field(init=False, factory=dict)  # by connection
    _is_stopping: bool = attrs.field(init=False, default=False)

    def begin(self, nursery: trio.Nursery, queue: PoolQueue[_J], job: _J, preparation: Preparation) -> None:
        """Hold the job and its connection until the preparation has ended."""
        queue.hold(job)
        nursery.start_soon(self._run, queue, job, preparation)

    async def _run(self, queue: PoolQueue[_J], job: _J, preparation: Preparation) -> None:
        try:
            job.rest = await self._rest(preparation, job.sender)
        finally:
            queue.release(job.sender)

    async def _rest(self, preparation: Preparation, connection: int) -> Rest:
        """The rest of the request; if its preparation fails or is ended, the rest raises the reason."""
        scope = trio.CancelScope(deadline=trio.current_time() + preparation.timeout_s)
        if self._is_stopping:
            scope.cancel()
        self._scopes[connection] = scope
        try:
            with scope:
                return await preparation.prepare()
        except Exception as exc:
            return FailedRest(exc)
        finally:
            del self._scopes[connection]
        return FailedRest(RequestRefused(ResponseCode.SYSTEM_ERROR, "the request could not be prepared in time"))

    def cancel(self, connection: int) -> None:
        """End the preparation of this connection, if there is one."""
        if connection in self._scopes:
            self._scopes[connection].cancel()

    def stop(self) -> None:
        """End all of them, because the process is stopping."""
        self._is_stopping = True
        for scope in self._scopes.values():
            scope.cancel()
