"""What the client generator asks of a system, so that every system gets the same load.

Short: interfaces.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

Send: TypeAlias = Callable[[str, bytes], Awaitable[object]]  # to a topic; returns when it is acknowledged
Receive: TypeAlias = Callable[[bytes], None]


class System(Protocol):
    """A connected system. Sends are acknowledged one by one, by whatever it takes for durable without a sync."""

    async def describe(self) -> dict[str, Any]:
        """Return `system`, `version`, and the `settings` of server and clients that figures depend on."""
        ...

    async def make_topics(self, topics: Sequence[str], partitions: int) -> None: ...

    async def delete_topics(self, topics: Sequence[str]) -> None: ...

    def producer(self, partitions: int) -> AbstractAsyncContextManager[Send]:
        """A connection that sends to the partitions in turn."""
        ...

    def consumer(self, group: str, topics: Sequence[str], receive: Receive) -> AbstractAsyncContextManager[None]:
        """A member of a group, which calls `receive` with each body; entered when it has its partitions."""
        ...


Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[System]]
