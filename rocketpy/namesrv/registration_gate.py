"""Admission of registrations one at a time, with bounds on the waiting ones.

A registration may have 16 MiB, and reading it takes seconds, in steps. Brokers send one and wait for its answer. A peer
that sends many is refused, which bounds the memory of waiting registrations and keeps one peer from delaying the
others.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext

import trio

from rocketpy.codes import ResponseCode
from rocketpy.errors import RequestRefused

NO_CONNECTION = 0
LARGE_BYTES = 65_536
PER_CONNECTION_MAX = 4
WAITING_BYTES_MAX = 128 * 1024 * 1024
BUSY = "[OVERLOAD]too many registrations are waiting"


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector. The topics that are read contain no cycles, and the collector would traverse
    all of them again and again, for more than 20 ms each time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class RegistrationGate:
    """Shared by all connections; registrations are admitted in order of arrival."""

    def __init__(self, *, per_connection_max: int = PER_CONNECTION_MAX, bytes_max: int = WAITING_BYTES_MAX) -> None:
        self._per_connection_max = per_connection_max
        self._bytes_max = bytes_max
        self._lock = trio.Lock()
        self._by_connection: Counter[int] = Counter()
        self._bytes = 0

    @asynccontextmanager
    async def turn(self, connection: int, size: int) -> AsyncIterator[None]:
        """The caller's turn, with a body of `size` bytes.

        Raises:
            RequestRefused: its connection, or all together, have too much waiting; to be tried again later.
        """
        if self._by_connection[connection] >= self._per_connection_max:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"{BUSY}: at most {self._per_connection_max} per connection")
        if self._bytes and self._bytes + size > self._bytes_max:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"{BUSY}: {self._bytes} bytes, at most {self._bytes_max}")
        self._by_connection[connection] += 1
        self._bytes += size
        try:
            async with self._lock:
                with _collector_paused() if size > LARGE_BYTES else nullcontext():
                    yield
        finally:
            self._bytes -= size
            self._by_connection[connection] -= 1
            if not self._by_connection[connection]:
                del self._by_connection[connection]
