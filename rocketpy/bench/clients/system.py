"""The interface between the client generator and a system: every system gets the same load.

Short: interfaces.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from rocketpy.errors import ConfigError

ASSIGNED_S_MAX = 60.0  # until a consumer has its partitions
STOP_S_MAX = 10.0  # of a client
Send: TypeAlias = Callable[[str, bytes], Awaitable[object]]  # to a topic; returns when it is acknowledged
Receive: TypeAlias = Callable[[bytes], None]


class System(Protocol):
    """A connected system. It acknowledges each send as soon as the message is durable in its sense without a sync."""

    async def describe(self) -> dict[str, Any]:
        """Return `system`, `version`, and the `settings` of server and clients that figures depend on."""
        ...

    async def make_topics(self, topics: Sequence[str], partitions: int) -> None: ...

    async def delete_topics(self, topics: Sequence[str]) -> None: ...

    def producer(self, partitions: int) -> AbstractAsyncContextManager[Send]:
        """Open a connection that sends to the partitions in turn."""
        ...

    def consumer(self, group: str, topics: Sequence[str], receive: Receive) -> AbstractAsyncContextManager[None]:
        """Join a group as a member that calls `receive` with each body; entered when it has its partitions."""
        ...


Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[System]]


def client_library(name: str, target: str) -> Any:
    """Import the client of a target. Raises ConfigError: it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        needed = 'pip install "rocketpy-mq[bench-neighbours]"'
        raise ConfigError(f"the target {target} needs its client: {needed}") from error
