"""The token of an account of etcd: one log-in at a time, for all requests of a process.

A log-in costs etcd a tenth of a second of a processor (bcrypt), more under load. Requests that found no token, each
with a log-in at every member, kept etcd busy for longer than they waited. So tasks share one log-in. After a failure
none is tried for BACK_OFF_S, which doubles up to BACK_OFF_MAX_S: who needs one meanwhile fails with the same reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import trio

from rocketpy.errors import RocketError

BACK_OFF_S, BACK_OFF_MAX_S = 0.25, 5.0  # after the first failure; it doubles


@attrs.define(eq=False)
class Session:
    """One account.

    Args:
        log_in: asks a member of etcd for a token: the one at this address, or any.
    """

    log_in: Callable[[str | None], Awaitable[str | None]]
    token: str | None = None
    _lock: trio.Lock = attrs.field(factory=trio.Lock)
    _failures: int = 0  # in a row
    _again_s: float = 0.0  # no log-in before
    _failure: RocketError | None = None

    async def renew(self, refused: str | None, address: str | None) -> None:
        """Get another token than `refused`, unless another task has got one.

        `address`: of the member that has refused it: it answers, where others may be frozen.

        Raises:
            EtcdError, EtcdUnavailable: the log-in failed, now or a moment ago.
        """
        async with self._lock:
            if self.token != refused:
                return
            if self._failure is not None and trio.current_time() < self._again_s:
                raise self._failure.with_traceback(None)  # it would grow with each task
            try:
                self.token = await self.log_in(address)
            except RocketError as exc:
                self._again_s = trio.current_time() + min(BACK_OFF_MAX_S, BACK_OFF_S * 2**self._failures)
                self._failures, self._failure = min(self._failures + 1, 16), exc
                raise
            self._failures, self._failure = 0, None
