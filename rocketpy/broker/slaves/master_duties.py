"""Duties of a group's master, for as long as it is the master: delivering delayed messages, checking transactions.

Without automatic failover the role belongs to the process. With it the manager of a master's process tree is told when
its broker becomes the group's brokerId 0, and when it ceases to be.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


class MasterDuties:
    """The role of this broker, master or not, and the duties that depend on it; one per manager."""

    def __init__(self, is_master: bool = True) -> None:
        self._is_master = is_master
        self._changed = trio.Event()

    @property
    def is_master(self) -> bool:
        return self._is_master

    def switch(self, is_master: bool) -> None:
        """Begin or end the duties under `while_master`."""
        if is_master != self._is_master:
            self._is_master = is_master
            self._changed.set()
            self._changed = trio.Event()

    def while_master(self, run: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """A duty without end that runs while this broker is the master, and is cancelled when it is not.

        It begins anew with each promotion. Raises: what `run` raises; the caller runs the duty again.
        """

        async def run_while_master() -> None:
            while True:
                changed = self._changed  # taken before the first await: a task that starts later finds another event
                if self._is_master:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(_cancel_when, changed, nursery.cancel_scope)
                        await run()
                else:
                    await changed.wait()

        return run_while_master

    def if_master(self, work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Work that is done now and then, and left out while another broker is the master."""

        async def work_if_master() -> None:
            if self._is_master:
                await work()

        return work_if_master


async def _cancel_when(changed: trio.Event, scope: trio.CancelScope) -> None:
    await changed.wait()
    scope.cancel()
